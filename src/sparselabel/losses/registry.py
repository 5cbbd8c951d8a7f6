"""Methods by name, their settings, and how names combine: METHOD[+ENTRY_LOSS][+UNLABELED][+CONSISTENCY].

A method is a function that makes a ``ComposedLoss``, registered under its name where it is written:

    @register("wan")
    def wan(negative_weight: float | None = None, ...) -> ComposedLoss: ...

Its parameters are its settings; its docstring explains the method and its settings. Its needs are known
before it is made. In a combination, as en+asl+scl, the entry loss of focal, asl or hill takes the place of
cross-entropy, or of splc's focal margin; terms for images without labels (cluster, fixmatch) and consistency
(cl, scl) are added to the label loss. A combination is on the scale of the mean over entries (asl, hill, splc
and csl-i alone are sums), so that the weights of terms mean the same everywhere.

An observed negative is −log(1−f) at full weight in every method. focal and asl alone (and with consistency
only) and the methods of PatchML are the exceptions: they have an exponent for negatives too. As an entry
loss, as in an+asl, focal and asl follow the rule and weigh unknown labels only. Oracles and iu have no
unknown labels: there an entry loss is the loss of all negatives, and bce+asl is asl with all labels.
"""

import inspect
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from sparselabel.errors import ConfigError, DataWarning, command, nearest, param
from sparselabel.losses.base import ComposedLoss, LabelLoss, LossPart, Needs, TargetLoss
from sparselabel.losses.setting_checks import COUNTS_ITSELF

Settings = Mapping[str, Any]
Factory = TypeVar("Factory", bound=Callable[..., "ComposedLoss | LabelLoss"])
Presets = Mapping[str, Mapping[str, Any]]

GROUP = "sparselabel.losses"
"""The entry points of packages that bring losses of their own."""
OWN_ENTRY_LOSS = "it brings an entry loss of its own"
SHARED = ("momentum", "box_rule")  # settings that all parts take; others go to the last part that has them
SCALE = "scale"  # no setting of a combination, which is on the scale of the mean
ORDER = ("METHOD", "ENTRY_LOSS", "UNLABELED", "CONSISTENCY")
NOTHING = Needs()
BOOST = ("boostlu", "boost")  # names that users may try as a part of a method's name


@dataclass(frozen=True)
class Method:
    """The description of a method, or of a term added to one, known without making it.

    ``needs`` is a function of its settings if it depends on them; that of a term also gets the needs of the
    method. ``keeps_entry_loss`` and ``keeps_past`` say why its entry loss cannot be exchanged and why
    consistency cannot be added; empty if they can. ``leaves_out``: it can leave unknown labels out, and has
    no use for images without labels. ``all_known``: its negatives are all known. ``entry_loss_settings`` are
    dropped with its entry loss when another replaces it. ``like`` makes another method, which documents the
    settings that this one does not.
    """

    name: str
    make: Callable[..., Any]
    needs: Needs | Callable[..., Needs] = NOTHING
    presets: Presets = field(default_factory=dict)
    keeps_entry_loss: str = ""
    keeps_past: str = ""
    leaves_out: bool = False
    all_known: bool = False
    entry_loss_settings: tuple[str, ...] = ()
    like: Callable[..., Any] | None = None

    def needs_with(self, settings: Settings, base: Needs | None = None) -> Needs:
        """Its needs with these settings, combined with the needs ``base`` of the method it is added to."""
        if isinstance(self.needs, Needs):
            return self.needs
        values = {key: p.default for key, p in inspect.signature(self.make).parameters.items()}
        return self.needs(**(values | {"base": base} | dict(settings)))


METHODS: dict[str, Method] = {}
ENTRY_LOSSES: dict[str, Method] = {}
UNLABELED: dict[str, Method] = {}
CONSISTENCY: dict[str, Method] = {}


