"""Methods by name, and what can be combined: READING[+ELEMENT][+UNLABELED][+CONSISTENCY], as in en+asl+scl.

The element is that of focal, asl or hill and takes the place of cross-entropy, or of splc's focal margin.
What puts images without labels to use (cluster, fixmatch) and consistency are terms beside the label loss.
Whatever is combined is on the scale of the mean over entries (asl, hill, splc and csl-i alone are sums), so
that the weights of terms mean the same everywhere.

An observed negative is −log(1−f) at full weight in every method. focal and asl alone (and with consistency
only) and the methods of PatchML are the exceptions: they have an exponent for negatives too. As an element,
as in an+asl, focal and asl follow the rule: what they weigh is the unknown. Oracles and iu have no unknown
labels: there an element is the loss of all negatives, and bce+asl is asl with all labels.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from sparselabel.errors import ConfigError, nearest
from sparselabel.losses import refusing
from sparselabel.losses.base import LossPart, SparseLoss
from sparselabel.losses.catalog import annotated, expected, patches, reweighted, single_positive
from sparselabel.losses.entry_losses import Asymmetric, Focal, Hill

METHODS: dict[str, Callable[..., SparseLoss]] = {
    "bce": single_positive.bce,
    "bce-ls": single_positive.bce_ls,
    "iu": single_positive.iu,
    "iun": single_positive.iun,
    "an": single_positive.an,
    "an-ls": single_positive.an_ls,
    "wan": single_positive.wan,
    "epr": single_positive.epr,
    "role": single_positive.role,
    "pseudo": expected.pseudo,
    "en": expected.en,
    "ep": expected.ep,
    "focal": reweighted.focal,
    "asl": reweighted.asl,
    "hill": reweighted.hill,
    "splc": reweighted.splc,
    "ll-r": reweighted.ll_r,
    "ll-ct": reweighted.ll_ct,
    "ll-cp": reweighted.ll_cp,
    "em": reweighted.em,
    "em+apl": reweighted.em_apl,
    "gr": reweighted.gr,
    "pu": annotated.pu,
    "csl-i": patches.csl_i,
    "patchml": patches.patchml,
    "csl-p": patches.csl_p,
    "fixmatch": patches.fixmatch,
}

ENTRY_LOSSES = ("focal", "asl", "hill")
UNLABELED: dict[str, Callable[..., SparseLoss]] = {
    "cluster": patches.cluster,
    "fixmatch": patches.with_fixmatch,
}
CONSISTENCY: dict[str, Callable[..., SparseLoss]] = {"cl": expected.cl, "scl": expected.scl}

LEAVES_OUT = ("iu", "csl-i", "patchml", "csl-p")
"""Methods that can leave unknown labels out: others have a use of their own for images without labels."""

NO_UNKNOWN = ("bce", "bce-ls", "iun", "iu")
"""Methods whose negatives are all known, so that an element is the loss of these."""

OWN_LOSS = {
    "epr": "it has no loss on unknown labels, which are what an element weighs",
    "role": "its estimates are those of cross-entropy (Cole 2021 eq. 11)",
    "focal": "it brings an element of its own",
    "asl": "it brings an element of its own",
    "hill": "it brings an element of its own",
    "em": "an unknown label costs its entropy there",
    "em+apl": "an unknown label costs its entropy there",
    "gr": "it brings an element of its own",
    "pu": "it brings an element of its own",
    "csl-i": "it brings an element of its own",
    "patchml": "it brings an element of its own",
    "csl-p": "it brings an element of its own",
    "fixmatch": "it brings an element of its own",
}
OWN_ENTRY_LOSS = {"splc": ("gamma_pos", "gamma_neg", "margin")}
"""Settings of a method that are its element's, and go with it where another takes its place."""
OWN_PAST = {"role": "its label estimates already follow what the model said before"}

SHARED = ("momentum", "box_rule")  # settings that all parts take; others go to the last part that has them
SCALE = "scale"  # no setting of a combination, which is on the scale of the mean


class Combination(NamedTuple):
    """A method's name, taken apart."""

    base: str
    entry_loss: str | None = None
    unlabeled: str | None = None
    consistency: str | None = None

    @property
    def name(self) -> str:
        """The parts joined again."""
        return "+".join(part for part in self if part is not None)


def parsed(name: str) -> Combination:
    """The parts of a name; one that cannot be is refused with the reason."""
    base, entry_loss, unlabeled, consistency = name, None, None, None
    rest, _, last = base.rpartition("+")
    if rest and last in CONSISTENCY:
        base, consistency = rest, last
    rest, _, last = base.rpartition("+")
    if rest and last in UNLABELED:
        base, unlabeled = rest, last
    rest, _, last = base.rpartition("+")
    if rest and last in ENTRY_LOSSES:
        base, entry_loss = rest, last
    if base not in METHODS:
        if name.lower() == "auto":
            raise ConfigError(
                "auto is a word of training alone (--method auto), for pu, or for pu+scl where everything is "
                "trained (--finetune.epochs) and cells have logits: name one of these"
            )
        if reason := refusing.why_not(name, _kinds(), parsed):
            raise ConfigError(f"{name}: {reason} (`sparselabel methods` says what combines)")
        raise ConfigError(
            f"there is no method {name!r}: {nearest(name, METHODS, also=combinations())}; "
            "some combine: READING+ELEMENT+CONSISTENCY, as en+asl+scl, or READING+UNLABELED, as "
            "patchml+cluster (`sparselabel methods`)"
        )
    if entry_loss is not None and base in OWN_LOSS:
        raise ConfigError(
            f"{name}: {base} does not combine with the element {entry_loss}, as {OWN_LOSS[base]}; these do: "
            + ", ".join(with_entry_losses())
        )
    if unlabeled is not None and base not in LEAVES_OUT:
        raise ConfigError(
            f"{name}: {base} does not combine with {unlabeled}, which is for images and labels that a "
            f"method leaves out, as {', '.join(LEAVES_OUT)} can"
        )
    if consistency is not None and base in OWN_PAST:
        raise ConfigError(f"{name}: {base} does not combine with {consistency}, as {OWN_PAST[base]}")
    return Combination(base, entry_loss, unlabeled, consistency)


