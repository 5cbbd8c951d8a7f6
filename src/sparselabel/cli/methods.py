"""``sparselabel methods``: what methods there are."""

import inspect

from rich.table import Table

from sparselabel.cli.terminal import names_first, plain_console

PAPERS = (
    "Verelst 2023: Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers from\n"
    "    Single-Label Annotations (Verelst 2023 supplement: its supplement).\n"
    "PatchML: PatchML: Patch Based Learning for Multi-label Image Classification.\n"
    "Cole 2021: Cole et al. 2021, Multi-Label Learning from Single Positive Labels.\n"
    "Query2Label: the reproduction of Query2Label and of Cole 2021.\n"
    "Lin et al. 2017, Focal Loss for Dense Object Detection.\n"
    "Ridnik et al. 2021, Asymmetric Loss For Multi-Label Classification.\n"
    "Zhang et al. 2021, Simple and Robust Loss Design for Multi-Label Learning with Missing Labels.\n"
    "Kim et al. 2022, Large Loss Matters in Weakly Supervised Multi-Label Classification.\n"
    "Kim et al. 2023, Bridging the Gap between Model Explanations in Partially Annotated Multi-label\n"
    "    Classification.\n"
    "Ben-Baruch et al. 2022, Multi-label Classification with Partial Annotations using Class-aware\n"
    "    Selective Loss.\n"
    "Sohn et al. 2020, FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence.\n"
    "Zhou et al. 2022, Acknowledging the Unknown for Multi-label Learning with Single Positive Labels.\n"
    "Chen et al. 2024, Boosting Single Positive Multi-label Classification with Generalized Robust Loss."
)
SCALE = (
    "A combination is on the scale of the mean over entries, also where a part alone is a sum. Of a setting "
    "that several parts have, the last part takes it; momentum and box_rule are shared."
)


def methods(name: str | None = None, /) -> None:
    """List the methods with paper, equation and needs, or explain one.

    Example: `sparselabel methods role`

    Parameters
    ----------
    name
        The method to explain.
    """
    from sparselabel.losses.catalog import METHODS

    console = plain_console()
    if name is None:
        table = names_first("method", "what it does (paper, equation)", "needs")
        for known, factory in METHODS.items():
            table.add_row(known, _first_line(factory), needs_of(known))
        console.print(table)
        console.print(how_they_combine())
        console.print(PAPERS)
        console.print("`sparselabel methods NAME` explains one, or a combination.")
        return
    _explain(name)


def how_they_combine() -> str:
    """What can stand together in a name."""
    from sparselabel.losses.catalog import (
        CONSISTENCY,
        ENTRY_LOSSES,
        METHODS,
        UNLABELED,
        with_consistency,
        with_entry_losses,
        with_unlabeled,
    )

    alone = [name for name in METHODS if name not in with_consistency()]
    return (
        "They combine: METHOD+ELEMENT+UNLABELED+CONSISTENCY, any of the three, as en+asl+scl or hill+scl.\n"
        f"  ELEMENT {', '.join(ENTRY_LOSSES)} instead of cross-entropy, or of splc's focal margin: "
        f"on {', '.join(with_entry_losses())}.\n"
        f"  UNLABELED {', '.join(UNLABELED)}, for images without labels: "
        f"on {', '.join(with_unlabeled())}.\n"
        f"  CONSISTENCY {', '.join(CONSISTENCY)}: on all but {', '.join(alone)}.\n"
        "With --boost 5 the head of any of them is boosted (BoostLU)."
    )


def _explain(name: str) -> None:
    from sparselabel.losses.catalog import factories, presets_of, settings_of

    console, parts = plain_console(), factories(name)
    console.print(name, style="bold")
    for part in parts:
        for paragraph in (inspect.getdoc(part) or "").split("\n\n"):
            console.print(" ".join(paragraph.split()) + "\n", soft_wrap=False)
    if len(parts) > 1:
        console.print(SCALE + "\n", soft_wrap=False)
    console.print(f"Needs: {needs_of(name) or 'nothing but the labels'}.")
    settings = settings_of(name)
    if settings:
        table = Table("setting", "flag", "default")
        for setting, default in settings.items():
            table.add_row(
                setting,
                f"--settings.{setting.replace('_', '-')}",
                "" if default is None else str(default),
            )
        console.print(table)
    for preset, values in presets_of(name).items():
        console.print(f"preset {preset}: " + ", ".join(f"{key} {value}" for key, value in values.items()))


def needs_of(name: str) -> str:
    """What a method needs, in words."""
    from sparselabel.losses.catalog import make_method, settings_of

    has = settings_of(name)
    needs = make_method(name, **({"expected_positives": 1.0} if "expected_positives" in has else {})).needs
    words = {
        "all labels (an oracle)": needs.truth,
        "observed negatives": needs.negatives,
        "cell maps": needs.maps,
        "points or boxes": needs.spatial_labels,
        "two fresh views of every image": needs.views > 1,
        "a pass over the images before epochs": needs.scan,
        "expected_positives": "expected_positives" in has,
    }
    return ", ".join(word for word, needed in words.items() if needed)


def _first_line(factory: object) -> str:
    return (inspect.getdoc(factory) or "").splitlines()[0]
