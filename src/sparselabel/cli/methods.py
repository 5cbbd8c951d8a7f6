"""``sparselabel methods``: the list of methods."""

import inspect

from rich.table import Table

from sparselabel.cli.terminal import names_first, plain_console

PAPERS = (
    "Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label\n"
    "    Annotations (Verelst 2023 for short).\n"
    "PatchML: Patch Based Learning for Multi-label Image Classification.\n"
    "Cole et al. 2021, Multi-Label Learning from Single Positive Labels (Cole 2021 for short).\n"
    "Query2Label: A Simple Transformer Way to Multi-Label Classification, as its reproduction has it.\n"
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
    from sparselabel.losses.registry import METHODS

    console = plain_console()
    if name is None:
        table = names_first("method", "what it does (paper, equation)", "needs")
        for known, method in METHODS.items():
            table.add_row(known, paragraphs_of(method.make)[0], needs_in_words(known))
        console.print(table)
        console.print(how_they_combine())
        console.print(PAPERS)
        console.print("`sparselabel methods NAME` explains one, or a combination.")
        return
    _explain(name)


def how_they_combine() -> str:
    """What can stand together in a name."""
    from sparselabel.losses.registry import (
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
        "They combine: METHOD+ENTRY_LOSS+UNLABELED+CONSISTENCY, any of the three, as en+asl+scl.\n"
        f"  ENTRY_LOSS {', '.join(ENTRY_LOSSES)} instead of cross-entropy, or of splc's focal margin: "
        f"on {', '.join(with_entry_losses())}.\n"
        f"  UNLABELED {', '.join(UNLABELED)}, for images without labels: "
        f"on {', '.join(with_unlabeled())}.\n"
        f"  CONSISTENCY {', '.join(CONSISTENCY)}: on all but {', '.join(alone)}.\n"
        "With --boost 5 the head of any of them is boosted (BoostLU)."
    )


def _explain(name: str) -> None:
    from sparselabel.losses.registry import parse, presets_of, setting_docs, settings_of

    console, methods = plain_console(), parse(name).methods
    console.print(name, style="bold")
    for method in methods:
        for paragraph in paragraphs_of(method.make):
            console.print(paragraph + "\n", soft_wrap=False)
    if len(methods) > 1:
        console.print(SCALE + "\n", soft_wrap=False)
    console.print(f"Needs: {needs_in_words(name) or 'nothing but the labels'}.")
    settings = settings_of(name)
    if settings:
        docs = {key: text for method in methods for key, text in setting_docs(method.make).items()}
        docs["preset"] = "The settings of the method's paper for a data set; what else is given beats them."
        table = Table("flag", "default", "what")
        for setting, default in settings.items():
            flag = f"--settings.{setting.replace('_', '-')}"
            table.add_row(flag, "" if default is None else str(default), docs[setting])
        console.print(table)
    for preset, values in presets_of(name).items():
        console.print(f"preset {preset}: " + ", ".join(f"{key} {value}" for key, value in values.items()))


def needs_in_words(name: str) -> str:
    """The needs of a method as text."""
    from sparselabel.losses.registry import needs_expected_positives, needs_of

    needs = needs_of(name)
    words = {
        "all labels (an oracle)": needs.truth,
        "observed negatives": needs.negatives,
        "cell maps": needs.maps,
        "points or boxes": needs.spatial_labels,
        "two fresh views of every image": needs.views > 1,
        "a pass over the images before epochs": needs.scan,
        "stored features, and a linear head that is new": needs.solves,
        "expected_positives": needs_expected_positives(name),
    }
    return ", ".join(word for word, needed in words.items() if needed)


def paragraphs_of(make: object) -> list[str]:
    """What a docstring says, without its parameters, a paragraph on a line."""
    text = (inspect.getdoc(make) or "").partition("\n\nParameters\n---")[0]
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
