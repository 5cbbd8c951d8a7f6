"""Check values from files against types: dataclasses for configurations, TypedDicts for JSON.

A dataclass is made of a table, and an unknown key is an error that names the nearest. A TypedDict stays the
dictionary it is, and may have keys of other versions.
"""

import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from sparselabel.errors import ConfigError, nearest, shown

Config = TypeVar("Config")

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}
LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Range:
    """The least and the largest value of a number, as in ``Annotated[float, Range(0, 1)]``; never NaN."""

    low: float
    high: float


Finite = Annotated[float, Range(-sys.float_info.max, sys.float_info.max)]
Share = Annotated[float, Range(0, 1)]
Count = Annotated[int, Range(0, LARGEST)]


def checked(hint: Any, value: Any, key: str, where: str) -> Any:
    """A value of the type that is asked for; a whole number will do where any number does."""
    origin = get_origin(hint)
    if origin in CHECKS or hint in (Any, object):
        return value if origin is None else CHECKS[origin](hint, value, key, where)
    if is_dataclass(hint) or is_typeddict(hint):
        if not isinstance(value, dict):
            raise _unfit(where, key, _a_table(key), value)
        table = f"{where}[{key}]" if key else where
        make: Callable[[Any, dict[str, Any], str], Any] = _record if is_typeddict(hint) else from_dict
        return make(hint, value, table)
    kinds = [*get_args(hint)] if origin in (Union, UnionType) else [hint]
    if value is None and NoneType in kinds:
        return value
    kinds = [kind for kind in kinds if kind is not NoneType]
    if kinds[0] not in WORDS:  # a literal, a range, a list, a table, ... or None
        return checked(kinds[0], value, key, where)
    return _scalar(kinds, value, key, where)


def _scalar(kinds: list[Any], value: Any, key: str, where: str) -> Any:
    if float in kinds and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    # Not isinstance: true is an int in Python, but never a number of epochs.
    if type(value) not in kinds or (type(value) is int and abs(value) > LARGEST):
        raise _unfit(where, key, " or ".join(WORDS[kind] for kind in kinds), value)
    return value


def from_dict(kind: type[Config], values: dict[str, Any], where: str) -> Config:
    """A dataclass from nested dictionaries; an unknown key is an error that names the nearest."""
    hints = _hints(kind)  # type: ignore[arg-type]  # mypy does not take a type variable for hashable
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for key in values:
        if key not in names:
            raise ConfigError(
                f"{where} has an unknown key {key!r}", nearest(key, names), what=key, where=where
            )
    for f in fields(kind):  # type: ignore[arg-type]
        if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise _lacks(where, f.name)
    return kind(**{key: checked(hints[key], value, key, where) for key, value in values.items()})


def _record(kind: Any, values: dict[str, Any], where: str) -> dict[str, Any]:
    """A dictionary with the keys of a TypedDict; other keys are ignored."""
    for key in kind.__required_keys__:
        if key not in values:
            raise _lacks(where, key)
    hints = _hints(kind)
    return values | {
        key: checked(hints[key], value, key, where) for key, value in values.items() if key in hints
    }


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of fields: slow to find, and the same for all runs of a comparison."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _bare(hint) for name, hint in hints.items()}


def _bare(hint: Any) -> Any:
    """A type without ``NotRequired``."""
    return get_args(hint)[0] if get_origin(hint) in (NotRequired, Required) else hint


def _lacks(where: str, key: str) -> ConfigError:
    return ConfigError(f"{where} has no {key!r}: it must be given", what=key, where=where)


def _unfit(where: str, key: str, wanted: str, value: Any) -> ConfigError:
    of = f"{where}: {key}" if key else where
    problem = f"{of} must be {wanted}, not {shown(value)}"
    return ConfigError(problem, what=key, where=where, value=value, allowed=wanted)


def _a_table(key: str) -> str:
    return f"a table ([{key}])" if key else "an object of JSON ({...})"


def _literal(hint: Any, value: Any, key: str, where: str) -> Any:
    words = get_args(hint)
    if not isinstance(value, str | int | float) or value not in words:
        problem = f"{where}: {key} cannot be {shown(value)}"
        raise ConfigError(problem, nearest(shown(value), words), what=key, where=where, allowed=words)
    return value


def _within(hint: Any, value: Any, key: str, where: str) -> Any:
    kind, allowed = get_args(hint)
    value = checked(kind, value, key, where)
    if not allowed.low <= value <= allowed.high:
        finite = allowed.high == sys.float_info.max
        raise _unfit(where, key, "finite" if finite else f"in {allowed.low:g}..{allowed.high:g}", value)
    return value


def _list(hint: Any, value: Any, key: str, where: str) -> Any:
    """A list (list[X], or tuple[X, ...] of dataclasses), every item checked."""
    if not isinstance(value, list):
        raise _unfit(where, key, "a list ([...])", value)
    item, *others = get_args(hint)
    if get_origin(hint) is list:
        return [checked(item, one, f"{key} {number}", where) for number, one in enumerate(value, start=1)]
    if others and others != [...]:
        kinds = (item, *others)
        if len(value) != len(kinds):
            raise _unfit(where, key, f"a list of {len(kinds)}", value)
        return tuple(checked(kind, one, key, where) for kind, one in zip(kinds, value, strict=True))
    return tuple(checked(item, one, f"{key} {number}", where) for number, one in enumerate(value, start=1))


def _table(hint: Any, value: Any, key: str, where: str) -> Any:
    """A table with keys of its own (dict[str, X])."""
    if not isinstance(value, dict):
        raise _unfit(where, key, _a_table(key), value)
    item = get_args(hint)[1]
    inner = f"{where}[{key}]" if key else where
    return {name: checked(item, one, name, inner) for name, one in value.items()}


CHECKS: dict[Any, Callable[[Any, Any, str, str], Any]] = {
    list: _list, tuple: _list, dict: _table, Literal: _literal, Annotated: _within,
}  # fmt: skip
