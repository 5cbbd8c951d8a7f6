"""``sparselabel data``: the content of prepared data, and problems in it."""

import json as json_format
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sparselabel.cli.terminal import plain_console, progress
from sparselabel.errors import DataError, spell
from sparselabel.errors import counted as number_of

if TYPE_CHECKING:
    from sparselabel.data.checks import Problem
    from sparselabel.data.dataset import Dataset
    from sparselabel.data.describe import Counts
    from sparselabel.data.image_hashes import Fingerprints

EXPLAINED = """\
positive: the class is present; negative: it is absent. observed: training sees the label (in val, validation
sees it; in test, evaluation); unknown: the label is hidden or nobody knows it.
"""


def data(
    folder: Path,
    /,
    *,
    split: str = "train",
    every_class: Annotated[bool, Parameter(name="--all")] = False,
    images: bool = False,
    verify: bool = False,
    sheet: Path | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Describe prepared data: images, classes, how much of the labels training may see, and problems.

    Example: `sparselabel data prepared --sheet sheet.png`

    Parameters
    ----------
    folder
        Prepared data, as `sparselabel prepare` wrote it.
    split
        Split whose classes are listed, and whose images are on the sheet.
    every_class
        List every class; by default, of more than 40 only the most and the least frequent ones.
    images
        Also open every image to find broken, tiny and nearly identical ones. Takes as long as `prepare`.
    verify
        Only read every array and every image, and report those that changed since they were prepared.
    sheet
        PNG file for a sheet of random images with their labels, points and boxes; a CSV is written beside it.
    seed
        Random seed for the images on the sheet.
    json
        Print JSON with complete lists instead of tables.
    """
    from sparselabel.data.prepared_files import open_prepared

    prepared = open_prepared(folder)
    if verify:
        _verify(prepared)
        return
    shown = prepared.split(split)
    if sheet is not None:
        from sparselabel.report.figures.contact_sheet import draw_sheet
        from sparselabel.report.figures.style import checked_out

        numbers = draw_sheet(shown, seed, checked_out(sheet, name="sheet"))
    fingerprints = _fingerprints(prepared) if images else None
    if json:
        # Not by the console, which takes gigabytes for what thousands of classes have to say.
        content = json_format.dumps(_as_json(prepared, fingerprints), indent=2, ensure_ascii=False)
        sys.stdout.write(content + "\n")
        return
    describe(prepared, split=split, every_class=every_class, fingerprints=fingerprints)
    if sheet is not None:
        plain_console().print(f"written: {sheet}, {numbers}")


def describe(
    prepared: "Dataset",
    *,
    split: str = "train",
    every_class: bool = False,
    fingerprints: "Fingerprints | None" = None,
) -> None:
    """Print tables of the splits, of labels per image and of a split's classes, and the problems."""
    from sparselabel.cli import data_tables as tables
    from sparselabel.data.checks import sizes_of
    from sparselabel.data.describe import count_all
    from sparselabel.data.labels import UNKNOWN

    console = plain_console()
    counted = count_all(prepared)
    console.print(tables.split_table(prepared, counted))
    for name, each in prepared.splits.items():
        if each.real is not None:
            console.print(f"{name}: {(each.real[:, 0] != UNKNOWN).sum():,} images have ReaL's labels too")
    for line in tables.spatial_label_lines(prepared, counted):
        console.print(line)
    console.print(EXPLAINED)
    console.print(tables.histogram_table(counted), "")
    console.print(tables.class_table(prepared, counted, split, every_class), "")
    if "scored" in prepared.made:
        console.print(tables.score_table(prepared), "")
    for which, (width, height) in (sizes_of(fingerprints) if fingerprints else {}).items():
        console.print(f"{which} width and height: {width:,} and {height:,} pixels")
    problems = _problems(prepared, counted, fingerprints)
    number = number_of(len(problems), "problem") if problems else "no problem"
    console.print(f"{number} found{'' if fingerprints else ' (--images opens every image to find more)'}")
    for problem in problems:
        console.print(f"- {problem}")


def _as_json(prepared: "Dataset", fingerprints: "Fingerprints | None") -> dict[str, Any]:
    from sparselabel.data.checks import sizes_of
    from sparselabel.data.describe import count_all, description

    counted = count_all(prepared)
    sizes = {"sizes": sizes_of(fingerprints)} if fingerprints else {}
    problems = [problem.as_json() for problem in _problems(prepared, counted, fingerprints)]
    scored = {"scored": prepared.made["scored"]} if "scored" in prepared.made else {}
    return description(prepared, counted) | sizes | scored | {"problems": problems}


def _problems(
    prepared: "Dataset", counted: "dict[str, Counts]", fingerprints: "Fingerprints | None"
) -> "list[Problem]":
    from sparselabel.data.checks import file_problems, image_problems, label_problems

    problems = [*label_problems(prepared, counted), *file_problems(prepared)]
    if fingerprints:
        problems += image_problems(prepared, fingerprints)
    return [replace(problem, remedy=spell(problem.remedy)) for problem in problems]


def _verify(prepared: "Dataset") -> None:
    from sparselabel.data.checks import changed_files

    count = sum(len(split) for split in prepared.splits.values())
    with progress(count, f"reading {number_of(count, 'image')}") as advance:
        changed = [*changed_files(prepared, advance)]
    if changed:
        problem = f"{number_of(len(changed), 'file')} of {prepared.folder} changed since it was prepared"
        raise DataError(
            "\n  ".join([f"{problem}:", *changed]) + "\nWhat to do",
            "bring them back",
            "prepare the data again",
            what=prepared.folder,
            value=len(changed),
        )
    plain_console().print(f"{number_of(count, 'image')} and all arrays are unchanged")


def _fingerprints(prepared: "Dataset") -> "Fingerprints":
    from sparselabel.data.image_hashes import compute_fingerprints

    count = sum(len(split) for split in prepared.splits.values())
    with progress(count, f"looking at {count:,} images") as advance:
        return compute_fingerprints(prepared, advance)
