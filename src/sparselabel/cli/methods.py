"""``sparselabel methods``: what methods there are."""

import inspect

from rich.table import Table

from sparselabel.cli.terminal import names_first, plain_console

PAPERS = (
    "P1: Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers from\n"
    "    Single-Label Annotations (P1s: its supplement).\n"
    "P3: Cole et al. 2021, Multi-Label Learning from Single Positive Labels."
)


def methods(name: str | None = None, /) -> None:
    """List the methods with paper, equation and needs, or explain one.

    Example: `sparselabel methods role`

    Parameters
    ----------
    name
        The method to explain.
    """
    from sparselabel.method.catalog import METHODS, settings_of

    console = plain_console()
    if name is None:
        table = names_first("method", "what it does (paper, equation)", "needs")
        for known, factory in METHODS.items():
            table.add_row(known, _first_line(factory), needs_of(known))
        console.print(table)
        console.print(PAPERS)
        console.print("`sparselabel methods NAME` explains one.")
        return
    settings_of(name)
    console.print(name, style="bold")
    for paragraph in (inspect.getdoc(METHODS[name]) or "").split("\n\n"):
        console.print(" ".join(paragraph.split()) + "\n", soft_wrap=False)
    console.print(f"Needs: {needs_of(name) or 'nothing but the labels'}.")
    settings = inspect.signature(METHODS[name]).parameters.values()
    if settings:
        table = Table("setting", "flag", "default")
        for setting in settings:
            flag = f"--settings.{setting.name.replace('_', '-')}"
            default = "" if setting.default is None else str(setting.default)
            table.add_row(setting.name, flag, default)
        console.print(table)


def needs_of(name: str) -> str:
    """What a method needs, in words."""
    from sparselabel.method.catalog import make_method, settings_of

    has = settings_of(name)
    needs = make_method(name, **({"expected_positives": 1.0} if "expected_positives" in has else {})).needs
    words = {
        "all labels (an oracle)": needs.truth,
        "observed negatives": needs.negatives,
        "cell maps": needs.maps,
        "points or boxes": needs.marks,
        "expected_positives": "expected_positives" in has,
    }
    return ", ".join(word for word, needed in words.items() if needed)


def _first_line(factory: object) -> str:
    return (inspect.getdoc(factory) or "").splitlines()[0]
