from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

from sparselabel.comparison.from_recipe import FromRecipe, differences_from_recipe, notes_on
from sparselabel.config import Preparation
from sparselabel.recipes import load

THEIRS, RECIPE = load("scl/voc")


def prepared(classes: int = 20, test: int = 5823, **how: Any) -> Any:
    made = {"preparation": asdict(Preparation(**{"sparsify": "single-positive", **how}))}
    splits = {"train": range(3), "test": range(test)}
    return SimpleNamespace(name="mine", classes=("x",) * classes, splits=splits, made=made)


def test_the_recipes_own_data_and_settings_need_no_note() -> None:
    assert differences_from_recipe(RECIPE, THEIRS, prepared(), replace(THEIRS, method="an", seed=4)) == ""


def test_what_differs_is_named() -> None:
    ours = replace(THEIRS, head=replace(THEIRS.head, epochs=2))
    assert differences_from_recipe(RECIPE, THEIRS, prepared(12, 50, keep_train=0.5), ours) == (
        "published numbers are of other conditions (Verelst 2023 table 1, VOC12, ImageNet start). "
        "Here: data mine with 12 classes and 50 test images (the paper's has 20 and 5,823), "
        "prepared with keep-train 0.5, head.epochs 2 (not 5)"
    )


def test_objects365_is_read_like_coco_but_is_not_coco() -> None:
    theirs, recipe = load("patchml/objects365")
    how = {"sparsify": "budget", "annotate": "SP", "cost": "flat-objects365"}
    assert (
        differences_from_recipe(recipe, theirs, prepared(365, 80_000, budget=0.0100503, **how), theirs) == ""
    )
    said = differences_from_recipe(recipe, theirs, prepared(80, 40_137, budget=0.0100503, **how), theirs)
    assert "(the paper's has 365 and 80,000)" in said


def test_data_that_measures_nothing() -> None:
    data = prepared()
    del data.splits["test"]
    assert "neither a validation nor a test split" in notes_on(data, THEIRS, None)[0]
    assert len(notes_on(data, THEIRS, FromRecipe(RECIPE, THEIRS))) == 2
