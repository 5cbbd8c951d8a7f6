"""docs/api.md, made from the docstrings of the public names: ``make docs``."""

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from typing import Any

import sparselabel
import sparselabel.losses
import sparselabel.testing
from sparselabel import errors

HEADER = "<!-- Made by `make docs` from the docstrings: edit these instead. -->"
SECTIONS: dict[str, tuple[str, ...]] = {
    "A loss in your loop": ("SparseLoss", "ShardedSampler", "RandomView", "TrackedTransform", "ViewGeometry"),
    "Data": ("Dataset", "LabelTable"),
    "Training and runs": ("train", "Callback", "Run", "load_predictor", "Output"),
    "Embeddings": ("SparseLabelClassifier", "estimate_expected_positives"),
    "Comparisons and measures": ("compare", "Comparison", "average_precision"),
    "Losses of your own": ("register",),
}
PARTS_OF_LOSSES = ("LabelLoss", "EntryLosses", "TargetLoss", "TargetRule", "Targets", "Step", "Needs")
INTERNAL = {
    "Run": {"begin", "goes_on", "refuse_other_data", "require_finished", "data_name"},
    "SparseLoss": {"extra_repr", "get_extra_state", "set_extra_state"},
}
"""Methods of public classes that the library, or torch, calls itself."""
MADE_BY = {
    "Dataset": "one of its `from_` methods, or by `Dataset.open`",
    "Run": "`train`, or by `Run.open`",
    "Comparison": "`compare`, or by `Comparison.open`",
}
"""Classes that nobody makes by calling them."""


def page() -> str:
    """The whole page."""
    lines = [
        HEADER,
        "# API",
        "Every public name, from its docstring. [Python](python.md) shows them at work. "
        "`sparselabel.POSITIVE`, `NEGATIVE` and `UNKNOWN` are the labels 1, 0 and -1.",
    ]
    for title, names in SECTIONS.items():
        lines.append(f"## {title}")
        for name in names:
            lines += entry(f"sparselabel.{name}", getattr(sparselabel, name))
    lines += entry("sparselabel.testing.check_loss", sparselabel.testing.check_loss)
    for name in PARTS_OF_LOSSES:
        lines += entry(f"sparselabel.losses.{name}", getattr(sparselabel.losses, name), members=False)
    kinds = [
        one
        for one in vars(errors).values()
        if inspect.isclass(one) and issubclass(one, (errors.SparselabelError, errors.DataWarning))
    ]
    lines += ["## Errors", "They carry `problem`, `remedies`, `what`, `where`, `value` and `allowed`."]
    lines.append("\n".join(f"- `sparselabel.errors.{one.__name__}`: {in_markdown(one)}" for one in kinds))
    return "\n\n".join(lines) + "\n"


def entry(name: str, thing: Any, members: bool = True) -> Iterator[str]:
    """A class or a function: its call, what it is, its parameters, and what a class has."""
    yield f"### `{name}`"
    if made_by := MADE_BY.get(name.rpartition(".")[2]):
        yield f"{paragraphs(thing)[0]} It is made by {made_by}."
    else:
        yield from described(name.rpartition(".")[2], thing)
    if not inspect.isclass(thing) or not members:
        return
    hidden = INTERNAL.get(thing.__name__, set())
    for attribute, value in vars(thing).items():
        if attribute.startswith("_") or attribute in hidden:
            continue
        if isinstance(value, property | cached_property):
            yield f"**`{attribute}`** {in_markdown(value)}"
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            yield from described(attribute, getattr(thing, attribute), method=True)


def described(name: str, thing: Any, method: bool = False) -> Iterator[str]:
    """A call, what it does, and its parameters."""
    call = f"`{name}({', '.join(arguments(thing))})`"
    first, *rest = paragraphs(thing)
    yield f"**{call}** {first}" if method else f"{call}"
    yield from rest if method else [first, *rest]
    if parameters := parameters_of(thing):
        yield "\n".join(f"- `{key.replace(', ', '`, `')}`: {code(text)}" for key, text in parameters.items())


def arguments(thing: Any) -> Iterator[str]:
    """The parameters of a call with their defaults, without their types."""
    starred = False
    for name, parameter in inspect.signature(thing).parameters.items():
        if name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        prefix = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        starred |= prefix == "*"
        default = parameter.default
        if default is parameter.empty:
            yield f"{prefix}{name}"
        else:
            plain = isinstance(default, str | int | float | bool | tuple | None)
            yield f"{name}={default!r}" if plain else f"{name}=..."


def parameters_of(thing: Any) -> dict[str, str]:
    """What a docstring says of each parameter."""
    body = (inspect.getdoc(thing) or "").partition("----------\n")[2]
    sections = re.findall(r"^(\**\w+(?:, \**\w+)*)\n((?:    .*\n?)+)", body, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in sections}


def paragraphs(thing: Any) -> list[str]:
    """What a docstring says; an indented paragraph of it is code."""
    text = (inspect.getdoc(thing) or "").partition("\n\nParameters\n---")[0]
    return [
        f"```python\n{dedent(part)}\n```" if part.startswith("    ") else code(" ".join(part.split()))
        for part in text.split("\n\n")
    ]


def in_markdown(thing: Any) -> str:
    """The same in one paragraph."""
    return " ".join(paragraphs(thing))


def code(text: str) -> str:
    """Markdown of a docstring's text: its code, and no brackets that look like HTML."""
    return re.sub(r"``(.+?)``", r"`\1`", text).replace("<", "&lt;")


def main(root: Path) -> None:
    """Write the page."""
    (root / "docs" / "api.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
