"""Methods by name, and what can be combined: READING[+ELEMENT][+CONSISTENCY], as in en+asl+scl.

The element is that of focal, asl or hill and takes the place of cross-entropy. Consistency is a term beside
the label loss. Whatever is combined is on the scale of the mean over entries (asl, hill and splc alone are
sums), so that the weight of consistency means the same everywhere.

An observed negative is −log(1−f) at full weight in every method. focal and asl alone (and with consistency
only) are the exceptions: they are losses for full labels, whose negatives are on their negative side. As an
element, as in an+asl, they follow the rule: what they weigh is the unknown.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from sparselabel.errors import ConfigError, nearest
from sparselabel.method.base import Method, Part
from sparselabel.method.catalog import expected, reweighted, single_positive
from sparselabel.method.elements import Asymmetric, Focal

METHODS: dict[str, Callable[..., Method]] = {
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
}

ELEMENTS = ("focal", "asl", "hill")
CONSISTENCY: dict[str, Callable[..., Method]] = {"cl": expected.cl, "scl": expected.scl}

CHOOSES = "it chooses labels by the size of their cross-entropy"
OWN_LOSS = {
    "role": "its estimates are those of cross-entropy (P3 eq. 11)",
    "focal": "it brings an element of its own",
    "asl": "it brings an element of its own",
    "hill": "it brings an element of its own",
    "splc": "it brings an element of its own",
    "ll-r": CHOOSES,
    "ll-ct": CHOOSES,
    "ll-cp": CHOOSES,
    "em": "an unknown label costs its entropy there",
    "em+apl": "an unknown label costs its entropy there",
    "gr": "it brings an element of its own",
}
OWN_PAST = {"role": "its label estimates already follow what the model said before"}

SHARED = ("momentum",)  # a setting that all parts take; any other one goes to the last part that has it


class Combination(NamedTuple):
    """A method's name, taken apart."""

    base: str
    element: str | None = None
    consistency: str | None = None

    @property
    def name(self) -> str:
        """The parts joined again."""
        return "+".join(part for part in self if part is not None)


def parsed(name: str) -> Combination:
    """The parts of a name; one that cannot be is refused with the reason."""
    base, element, consistency = name, None, None
    rest, _, last = base.rpartition("+")
    if rest and last in CONSISTENCY:
        base, consistency = rest, last
    rest, _, last = base.rpartition("+")
    if rest and last in ELEMENTS:
        base, element = rest, last
    if base not in METHODS:
        raise ConfigError(
            f"there is no method {name!r}: {nearest(name, METHODS, also=combinations())}; "
            "some combine: READING+ELEMENT+CONSISTENCY, as en+asl+scl (`sparselabel methods`)"
        )
    if element is not None and base in OWN_LOSS:
        raise ConfigError(
            f"{name}: {base} does not combine with the element {element}, as {OWN_LOSS[base]}; these do: "
            + ", ".join(with_elements())
        )
    if consistency is not None and base in OWN_PAST:
        raise ConfigError(f"{name}: {base} does not combine with {consistency}, as {OWN_PAST[base]}")
    return Combination(base, element, consistency)


def with_elements() -> list[str]:
    """The methods whose element can be exchanged."""
    return [name for name in METHODS if name not in OWN_LOSS]


def with_consistency() -> list[str]:
    """The methods that consistency can be added to."""
    return [name for name in METHODS if name not in OWN_PAST]


def combinations() -> Iterator[str]:
    """The names of all combinations."""
    for base in METHODS:
        for element in (None, *(ELEMENTS if base not in OWN_LOSS else ())):
            for consistency in (None, *(CONSISTENCY if base not in OWN_PAST else ())):
                if element or consistency:
                    yield Combination(base, element, consistency).name


def factories(name: str) -> list[Callable[..., Method]]:
    """What makes the parts of a method; their signatures are its settings, their docstrings explain it."""
    base, element, consistency = parsed(name)
    found = [METHODS[base]]
    if element is not None:
        found.append(METHODS[element])
    if consistency is not None:
        found.append(CONSISTENCY[consistency])
    return found


def settings_of(name: str) -> dict[str, Any]:
    """A method's settings and their defaults."""
    settings: dict[str, Any] = {}
    for factory in factories(name):
        parameters = inspect.signature(factory).parameters
        settings |= {key: p.default for key, p in parameters.items() if key != "method"}
    if parsed(name).base in reweighted.PRESETS:
        settings["preset"] = None
    return settings


def make_method(name: str, **settings: Any) -> Method:
    """A method by its name, not yet told about any labels."""
    base, element, consistency = parsed(name)
    known = settings_of(name)
    for key in settings:
        if key not in known:
            has = nearest(key, known) if known else "it has none"
            raise ConfigError(f"method {name!r} has no setting {key!r}: {has}")
    settings = _preset(base, settings.pop("preset", None)) | settings
    own = _dealt_out(factories(name), settings)
    method = METHODS[base](**own.pop(0))
    if element is not None:
        exchanged = METHODS[element](**own.pop(0)).element
        if isinstance(exchanged, Focal | Asymmetric):
            exchanged = replace(exchanged, plain_negatives=True)
        terms = {key: part for key, part in method.terms.items() if isinstance(part, Part)}
        method = Method(method.reading, exchanged, terms)
    if consistency is not None:
        method = CONSISTENCY[consistency](method, **own.pop(0))
    return method


def _preset(base: str, preset: str | None) -> dict[str, Any]:
    if preset is None:
        return {}
    presets = reweighted.PRESETS[base]
    if preset not in presets:
        raise ConfigError(f"{base} has no preset {preset!r}: {nearest(preset, presets)}")
    return presets[preset]


def _dealt_out(parts: list[Callable[..., Method]], settings: dict[str, Any]) -> list[dict[str, Any]]:
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
