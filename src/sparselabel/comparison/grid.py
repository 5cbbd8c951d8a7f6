"""Grids of settings, named as their flags are: values to vary, or to choose from."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Any, get_type_hints

from sparselabel.config import TrainConfig, from_dict, without_none
from sparselabel.errors import ConfigError, nearest, param

SETTINGS = "settings"
VARY, CHOOSE = "vary", "choose"
EXAMPLES = {VARY: "settings.momentum .6 .8 .9", CHOOSE: "head.lr 1e-2 1e-3"}


@dataclass(frozen=True)
class Varied:
    """A setting by its flag's name without dashes (``settings.momentum``, ``views.smallest-crop``).

    ``methods`` is a pattern of the methods that it is for (``*cl`` in ``*cl:settings.weight``).
    """

    name: str
    values: tuple[str, ...]
    flag: str = VARY
    methods: str = "*"

    @staticmethod
    def of(words: Sequence[object], flag: str = VARY) -> "Varied":
        """From ``NAME V1 V2 ...`` or ``METHODS:NAME V1 V2 ...``; words are texts, or values of TOML."""
        name, *values = [_text(word) for word in words] or [""]
        methods, colon, name = name.rpartition(":")
        name = name.removeprefix("--")
        if not name or not values or (colon and not methods):
            example = param(flag, EXAMPLES[flag])
            raise ConfigError(f"{param(flag)} needs a name and its values, as in {example}")
        texts = [_text(_parsed(value)) for value in values]
        twice = [text for text in texts if texts.count(text) > 1]
        if twice:
            raise ConfigError(f"{param(flag, name)} has a value twice: {twice[0]}")
        return Varied(name, tuple(texts), flag, methods or "*")

    @property
    def keys(self) -> list[str]:
        """Its path in the configuration: the tables, then the field."""
        return self.name.replace("-", "_").split(".")

    @property
    def setting(self) -> str | None:
        """The name of the method's setting, if it is one: not every method has it."""
        return self.keys[1] if self.keys[0] == SETTINGS and len(self.keys) == 2 else None

    def concerns(self, method: str, known: Collection[str]) -> bool:
        """Whether a method with these settings takes it; others run without it."""
        return fnmatchcase(method, self.methods) and (self.setting is None or self.setting in known)

    def config(self, base: TrainConfig, value: str) -> TrainConfig:
        """The configuration with this value."""
        last = self.keys[-1]
        if len(self.keys) == 1 and last not in {field.name for field in fields(TrainConfig)}:
            inside = [name for name in _names(TrainConfig) if name.endswith(f".{last}")]
            whole = inside or [f"{SETTINGS}.{last}, if it is a method's"]
            problem = f"{param(self.flag, self.name)}: there is no such setting"
            raise ConfigError(problem, *(f"write {name}" for name in whole), what=self.flag, value=self.name)
        values = without_none(asdict(base))
        table = values
        for key in self.keys[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{param(self.flag, self.name)}: {key} is not a table of settings")
        table[self.keys[-1]] = _parsed(value)
        try:
            return from_dict(TrainConfig, values, "the configuration")
        except ConfigError as error:
            problem = f"{param(self.flag, self.name)}: {error.problem}"
            raise ConfigError(problem, *error.remedies) from error

    def folder(self, value: str, others: Iterable["Varied"] = ()) -> str:
        """The part of a run's folder name for this value, with the whole name if another one ends alike."""
        short = self.keys[-1]
        alike = any(other.keys[-1] == short and other.name != self.name for other in others)
        name = self.name if alike else short.replace("_", "-")
        return f"{name}={value.replace('/', '_')}"


def choices(words: Sequence[str]) -> list[Varied]:
    """From the words of all ``choose NAME V1 V2 ...`` in one list: a setting's name begins a new one."""
    names = set(_names(TrainConfig))
    groups: list[list[str]] = []
    for word in words:
        name = word.rpartition(":")[2].removeprefix("--").replace("-", "_")
        if name in names or name.startswith(f"{SETTINGS}."):
            groups.append([word])
        elif groups:
            groups[-1].append(word)
        else:
            known = [name.replace("_", "-") for name in names]
            raise ConfigError(f"{param(CHOOSE, word)}: there is no such setting: {nearest(word, known)}")
    return [Varied.of(group, CHOOSE) for group in groups]


def _names(kind: type[Any], table: str = "") -> Iterable[str]:
    """All settings of a configuration, nested ones as ``head.epochs``."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint) and isinstance(hint, type):
            yield from _names(hint, f"{table}{field.name}.")
        else:
            yield table + field.name


def _parsed(word: str) -> Any:
    """A word of the command line read as TOML: a number, true or false, or a text."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _text(value: Any) -> str:
    """A value as it is written in names and tables: 1.0 and 1 are the same."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