def register(
    name: str, kind: Literal["method", "entry loss", "unlabeled", "consistency"] = "method", **known: Any
) -> Callable[[Factory], Factory]:
    """Decorator: register a function that makes a method, or a term that is added to one, under a name.

    ``make`` returns a label loss, or a ``ComposedLoss`` where there are further terms. Its parameters are the
    method's settings, typed and with defaults. ``known`` are the fields of ``Method``; a method that is not a
    ``TargetLoss`` needs none. An ``entry loss`` is a method too, whose entry loss others take. A name that
    another module has registered is refused; the same module may do it again, as a notebook's cell does.
    """
    if not isinstance(name, str):
        raise ConfigError('register takes a name, as @register("my-loss")', what="name", value=name)
    if not re.fullmatch(r"[a-z0-9-]+(\+apl)?", name):
        raise ConfigError(f"a method's name has small letters, digits and dashes, not {name!r}", value=name)

    def registered(make: Factory) -> Factory:
        method = Method(name, make, **known)
        for key, parameter in inspect.signature(make).parameters.items():
            if key != "method" and parameter.default is inspect.Parameter.empty:
                raise ConfigError(f"setting {key!r} of {name} has no default", "give it one", what=key)
            if key != "method" and parameter.annotation is inspect.Parameter.empty:
                problem = f"setting {key!r} of {name} has no type"
                raise ConfigError(problem, f"annotate it, as {key}: float = 0.5", what=key)
        for table in (METHODS, ENTRY_LOSSES, UNLABELED, CONSISTENCY):
            if name in table and table[name].make.__module__ != make.__module__:
                problem = f"{name!r} is the name of a loss of {table[name].make.__module__} already"
                raise ConfigError(problem, "choose another", what="name", value=name)
        if kind in ("method", "entry loss"):
            METHODS[name] = method
        if kind != "method":
            added = {"entry loss": ENTRY_LOSSES, "unlabeled": UNLABELED, "consistency": CONSISTENCY}
            added[kind][name] = method
        return make

    return registered


def setting_docs(make: Callable[..., Any]) -> dict[str, str]:
    """The documentation of each setting, from the docstring of the function or of the method it is like."""
    tables = (METHODS, ENTRY_LOSSES, UNLABELED, CONSISTENCY)
    like = next((known.like for table in tables for known in table.values() if known.make is make), None)
    body = (inspect.getdoc(make) or "").partition("----------\n")[2]
    sections = re.findall(r"^(\w+)\n((?:    .*\n?)+)", body, flags=re.MULTILINE)
    own = {name: " ".join(text.split()) for name, text in sections}
    known = (setting_docs(like) if like is not None else {}) | own
    return {name: known[name] for name in inspect.signature(make).parameters if name in known}


