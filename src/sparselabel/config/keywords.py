"""Settings as keywords of a Python function: those of training, of the machine, of handling, of a method."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from sparselabel.config.training import Handling, Machine, TrainConfig
from sparselabel.errors import param
from sparselabel.schema import from_dict

SETTINGS = "settings"


def configure(
    keywords: Mapping[str, Any], config: TrainConfig | None = None
) -> tuple[TrainConfig, Machine, Handling]:
    """The three configurations that keywords make, training's on top of ``config``.

    A nested one is given whole (``head=HeadPhase(epochs=5)``), in part (``head={"epochs": 5}``) or by its
    dotted name. A keyword that no configuration has is a setting of the method.
    """
    tables: dict[type[Any], dict[str, Any]] = {
        TrainConfig: without_none(asdict(config or TrainConfig())),
        Machine: {},
        Handling: {},
    }
    for keyword, value in keywords.items():
        name, _, rest = keyword.partition(".")
        kind = next((kind for kind in tables if name in {field.name for field in fields(kind)}), None)
        if kind is None:
            tables[TrainConfig].setdefault(SETTINGS, {})[keyword] = value
        else:
            _put(tables[kind], [name, *rest.split(".")] if rest else [name], value)
    train, machine, handling = (
        from_dict(kind, without_none(values), "the configuration") for kind, values in tables.items()
    )
    return train, machine, handling


def place_of(name: str, value: object) -> list[str]:
    """Remedies for a keyword that belongs into others, as ``epochs`` into ``head`` and ``finetune``."""
    inner = {one.name: getattr(TrainConfig(), one.name) for one in fields(TrainConfig)}
    homes = [one for one, table in inner.items() if is_dataclass(table) and hasattr(table, name)]
    return [f"give {param(f'{home}.{name}', value)}" for home in homes]


def _put(table: dict[str, Any], keys: list[str], value: Any) -> None:
    *tables, last = keys
    for key in tables:
        table = table.setdefault(key, {})
    if is_dataclass(value) and not isinstance(value, type):
        table[last] = asdict(value)
    elif isinstance(value, Mapping):
        table[last] = {**table.get(last, {}), **value}
    else:
        table[last] = value


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """Nested settings without those that are not given."""
    return {
        key: without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }
