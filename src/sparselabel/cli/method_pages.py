"""The pages in docs/methods, made from the catalogue: ``make docs``.

factory's docstring and signature ─┐
formulas.py: formula, when to take ─┼─▶ docs/methods/NAME.md, and README.md as their index
results/*.csv: what we measured    ─┘
"""

import csv
import inspect
import re
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sparselabel.cli.methods import PAPERS, needs_of

HEADER = (
    "<!-- Made by `make docs` from the catalogue: edit the docstrings, formulas.py or results/ instead. -->"
)
SINGLE = "VOC 2012, one positive label a picture"
TABLES = {
    "voc2012-methods.csv": f"{SINGLE}, frozen MobileNetV2 features, rate by validation",
    "voc2012-auto.csv": f"{SINGLE}, frozen MobileNetV2 features, batch 64, K estimated",
    "voc2012-linear.csv": f"{SINGLE}, frozen MobileNetV2 features, rate and batch by validation",
    "voc2012-tuned.csv": f"{SINGLE}, everything trained, small views",
    "scenes-demo.csv": "drawn scenes (`sparselabel demo`), one positive label a picture",
}
"""Results by file, the words for them; docs/results.md says how they were measured."""


class Value(NamedTuple):
    """A mean over seeds, and in words with its spread."""

    mean: float
    words: str


Measured = Mapping[str, Mapping[str, Value]]
"""Test mAP by the words for the data, and by method."""


def pages(results: Path) -> dict[str, str]:
    """All pages by the name of their file."""
    from sparselabel.method.catalog import CONSISTENCY, METHODS, UNLABELLED

    added = {f"+{name}": factory for name, factory in (UNLABELLED | CONSISTENCY).items()}
    measured = {title: _measured(results / file) for file, title in TABLES.items()}
    parts: dict[str, Callable[..., Any]] = METHODS | added
    made = {f"{file_name(name)}.md": _page(name, part, measured) for name, part in parts.items()}
    return made | {"README.md": _index(parts, measured)}


def file_name(name: str) -> str:
    """What the page of a method is called: em-apl for em+apl, with-scl for +scl."""
    return re.sub(r"^\+", "with-", name).replace("+", "-")


def _page(name: str, factory: Callable[..., Any], measured: Measured) -> str:
    from sparselabel.method.catalog.formulas import formula_of

    formula = formula_of(name)
    first, *rest = (inspect.getdoc(factory) or "").split("\n\n")
    parts = [
        HEADER,
        f"# `{name}`",
        " ".join(first.split()),
        f"```math\n{formula.latex}\n```",
        "Symbols are explained in the [index](README.md).",
        *(" ".join(paragraph.split()) for paragraph in rest),
        f"**When to take it.** {formula.when}",
        f"**Paper.** {_papers(first)}",
        f"**Needs.** {_needs(name)}.",
        _settings(name, factory),
        _combines(name),
        _results(name, measured),
        f"On the command line: `sparselabel methods {_example(name)}`.",
    ]
    return re.sub("(?<!`)``(?!`)", "`", "\n\n".join(parts)) + "\n"  # but not of ```


def _added() -> set[str]:
    from sparselabel.method.catalog import CONSISTENCY, UNLABELLED

    return {f"+{name}" for name in (*UNLABELLED, *CONSISTENCY)}


def _example(name: str) -> str:
    """The method itself, or one that a part is added to."""
    if name not in _added():
        return name
    return f"an{name}" if name in ("+cl", "+scl") else f"csl-i{name}"


def _needs(name: str) -> str:
    return needs_of(_example(name)) or "nothing but the labels"


def _papers(first: str) -> str:
    """The papers that a docstring's first line names, with their titles."""
    lines = re.sub(r"\n\s+", " ", PAPERS).splitlines()
    known = {re.split(r"[:,]", line)[0]: line for line in lines}  # P1: ..., or Lin et al. 2017, ...
    found = [line for key, line in known.items() if re.search(rf"\b{re.escape(key)}\b", first)]
    if "P1s" in first and not any(line.startswith("P1:") for line in found):
        found += [line for key, line in known.items() if key == "P1"]
    return " ".join(found) if found else "Ours."


def _settings(name: str, factory: Callable[..., Any]) -> str:
    from sparselabel.method.catalog import PRESETS

    meanings = _meanings()
    parameters = inspect.signature(factory).parameters
    rows = [
        f"| `--settings.{key.replace('_', '-')}` | {_default(p.default)} | {meanings.get(key, '')} |"
        for key, p in parameters.items()
        if key != "method"
    ]
    if not rows:
        return "It has no settings."
    presets = [
        f"- preset `{preset}`: " + ", ".join(f"{key} {value:g}" for key, value in values.items())
        for preset, values in PRESETS.get(name, {}).items()
    ]
    return "\n".join(
        ["| setting | default | what |", "|---|---|---|", *rows, *([""] if presets else []), *presets]
    )


