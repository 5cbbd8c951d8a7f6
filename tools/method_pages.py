"""The pages in docs/methods, made from the registry: ``make docs``.

factory's docstring and signature         ─┐
method_formulas.py: formula, when to take ─┼─▶ docs/methods/NAME.md, and README.md as their index
results/*.csv: what we measured           ─┘
"""

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparselabel.cli.methods import PAPERS, needs_in_words, paragraphs_of
from tools.method_results import BOOSTED, INDEXED, Measured, Value, best_of, measured

HEADER = (
    "<!-- Made by `make docs` from the registry: edit the docstrings, tools/method_formulas.py or results/ "
    "instead. -->"
)
HEAD = "boostlu"
"""What is no method but a part of the head, and has a page all the same."""


def pages(results: Path) -> dict[str, str]:
    """All pages by the name of their file."""
    from sparselabel.losses.registry import CONSISTENCY, METHODS, UNLABELED
    from sparselabel.models.classifier import boosted

    added = {f"+{name}": method for name, method in (UNLABELED | CONSISTENCY).items()}
    found = measured(results)
    parts: dict[str, Callable[..., Any]] = {name: method.make for name, method in (METHODS | added).items()}
    made = {f"{file_name(name)}.md": _page(name, part, found) for name, part in parts.items()}
    index = _index(parts | {HEAD: boosted}, found)
    return made | {f"{HEAD}.md": _head_page(boosted, found), "README.md": index}


def file_name(name: str) -> str:
    """What the page of a method is called: em-apl for em+apl, with-scl for +scl."""
    return re.sub(r"^\+", "with-", name).replace("+", "-")


def _page(name: str, factory: Callable[..., Any], measured: Measured) -> str:
    from tools.method_formulas import formula_of

    formula = formula_of(name)
    first, *rest = paragraphs_of(factory)
    parts = [
        HEADER,
        f"# `{name}`",
        first,
        f"```math\n{formula.latex}\n```",
        "Symbols are explained in the [index](README.md).",
        *rest,
        f"**When to take it.** {formula.when}",
        f"**Paper.** {_papers(first)}",
        f"**Needs.** {_needs(name)}.",
        _settings(name, factory),
        _combines(name),
        _results(name, measured),
        f"On the command line: `sparselabel methods {_example(name)}`.",
    ]
    return re.sub("(?<!`)``(?!`)", "`", "\n\n".join(parts)) + "\n"  # but not of ```


def _head_page(factory: Callable[..., Any], measured: Measured) -> str:
    from sparselabel.losses.registry import METHODS
    from tools.method_formulas import formula_of

    formula = formula_of(HEAD)
    first, *rest = paragraphs_of(factory)
    presets = [
        f"- `{method}` with `--settings.preset {HEAD}`, or any preset: share {values[HEAD]['share']:g}"
        for method, values in ((name, method.presets) for name, method in METHODS.items())
        if HEAD in values
    ]
    parts = [
        HEADER,
        f"# `{HEAD}`: a part of the head",
        first,
        f"```math\n{formula.latex}\n```",
        "Symbols are explained in the [index](README.md).",
        *rest,
        f"**When to take it.** {formula.when}",
        f"**Paper.** {_papers(first)}",
        "**Needs.** A head that adds up logits of cells: `--classifier linear` or `tscam`.",
        "\n".join(
            ["| setting | default | what |", "|---|---|---|", f"| `--boost` |  | {_of_flag('boost')} |"]
        ),
        "\n".join(["Settings of the paper's methods with it:", "", *presets]),
        "**Combines with** every method: it is a flag, not a part of a name.",
        _results(HEAD, measured),
        "On the command line: `sparselabel train DATA --method ll-r --settings.preset voc --boost 5`.",
    ]
    return re.sub("(?<!`)``(?!`)", "`", "\n\n".join(parts)) + "\n"


def _added() -> set[str]:
    from sparselabel.losses.registry import CONSISTENCY, UNLABELED

    return {f"+{name}" for name in (*UNLABELED, *CONSISTENCY)}


def _example(name: str) -> str:
    """The method itself, or one that a part is added to."""
    if name not in _added():
        return name
    return f"an{name}" if name in ("+cl", "+scl") else f"csl-i{name}"


def _needs(name: str) -> str:
    return needs_in_words(_example(name)) or "nothing but the labels"


def _papers(first: str) -> str:
    """The papers that a docstring's first line names, with their titles."""
    lines = re.sub(r"\n\s+", " ", PAPERS).splitlines()
    # Of "Cole et al. 2021, ..." also "Cole 2021"; of "PatchML: ..." the name.
    known = {re.split(r"[:,]", line)[0]: line for line in lines}
    named = [
        line
        for key, line in known.items()
        if re.search(rf"\b({re.escape(key)}|{re.escape(key.replace(' et al.', ''))})\b", first)
    ]
    return " ".join(named) if named else "Ours."


