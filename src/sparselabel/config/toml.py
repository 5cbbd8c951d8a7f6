"""Configurations as TOML: written, read back, and checked on the way in."""

import json
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sparselabel.errors import ConfigError, nearest
from sparselabel.files import atomic_write

Config = TypeVar("Config")

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


def save(config: Any, path: Path) -> None:
    """Write a resolved configuration as TOML, atomically."""
    with atomic_write(path) as partial:
        partial.write_text("\n".join(_lines(asdict(config))) + "\n", encoding="utf-8")


def load(kind: type[Config], path: Path) -> Config:
    """Read a configuration back."""
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a configuration: {error}", what=path) from error
    return from_dict(kind, values, path.name)


def from_dict(kind: type[Config], values: dict[str, Any], where: str) -> Config:
    """A configuration from nested dictionaries; an unknown key is an error that names the nearest."""
    hints = _hints(kind)  # type: ignore[arg-type]  # mypy does not take a type variable for hashable
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for key in values:
        if key not in names:
            raise ConfigError(f"{where} has an unknown key {key!r}", nearest(key, names))
    for f in fields(kind):  # type: ignore[arg-type]
        if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{where} has no {f.name!r}: it must be given", what=f.name, where=where)
    return kind(**{key: _checked(hints[key], value, key, where) for key, value in values.items()})


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of a configuration's fields: slow to find, and the same for all runs of a comparison."""
    return get_type_hints(kind)


def _checked(hint: Any, value: Any, key: str, where: str) -> Any:
    """A value of the type its field asks for; a whole number will do where any number does."""
    if get_origin(hint) in (tuple, dict):
        return _checked_many(hint, value, key, where)
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise _unfit(where, key, f"a table ([{key}])", value)
        return from_dict(hint, value, f"{where}[{key}]")  # type: ignore[arg-type]
    # Optional fields are one or more types, or None, which is not written.
    union = () if get_origin(hint) is Literal else get_args(hint)
    kinds = [part for part in union or (hint,) if part is not NoneType]
    if get_origin(kinds[0]) is Literal:
        words = get_args(kinds[0])
        if value not in words:
            raise ConfigError(f"{where}: {key} cannot be {value!r}", nearest(str(value), words))
        return value
    if float in kinds and type(value) is int:
        return float(value)
    if type(value) not in kinds:  # not isinstance: true is an int in Python, but never a number of epochs
        wanted = " or ".join(WORDS[kind] for kind in kinds)
        raise _unfit(where, key, wanted, value)
    return value


def _unfit(where: str, key: str, wanted: str, value: Any) -> ConfigError:
    return ConfigError(f"{where}: {key} must be {wanted}, not {value!r}")


def _checked_many(hint: Any, value: Any, key: str, where: str) -> Any:
    """A list (tuple[X, ...]) or a table with keys of its own (dict[str, X]), every item checked."""
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise _unfit(where, key, "a list ([...])", value)
        item = get_args(hint)[0]
        return tuple(_checked(item, one, f"{key} {place}", where) for place, one in enumerate(value, start=1))
    if not isinstance(value, dict):
        raise _unfit(where, key, f"a table ([{key}])", value)
    item = get_args(hint)[1]
    return {name: _checked(item, one, name, f"{where}[{key}]") for name, one in value.items()}


def _lines(values: dict[str, Any], table: str = "") -> list[str]:
    """TOML of nested dictionaries; None is left out, as TOML has no word for it."""
    plain = [f"{key} = {_toml(value)}" for key, value in values.items() if not isinstance(value, dict | None)]
    lines = ([f"\n[{table}]"] if table and plain else []) + plain
    for key, value in values.items():
        if isinstance(value, dict):
            lines += _lines(value, f"{table}.{key}" if table else key)
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # JSON's words for infinity and not-a-number are not TOML's
    # JSON's strings, whole numbers and booleans are TOML's as well, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