def _default(value: object) -> str:
    return "" if value is None else str(value)


def _meanings() -> dict[str, str]:
    """What each setting is, in the words of its flag; the methods that have it are left out."""
    from sparselabel.config import Settings

    body = (inspect.getdoc(Settings) or "").partition("----------\n")[2]
    found = re.findall(r"^(\w+)\n((?:    .*\n?)+)", body, flags=re.MULTILINE)
    whose = r" \([^()]*(?:\*|, |asl|role)[^()]*\)"
    return {name: re.sub(whose, "", " ".join(text.split()), count=1) for name, text in found}


def _combines(name: str) -> str:
    from sparselabel.method.catalog import ELEMENTS, with_consistency, with_elements, with_unlabelled

    if name in _added():
        known = {"+cl": with_consistency, "+scl": with_consistency}.get(name, with_unlabelled)()
        return f"**Is added to** {', '.join(f'`{one}`' for one in known)}."
    parts = []
    if name in with_elements():
        parts += [f"`+{element}`" for element in ELEMENTS]
    if name in with_unlabelled():
        parts += ["`+cluster`", "`+fixmatch`"]
    if name in with_consistency():
        parts += ["`+cl`", "`+scl`"]
    return f"**Combines with** {', '.join(parts)}." if parts else "It combines with nothing."


def _measured(file: Path) -> dict[str, Value]:
    """Test mAP by method; of a weight that was varied, the best by validation."""
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    if "spread" in rows[0]:  # a line a method
        seeds = sum(key.startswith("test_") for key in rows[0])
        return {
            row["method"]: Value(float(row["test"]), f"{row['test']} ± {row['spread']} ({seeds} seeds)")
            for row in rows
        }
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:  # a line a seed
        own = found.setdefault(row["method"], {}).setdefault(row.get("weight") or "", [])
        own.append((float(row["validation"]), float(row["test"])))
    best = {
        method: max(weights.values(), key=lambda some: statistics.fmean(pair[0] for pair in some))
        for method, weights in found.items()
    }
    return {method: _value([test for _, test in pairs]) for method, pairs in best.items()}


def _value(tests: list[float]) -> Value:
    mean = statistics.fmean(tests)
    if len(tests) == 1:
        return Value(mean, f"{mean:.2f} (one seed)")
    return Value(mean, f"{mean:.2f} ± {statistics.stdev(tests):.2f} ({len(tests)} seeds)")


def _results(name: str, measured: Measured) -> str:
    """Our numbers of the method, and of combinations with it."""
    rows = []
    for title, values in measured.items():
        beside = ", ".join(
            f"`{other}` {values[other].mean:.2f}" for other in ("an", "bce") if other in values
        )
        for method, value in values.items():
            if _is_of(method, name):
                rows.append(f"| {title} | `{method}` | {value.words} | {beside} |")
    if not rows:
        return "**Our result.** Not measured yet."
    table = ["**Our result**, test mAP ([how](../results.md)):", "", "| data | method | test mAP | beside |"]
    return "\n".join([*table, "|---|---|---|---|", *rows])


def _is_of(method: str, name: str) -> bool:
    """Whether a measured method is this one, or has it as its base or as what is added."""
    from sparselabel.method.catalog import parsed

    return method.endswith(name) if name.startswith("+") else parsed(method).base == name


def _index(parts: Mapping[str, Callable[..., Any]], measured: Measured) -> str:
    from sparselabel.cli.methods import how_they_combine
    from sparselabel.method.catalog import formulas

    letters = [chr(ord("A") + number) for number in range(len(measured))]
    keys = "; ".join(f"{letter}: {title}" for letter, title in zip(letters, measured, strict=True))
    rows = []
    for name, factory in parts.items():
        first = " ".join((inspect.getdoc(factory) or "").split("\n\n")[0].split())
        own = " | ".join(_in_short(name, values) for values in measured.values())
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


def _in_short(name: str, values: Mapping[str, Value]) -> str:
    """The test mAP of a method, or else of the first combination with it, which is named."""
    if name in values:
        return f"{values[name].mean:.2f}"
    of = next((method for method in values if _is_of(method, name)), None)
    return f"`{of}` {values[of].mean:.2f}" if of else ""


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