def _kinds() -> dict[str, str]:
    """What each part of a name is; focal, asl, hill and fixmatch are methods on their own too."""
    return (
        dict.fromkeys(METHODS, refusing.READING)
        | dict.fromkeys(ENTRY_LOSSES, refusing.ELEMENT)
        | dict.fromkeys(UNLABELED, refusing.UNLABELED)
        | dict.fromkeys(CONSISTENCY, refusing.CONSISTENCY)
    )


def with_entry_losses() -> list[str]:
    """The methods whose element can be exchanged."""
    return [name for name in METHODS if name not in OWN_LOSS]


def with_unlabeled() -> list[str]:
    """The methods to which something for images without labels can be added."""
    return [*LEAVES_OUT]


def with_consistency() -> list[str]:
    """The methods that consistency can be added to."""
    return [name for name in METHODS if name not in OWN_PAST]


def combinations() -> Iterator[str]:
    """The names of all combinations."""
    for base in METHODS:
        entry_losses = (None, *(ENTRY_LOSSES if base not in OWN_LOSS else ()))
        unlabeled = (None, *(UNLABELED if base in LEAVES_OUT else ()))
        consistency = (None, *(CONSISTENCY if base not in OWN_PAST else ()))
        for added in itertools.product(entry_losses, unlabeled, consistency):
            if any(added):
                yield Combination(base, *added).name


def factories(name: str) -> list[Callable[..., SparseLoss]]:
    """What makes the parts of a method; their signatures are its settings, their docstrings explain it."""
    base, entry_loss, unlabeled, consistency = parsed(name)
    found = [METHODS[base]]
    if entry_loss is not None:
        found.append(METHODS[entry_loss])
    if unlabeled is not None:
        found.append(UNLABELED[unlabeled])
    if consistency is not None:
        found.append(CONSISTENCY[consistency])
    return found


def settings_of(name: str) -> dict[str, Any]:
    """A method's settings and their defaults."""
    base, entry_loss, *_ = parsed(name)
    gone = OWN_ENTRY_LOSS.get(base, ()) if entry_loss is not None else ()
    settings: dict[str, Any] = {}
    for factory in factories(name):
        parameters = inspect.signature(factory).parameters
        left_out = gone if factory is METHODS[base] else ("method",)
        settings |= {key: p.default for key, p in parameters.items() if key not in left_out}
    if len(factories(name)) > 1:
        settings.pop(SCALE, None)
    if presets_of(name):
        settings["preset"] = None
    return settings


def presets_of(name: str) -> dict[str, dict[str, Any]]:
    """The settings that a method's paper uses, by data set; of a combination those of its base."""
    presets = reweighted.PRESETS.get(parsed(name).base, {})
    if len(factories(name)) == 1:
        return presets
    return {
        preset: {key: value for key, value in values.items() if key != SCALE}
        for preset, values in presets.items()
    }


def make_method(name: str, **settings: Any) -> SparseLoss:
    """A method by its name, not yet told about any labels."""
    base, entry_loss, unlabeled, consistency = parsed(name)
    known = settings_of(name)
    for key in settings:
        if key not in known:
            leave_out = f"it has none: leave --settings.{key.replace('_', '-')} out"
            has = nearest(key, known) if known else leave_out
            if key == "preset":
                has = f"presets are for {', '.join(reweighted.PRESETS)}, and combinations that begin with one"
            raise ConfigError(f"method {name!r} has no setting {key!r}: {has}")
    settings = _preset(name, settings.pop("preset", None)) | settings
    own = _dealt_out(factories(name), settings)
    method = METHODS[base](**own.pop(0))
    if entry_loss is not None:
        exchanged = METHODS[entry_loss](**own.pop(0)).entry_loss
        if isinstance(exchanged, Focal | Asymmetric | Hill):
            exchanged = replace(exchanged, plain_negatives=base not in NO_UNKNOWN)
        terms = {key: part for key, part in method.terms.items() if isinstance(part, LossPart)}
        method = SparseLoss(method.target_rule, exchanged, terms)
    if unlabeled is not None:
        method = UNLABELED[unlabeled](method, **own.pop(0))
    if consistency is not None:
        method = CONSISTENCY[consistency](method, **own.pop(0))
    return method


def _preset(name: str, preset: str | None) -> dict[str, Any]:
    if preset is None:
        return {}
    presets = presets_of(name)
    if preset not in presets:
        raise ConfigError(f"{name} has no preset {preset!r}: {nearest(preset, presets)}")
    return presets[preset]


def _dealt_out(parts: list[Callable[..., SparseLoss]], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of each part: of a name that several have, the last one takes it, unless they share it.

    So ``weight`` of epr+cl is that of consistency, and epr's own keeps its default.
    """
    taken: set[str] = set()
    dealt = []
    for part in reversed(parts):
        has = {key for key in inspect.signature(part).parameters if key in settings and key not in taken}
        taken |= has - {*SHARED}
        dealt.append({key: settings[key] for key in has})
    return dealt[::-1]