def load_plugins() -> None:
    """Import the modules that other packages name in the entry points of ``GROUP``."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            warnings.warn(
                DataWarning(
                    f"the losses of {entry.value} cannot be used ({type(error).__name__}: {error})",
                    "mend or remove the package that has them",
                ),
                stacklevel=2,
            )


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

    @property
    def methods(self) -> list[Method]:
        """The registered parts, in their order."""
        tables = (METHODS, ENTRY_LOSSES, UNLABELED, CONSISTENCY)
        return [table[part] for table, part in zip(tables, self, strict=True) if part is not None]


def parse(name: str) -> Combination:
    """The parts of a name; raises for an impossible combination, with the reason."""
    base, added = name, []
    for table in (CONSISTENCY, UNLABELED, ENTRY_LOSSES):
        rest, _, last = base.rpartition("+")
        matched = bool(rest) and last in table
        added.append(last if matched else None)
        base = rest if matched else base
    if base not in METHODS:
        raise _no_method(name)
    consistency, unlabeled, entry_loss = added
    method = METHODS[base]
    if entry_loss is not None and method.keeps_entry_loss:
        raise ConfigError(
            f"{name}: {base} does not combine with the entry loss {entry_loss}, as "
            f"{method.keeps_entry_loss}; these do: {', '.join(with_entry_losses())}",
            what="method",
            value=name,
        )
    if unlabeled is not None and not method.leaves_out:
        raise ConfigError(
            f"{name}: {base} does not combine with {unlabeled}, which is for images and labels that a "
            f"method leaves out, as {', '.join(with_unlabeled())} can",
            what="method",
            value=name,
        )
    if consistency is not None and method.keeps_past:
        raise ConfigError(
            f"{name}: {base} does not combine with {consistency}, as {method.keeps_past}",
            what="method",
            value=name,
        )
    return Combination(base, entry_loss, unlabeled, consistency)


def _no_method(name: str) -> ConfigError:
    methods = command("methods")
    if name.lower() == "auto":
        return ConfigError(
            "auto is what `train` chooses, and no method: soft or gr on stored features, en+scl where a "
            "network with cell logits is fine-tuned, else pu",
            "name one of these",
            what="method",
            value=name,
        )
    if reason := _why_not(name):
        return ConfigError(f"{name}: {reason} ({methods} says what combines)", what="method", value=name)
    return ConfigError(
        f"there is no method {name!r}: {nearest(name, METHODS, also=combinations())}; some combine: "
        f"METHOD+ENTRY_LOSS+CONSISTENCY, as en+asl+scl, or METHOD+UNLABELED, as patchml+cluster ({methods})",
        what="method",
        value=name,
    )


def _why_not(name: str) -> str | None:
    """Why parts that are known cannot stand together in a name; None where a part is unknown."""
    alone = {
        "METHOD": "each say what an unknown label counts as",
        "ENTRY_LOSS": "are each the loss of one entry",
        "UNLABELED": "each put images without labels to use",
        "CONSISTENCY": "each hold the model to what it said before",
    }
    # focal, asl, hill and fixmatch are methods on their own too.
    kinds = (
        dict.fromkeys(METHODS, ORDER[0])
        | dict.fromkeys(ENTRY_LOSSES, ORDER[1])
        | dict.fromkeys(UNLABELED, ORDER[2])
        | dict.fromkeys(CONSISTENCY, ORDER[3])
    )
    parts = re.split(r"\+(?!apl)", name)  # em+apl is one part
    if not {*parts} <= {*kinds, *BOOST}:
        return None
    if not {*parts}.isdisjoint(BOOST):
        rest = "+".join(part for part in parts if part not in BOOST) or "an"
        parse(rest)  # refuses it with its own reason
        boosted = f"give {param('method', rest)} and {param('boost', 5)}"
        return f"BoostLU is a part of the head, not of a method's name: {boosted}"
    for kind, reason in alone.items():
        same = [part for part in parts if kinds[part] == kind]
        if len(same) > 1:
            return f"{' and '.join(same)} {reason}, and a method has one: take one of them"
    ordered = "+".join(sorted(parts, key=lambda part: ORDER.index(kinds[part])))
    if ordered == name:
        base = "iu" if parts[0] in UNLABELED else "en"
        return f"{name} is added to a method: name that first, as in {base}+{name}"
    parse(ordered)
    return f"the parts of a name stand in the order {'+'.join(ORDER)}: write {ordered}"


def with_entry_losses() -> list[str]:
    """The methods whose entry loss can be exchanged."""
    return [name for name, method in METHODS.items() if not method.keeps_entry_loss]


def with_unlabeled() -> list[str]:
    """The methods to which something for images without labels can be added."""
    return [name for name, method in METHODS.items() if method.leaves_out]


def with_consistency() -> list[str]:
    """The methods that consistency can be added to."""
    return [name for name, method in METHODS.items() if not method.keeps_past]


def combinations() -> Iterator[str]:
    """The names of all combinations."""
    for base, method in METHODS.items():
        entry_losses = (None, *(() if method.keeps_entry_loss else ENTRY_LOSSES))
        unlabeled = (None, *(UNLABELED if method.leaves_out else ()))
        consistency = (None, *(() if method.keeps_past else CONSISTENCY))
        for added in itertools.product(entry_losses, unlabeled, consistency):
            if any(added):
                yield Combination(base, *added).name


def settings_of(name: str) -> dict[str, Any]:
    """A method's settings and their defaults."""
    combination = parse(name)
    settings: dict[str, Any] = {}
    for method in combination.methods:
        gone = {"method"}
        if combination.entry_loss is not None and method.name == combination.base:
            gone |= {*method.entry_loss_settings}
        parameters = inspect.signature(method.make).parameters
        settings |= {key: p.default for key, p in parameters.items() if key not in gone}
    if len(combination.methods) > 1:
        settings.pop(SCALE, None)
    if presets_of(name):
        settings["preset"] = None
    return settings


def needs_expected_positives(name: str) -> bool:
    """Whether a method needs K: one that is not given is counted or estimated."""
    return "expected_positives" in settings_of(name) and parse(name).base not in COUNTS_ITSELF


def presets_of(name: str) -> dict[str, dict[str, Any]]:
    """The settings that a method's paper uses, by data set; for a combination those of its base."""
    combination = parse(name)
    alone = len(combination.methods) == 1
    return {
        preset: {key: value for key, value in values.items() if alone or key != SCALE}
        for preset, values in METHODS[combination.base].presets.items()
    }


def typed_settings(name: str, settings: Settings) -> dict[str, Any]:
    """A method's settings, converted to their types; raises for one that it does not have."""
    known = settings_of(name)
    for key in settings:
        if key not in known:
            raise _no_setting(name, key, known)
    types = {key: hint for method in parse(name).methods for key, hint in _types(method.make).items()}
    return {key: _typed(key, types.get(key, str), value) for key, value in settings.items()}


def needs_of(name: str, settings: Settings | None = None) -> Needs:
    """The needs of a method with these settings, without making it."""
    needs = Needs()
    for method, own in _own_settings(name, settings or {}):
        needs = needs | method.needs_with(own, needs)
    return needs


