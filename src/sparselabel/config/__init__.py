"""Everything that can be set for preparing data and for training, as frozen dataclasses.

The command makes its flags from them (nested fields as ``head.epochs``), a TOML file fills them
(``[head] epochs = 5``); a flag beats the file, the file beats the default. A run keeps its resolved copy.
"""

from sparselabel.config.preparation import (
    ALL,
    PAPER_SEED,
    SUBSET_SEED,
    Annotation,
    Cost,
    Kind,
    Preparation,
    Sparsify,
)
from sparselabel.config.recipe import Comparison, Measured, Recipe, take_recipe
from sparselabel.config.toml import load, save
from sparselabel.config.training import (
    AUTO,
    CORES,
    TEXT,
    Engine,
    FinetunePhase,
    Handling,
    HeadPhase,
    Machine,
    Phase,
    Query,
    Setting,
    ShardFormat,
    TrainConfig,
    Views,
    configure,
    nested_remedies,
    without_none,
)
from sparselabel.schema import from_dict

__all__ = [
    "ALL",
    "AUTO",
    "CORES",
    "PAPER_SEED",
    "SUBSET_SEED",
    "TEXT",
    "Annotation",
    "Comparison",
    "Cost",
    "Engine",
    "FinetunePhase",
    "Handling",
    "HeadPhase",
    "Kind",
    "Machine",
    "Measured",
    "Phase",
    "Preparation",
    "Query",
    "Recipe",
    "Setting",
    "ShardFormat",
    "Sparsify",
    "TrainConfig",
    "Views",
    "configure",
    "from_dict",
    "load",
    "nested_remedies",
    "save",
    "take_recipe",
    "without_none",
]