def _settings(name: str, factory: Callable[..., Any]) -> str:
    from sparselabel.losses.registry import METHODS, setting_docs

    meanings = setting_docs(factory)
    parameters = inspect.signature(factory).parameters
    rows = [
        f"| `--settings.{key.replace('_', '-')}` | {_default(p.default)} | {meanings[key]} |"
        for key, p in parameters.items()
        if key != "method"
    ]
    if not rows:
        return "It has no settings."
    presets = [
        f"- preset `{preset}`: " + ", ".join(f"{key} {value:g}" for key, value in values.items())
        for preset, values in (METHODS[name].presets.items() if name in METHODS else ())
    ]
    return "\n".join(
        ["| setting | default | what |", "|---|---|---|", *rows, *([""] if presets else []), *presets]
    )


def _default(value: object) -> str:
    return "" if value is None else str(value)


def _of_flag(name: str) -> str:
    from sparselabel.config import TrainConfig
    from sparselabel.losses.registry import setting_docs

    return setting_docs(TrainConfig)[name]


def _combines(name: str) -> str:
    from sparselabel.losses.registry import ENTRY_LOSSES, with_consistency, with_entry_losses, with_unlabeled

    if name in _added():
        known = {"+cl": with_consistency, "+scl": with_consistency}.get(name, with_unlabeled)()
        return f"**Is added to** {', '.join(f'`{one}`' for one in known)}."
    parts = []
    if name in with_entry_losses():
        parts += [f"`+{entry_loss}`" for entry_loss in ENTRY_LOSSES]
    if name in with_unlabeled():
        parts += ["`+cluster`", "`+fixmatch`"]
    if name in with_consistency():
        parts += ["`+cl`", "`+scl`"]
    return f"**Combines with** {', '.join(parts)}." if parts else "It combines with nothing."


def _results(name: str, measured: Measured) -> str:
    """Our numbers of the method, and of combinations with it."""
    rows = []
    for title, values in measured.items():
        means = {value.method: f"`{value.method}` {value.mean:.2f}" for value in values}
        beside: dict[str, str] = {other: means[other] for other in ("an", "bce") if other in means}
        if (best := best_of(values)) is not None and best.method not in beside:
            beside[best.method] = f"highest {best.named} {best.mean:.2f}"
        for value in values:
            if _is_of(value.method, name) or (name == HEAD and BOOSTED in title):
                others = ", ".join(words for other, words in beside.items() if other != value.method)
                rows.append(f"| {title} | {value.named} | {value.words} | {others} |")
    if not rows:
        return "**Our result.** Not measured yet."
    head = "**Our result**, test mAP, ± over seeds or draws ([how](../results.md)):"
    table = [head, "", "| data | method | test mAP | beside |"]
    return "\n".join([*table, "|---|---|---|---|", *rows])


def _is_of(method: str, name: str) -> bool:
    """Whether a measured method is this one, or has it as its base or as what is added."""
    from sparselabel.losses.registry import parse

    return method.endswith(name) if name.startswith("+") else parse(method).base == name


def _index(parts: Mapping[str, Callable[..., Any]], measured: Measured) -> str:
    from sparselabel.cli.methods import how_they_combine
    from tools import method_formulas as formulas

    columns = {title: measured.get(title, ()) for title in INDEXED}
    letters = [chr(ord("A") + number) for number in range(len(columns))]
    keys = "; ".join(f"{letter}: {title}" for letter, title in zip(letters, columns, strict=True))
    rows = []
    for name, factory in parts.items():
        first = paragraphs_of(factory)[0]
        own = " | ".join(_in_short(name, title, values) for title, values in columns.items())
        rows.append(f"| [`{name}`]({file_name(name)}.md) | {first} | {own} |")
    symbols = " ".join((formulas.__doc__ or "").split("\n\n")[1].split())
    combine = "\n".join(line.rstrip() for line in how_they_combine().splitlines())
    return "\n".join(
        [
            HEADER, "", "# Methods", "",
            f"Test mAP, to be compared within a column ([all results](../results.md)). {keys}.", "",
            f"| method | what it does | {' | '.join(letters)} |", "|---|---" + "|---" * len(letters) + "|",
            *rows, "",
            f"**Symbols.** {symbols}", "", "```", combine, "```", "", "```", PAPERS, "```", "",
        ]
    )  # fmt: skip


def _in_short(name: str, title: str, values: Sequence[Value]) -> str:
    """The test mAP of a method, or of the first combination with it, which is named; of a head the best."""
    if name == HEAD:
        best = best_of(values) if BOOSTED in title else None
        return f"{best.named} {best.mean:.2f}" if best is not None else ""
    of = next((value.method for value in values if value.method == name), None)
    other = of or next((value.method for value in values if _is_of(value.method, name)), None)
    found = ", ".join(
        f"{value.setting} {value.mean:.2f}".strip() for value in values if value.method == other
    )
    return found if of or not other else f"`{other}` {found}"


def main(root: Path) -> None:
    """Write the pages into docs/methods, and remove those of methods that are no more."""
    folder = root / "docs" / "methods"
    folder.mkdir(parents=True, exist_ok=True)
    made = pages(root / "results")
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
