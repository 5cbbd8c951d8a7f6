"""One setting of a configuration, named as its flag is, with several values."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparselabel.config import TrainConfig, from_dict
from sparselabel.errors import ConfigError

SETTINGS = "settings"


@dataclass(frozen=True)
class Varied:
    """A setting by its flag's name without dashes (``settings.momentum``, ``views.smallest-crop``)."""

    name: str
    values: tuple[str, ...]

    @staticmethod
    def of(words: Sequence[str]) -> "Varied":
        """From ``--vary NAME V1 V2 ...``."""
        name, *values = words or [""]
        name = name.removeprefix("--")
        if not name or not values:
            raise ConfigError("--vary needs a name and its values, as in `--vary settings.momentum .6 .8 .9`")
        texts = [_text(_parsed(value)) for value in values]
        twice = [text for text in texts if texts.count(text) > 1]
        if twice:
            raise ConfigError(f"--vary {name} has a value twice: {twice[0]}")
        return Varied(name, tuple(texts))

    @property
    def keys(self) -> list[str]:
        """Where it is in the configuration: tables, and last the field."""
        return self.name.replace("-", "_").split(".")

    @property
    def setting(self) -> str | None:
        """The setting of a method that it is, if it is one: not every method has it."""
        return self.keys[1] if self.keys[0] == SETTINGS and len(self.keys) == 2 else None

    def config(self, base: TrainConfig, value: str) -> TrainConfig:
        """The configuration with this value."""
        values = _without_none(asdict(base))
        table = values
        for key in self.keys[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise ConfigError(f"--vary {self.name}: {key} is not a table of settings")
        table[self.keys[-1]] = _parsed(value)
        return from_dict(TrainConfig, values, "--vary")

    def folder(self, value: str) -> str:
        """What a run with this value is called, in part."""
        return f"{self.keys[-1].replace('_', '-')}={value.replace('/', '_')}"


def _parsed(word: str) -> Any:
    """A word of the command line as TOML would have it: a number, true or false, or a text."""
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


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