def make_method(name: str, **settings: Any) -> ComposedLoss:
    """A method by its name, not yet prepared."""
    combination = parse(name)
    (base, own), *added = _own_settings(name, settings)
    method = _composed(base.name, base.make(**own))
    if combination.entry_loss is not None:
        (entry_loss, own), *added = added
        method = _exchanged(method, entry_loss.make(**own), plain_negatives=not base.all_known)
    for term, own in added:
        method = term.make(method, **own)
    return method


def _composed(name: str, made: object) -> ComposedLoss:
    if isinstance(made, ComposedLoss):
        return made
    if not isinstance(made, LabelLoss):
        problem = f"what makes {name} must return a LabelLoss, not {type(made).__name__}"
        raise ConfigError(problem, what="method", value=type(made).__name__, allowed="LabelLoss")
    return ComposedLoss(made)


def _exchanged(method: ComposedLoss, other: ComposedLoss, plain_negatives: bool) -> ComposedLoss:
    """A method with the entry loss of another one."""
    own, new = method.label_loss, other.label_loss
    if not isinstance(own, TargetLoss) or not isinstance(new, TargetLoss):
        raise TypeError("only a TargetLoss has an entry loss to exchange")
    entry_loss = replace(new.entry_loss, plain_negatives=plain_negatives)  # type: ignore[type-var]
    terms = {key: part for key, part in method.terms.items() if isinstance(part, LossPart)}
    return ComposedLoss(TargetLoss(own.rule, entry_loss), terms)


def _own_settings(name: str, settings: Settings) -> list[tuple[Method, dict[str, Any]]]:
    """Every part of a method with its checked settings, from the preset if none is given.

    If several parts have a setting, the last one gets it, unless they share it: ``margin`` of splc+hill is
    hill's, which replaces splc's entry loss.
    """
    given = typed_settings(name, settings)
    given = _preset(name, given.pop("preset", None)) | given
    taken: set[str] = set()
    owned = []
    for method in reversed(parse(name).methods):
        own = {key: given[key] for key in _types(method.make) if key in given and key not in taken}
        taken |= own.keys() - {*SHARED}
        owned.append((method, own))
    return owned[::-1]


def _no_setting(name: str, key: str, known: Settings) -> ConfigError:
    import difflib

    problem = f"method {name!r} has no setting {key!r}"
    what = f"settings.{key}"
    near = difflib.get_close_matches(key, known, n=1)
    if near and key != "preset":
        own = ", ".join(sorted(known))
        return ConfigError(
            f"{problem}; its settings: {own}",
            f"did you mean {param(f'settings.{near[0]}')}?",
            what=what,
            value=key,
            allowed=sorted(known),
        )
    if key == "preset":
        having = ", ".join(method.name for method in METHODS.values() if method.presets)
        problem += f": presets are for {having}, and combinations that begin with one"
    elif known:
        problem += f": {nearest(key, known)}"
    return ConfigError(problem, f"leave {param(what)} out", what=what, value=key, allowed=sorted(known))


def _preset(name: str, preset: str | None) -> dict[str, Any]:
    if preset is None:
        return {}
    presets = presets_of(name)
    if preset not in presets:
        raise ConfigError(
            f"{name} has no preset {preset!r}: {nearest(preset, presets)}",
            what="settings.preset",
            value=preset,
        )
    return presets[preset]


@cache
def _types(make: Callable[..., Any]) -> dict[str, Any]:
    """The settings of a part and their types."""
    hints = get_type_hints(make)
    return {key: hints[key] for key in inspect.signature(make).parameters if key != "method"}


def _typed(name: str, hint: Any, value: Any) -> Any:
    """A setting converted to its type, if that is one of a configuration's; the method checks others."""
    kinds = {kind for kind in _members(hint) if kind is not NoneType}
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if words and value is not None and value not in words:
        raise ConfigError(
            f"{param(f'settings.{name}')} cannot be {value!r}: {nearest(str(value), words)}",
            what=f"settings.{name}",
            value=value,
            allowed=words,
        )
    if value is None or not kinds <= {bool, int, float, str}:
        return value
    if bool in kinds and str(value).lower() in ("true", "false"):  # a flag gives a string
        return str(value).lower() == "true"
    if float in kinds and type(value) is int:
        return float(value)
    if int in kinds and float not in kinds and type(value) is float and value.is_integer():
        return int(value)
    if type(value) not in kinds:
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
        allowed = " or ".join(names[kind] for kind in names if kind in kinds)
        raise ConfigError(
            f"{param(f'settings.{name}')} must be {allowed}, not {value!r}",
            what=f"settings.{name}",
            value=value,
            allowed=allowed,
        )
    return value


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
