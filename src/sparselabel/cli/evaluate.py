"""``sparselabel evaluate``: measure a finished run, or a published network."""

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.table import Table

from sparselabel.cli.arguments import TABLE, TableColumns
from sparselabel.cli.terminal import names_first, plain_console, progress
from sparselabel.config import Engine, TrainConfig, without_none
from sparselabel.errors import ConfigError, DataError, RunError, counted, listing, param, spell
from sparselabel.files import require_folder_to_write
from sparselabel.progress import status_console

if TYPE_CHECKING:
    from sparselabel.run import Run

SPLIT_NAMES = {"val": "validation", "train": "training"}
"""Names of splits in sentences."""


def split_name(measured: dict[str, Any]) -> str:
    """The name of the measured split for a sentence."""
    name: str = measured["split"]
    return SPLIT_NAMES.get(name, name)


def show_quality(run: "Run", measured: dict[str, Any]) -> None:
    """Print how good the run is, in sentences, and what that rests on."""
    from sparselabel.inference.class_thresholds import load_class_thresholds
    from sparselabel.inference.expected_quality import quality_of, trust_in

    console = plain_console()
    if measured["decided"]["expected"]["basis"] is None:
        return  # nothing was chosen from validation images
    try:
        train = run.data().train
    except (DataError, RunError):  # gone since, and the measures are of other images
        return
    own = measured["split"] not in (*SPLIT_NAMES, "test")  # a table of one's own
    quality = quality_of(measured, "test" if own else split_name(measured), train)
    if quality is not None:
        console.print(" ".join(quality.opening()))
        console.print(quality.rests_on)
    for sentence in trust_in(load_class_thresholds(run), run.path):
        console.print(spell(sentence))


def show_decided(decided: dict[str, Any]) -> None:
    """Print calibration, F1 at the classes' own thresholds, and how far each can be trusted.

    Where labels are sparse, precision and recall are those that calibrated scores expect.
    """
    console = plain_console()
    sparse = decided["calibration"] is None
    table = Table(title=_title(decided["chosen_from"]))
    table.add_column("measure")
    table.add_column("value", justify="right")
    if sparse:
        for key in ("precision", "recall"):
            table.add_row(f"expected {key}", f"{100 * decided['expected'][key]:.1f}")
    else:
        for key in ("micro_f1", "macro_f1", "micro_precision", "micro_recall"):
            table.add_row(key.replace("_", " ").replace("f1", "F1"), f"{100 * decided[key]:.2f}")
    calibration = decided["calibration"]
    if calibration is not None:
        for key, name in (("ece", "calibration error (ECE)"), ("brier", "Brier score")):
            table.add_row(f"{name}, calibrated scores", f"{100 * calibration[key]:.2f}")
            table.add_row(f"{name}, the model's own", f"{100 * calibration[f'{key}_of_raw_scores']:.2f}")
    console.print(table)
    if calibration is not None:
        _show_reliability(calibration)
    _show_class_thresholds(decided["classes"], sparse=sparse)
    if not sparse:  # else nearly every class has a reason of its own
        for why, names in _reasons(decided["classes"]).items():
            console.print(f"{listing(names)}: {why}")


def _show_class_thresholds(rows: list[dict[str, Any]], *, sparse: bool) -> None:
    """Precision and recall of every class at its threshold, expected ones where labels are sparse."""
    measured = () if sparse else ("95 % interval",)
    kind = "expected " if sparse else ""
    table = names_first(
        "class", "from score", f"{kind}precision", *measured, f"{kind}recall", f"{kind}F1", "trust"
    )
    for column in table.columns[1:-1]:
        column.justify = "right"
    for row in rows:
        precision, recall, f1 = (
            (row["expected_precision"], row["expected_recall"], None)
            if sparse
            else (row["precision"], row["recall"], row["f1"])
        )
        if f1 is None:
            f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        between = row["precision_interval"]
        interval = "" if between is None else f"{100 * between[0]:.0f}–{100 * between[1]:.0f}"
        table.add_row(
            row["name"],
            f"{row['threshold']:.3f}",
            f"{100 * precision:.1f}",
            *(() if sparse else (interval,)),
            f"{100 * recall:.1f}",
            f"{100 * f1:.1f}",
            row["trust"],
        )
    plain_console().print(table)


def _title(chosen: dict[str, Any]) -> str:
    if not chosen["images"]:
        return "from score 0.5 on: no validation labels to choose by"
    return (
        f"at the classes' own thresholds, chosen from {counted(chosen['images'], 'validation image')} "
        f"({chosen['labels']} labels)"
    )


def _show_reliability(calibration: dict[str, Any]) -> None:
    """Of the scores of a tenth, how many are really there."""
    table = Table("calibrated score", "entries", "mean score, %", "really there, %")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in calibration["bins"]:
        if row["count"]:
            table.add_row(
                f"{row['from']:.1f} to {row['to']:.1f}",
                f"{row['count']:,}",
                f"{100 * row['mean_score']:.1f}",
                f"{100 * row['share_there']:.1f}",
            )
    plain_console().print(table)


def _reasons(classes: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Why classes are poor, each reason once."""
    classes_by_reason: dict[str, list[str]] = {}
    for row in classes:
        if row["trust"] == "poor":
            classes_by_reason.setdefault(row["why"], []).append(row["name"])
    return classes_by_reason


def evaluate(
    run: Path | None = None,
    /,
    *,
    split: str | None = None,
    data: Path | None = None,
    images: Path | None = None,
    labels: Path | None = None,
    complete: bool = False,
    table: Annotated[TableColumns, Parameter(name="*")] = TABLE,
    pretrained: str | None = None,
    weights: str = TrainConfig().weights,
    size: int | None = None,
    threshold: float = 0.5,
    ground_truth: Literal["any", "masks", "boxes"] = "any",
    coupled: bool = False,
    json: bool = False,
    workers: int | None = None,
    engine: Engine = "auto",
) -> None:
    """Measure a trained classifier on a split, which is kept in the run, or on a table of your own.

    Example: `sparselabel evaluate runs/role --split val`

    Parameters
    ----------
    run
        Folder of a finished run.
    split
        Which split of the data: test, val or train; default: test, if there is one, else val.
    data
        The run's prepared data, if it is no longer where it was; the data to measure --pretrained on.
    images
        Folder of the images that --labels names; default: the table's own.
    labels
        Table of labels to measure by, in any form that `sparselabel prepare table` reads.
    complete
        --labels names all that is there, so that other classes are not; else they are unknown.
    pretrained
        Instead of a run: a timm network with its own head, by softmax, as `resnet50.tv_in1k` on ImageNet.
    weights
        Weights of --pretrained: downloaded (pretrained), or those of a file. A file of a whole Query2Label
        model, as its authors released them, brings its own head: name its backbone with --pretrained.
    size
        Side of the views for such a file; default: 448, or the backbone's own if it has only one.
    threshold
        Score from which a class counts as predicted.
    ground_truth
        What a run's maps are evaluated by where the data says where things are (mAP-loc).
        any: masks where they are known, else boxes; masks, boxes: these alone. With masks alone, images
        without any are left out of the ranking.
    coupled
        Also evaluate TS-CAM's maps times the class token's attention (mAP-loc, coupled); sees images twice.
    json
        Print JSON instead of tables.
    workers
        Processes that load images; by default none for a CPU, where threads do it.
    engine
        What runs the network on a CPU; auto takes the first one that is installed, and torch for few images.
    """
    from sparselabel.inference.expected_quality import is_meaningless, says_nothing
    from sparselabel.run import Run

    if (run is None) == (pretrained is None):
        raise ConfigError(
            "one thing is measured",
            "name a run (`sparselabel evaluate RUN`)",
            "name a network (`sparselabel evaluate --pretrained NAME --data DIR`)",
        )
    own = labels is not None or images is not None or complete or table != TABLE
    if run is not None and own:
        others = {"split": split is not None, "data": data is not None, "coupled": coupled}
        measured = _evaluate_table(run, images, labels, complete, table, threshold, workers, engine, others)
    elif own:
        raise ConfigError(
            f"images of your own are for a run, not for {param('pretrained')}", what="pretrained"
        )
    elif run is not None:
        measured = _evaluate_split(run, split, data, threshold, ground_truth, coupled, workers, engine)
    else:
        for name, given in (("ground_truth", ground_truth != "any"), ("coupled", coupled)):
            if given:
                raise ConfigError(f"{param(name)} is for runs: a published network's maps are not evaluated")
        chosen = split or "test"
        settings = {"weights": weights, "size": size, "threshold": threshold, "workers": workers}
        measured = _evaluate_published(str(pretrained), chosen, data, settings | {"engine": engine})
    if json:
        plain_console().print_json(json_format.dumps(measured))
        return
    for warning in says_nothing(measured, split_name(measured)):
        plain_console().print(f"WARNING: {warning}")
    if run is not None and measured.get("decided") and not is_meaningless(measured):
        show_quality(Run(run, data), measured)
        show_decided(measured["decided"])
        plain_console().print("for researchers:")
    show(measured)


def _evaluate_split(
    run: Path,
    split: str | None,
    data: Path | None,
    threshold: float,
    ground_truth: Literal["any", "masks", "boxes"],
    coupled: bool,
    workers: int | None,
    engine: Engine,
) -> dict[str, Any]:
    from sparselabel.inference.evaluate import evaluate_run
    from sparselabel.run import Run

    opened = Run.open(run, data)
    split = split or _usual_split(opened)
    images = len(opened.split(split))
    require_folder_to_write(run, "scores are kept in the run: copy it to a folder of yours")
    coupled_metrics: dict[str, Any] | None = None
    if coupled:  # first: what cannot be coupled is refused before the rest
        from sparselabel.inference.evaluate import evaluate_coupled, keep_coupled

        with progress(images, f"coupled maps of {split}") as advance:
            coupled_metrics = evaluate_coupled(
                opened, split, workers=workers, ground_truth=ground_truth, report=advance
            )
    with progress(images, f"scoring {split}") as advance:
        measured = evaluate_run(
            opened,
            split,
            threshold=threshold,
            workers=workers,
            ground_truth=ground_truth,
            engine=engine,
            report=advance,
        )
    return measured if coupled_metrics is None else keep_coupled(opened, measured, coupled_metrics)


def _evaluate_table(
    run: Path,
    images: Path | None,
    labels: Path | None,
    complete: bool,
    table: TableColumns,
    threshold: float,
    workers: int | None,
    engine: Engine,
    others: dict[str, bool],
) -> dict[str, Any]:
    from sparselabel.inference.evaluate_table import evaluate_test_set, read_test_set
    from sparselabel.run import Run

    if labels is None:
        remedy = f"name their table ({param('labels')})"
        raise ConfigError("images of your own are measured by their labels", remedy, what="labels")
    for name in (name for name, given in others.items() if given):
        problem = f"{param(name)} is for prepared data, and {param('labels')} for a table"
        raise ConfigError(problem, "give one", what=name)
    opened = Run.open(run)
    opened.require_finished()
    test_set = read_test_set(opened, labels, images, complete=complete, table=without_none(asdict(table)))
    with progress(len(test_set), f"scoring {counted(len(test_set), 'image')}") as advance:
        return evaluate_test_set(
            opened, test_set, threshold=threshold, workers=workers, engine=engine, report=advance
        )


def _usual_split(run: "Run") -> str:
    """The test split, or else the validation split, with a note on the screen."""
    splits = run.metadata()["data_digest"]
    if "test" in splits or "val" not in splits:  # without either the error names what there is
        return "test"
    status_console().print(  # beside the results: --json prints JSON alone
        "the data has no test split: measured on val, by which the best epoch and thresholds were chosen"
    )
    return "val"


def _evaluate_published(name: str, split: str, data: Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    from sparselabel.data.prepared_files import open_prepared
    from sparselabel.inference.evaluate import evaluate_published

    if data is None:
        raise ConfigError(
            f"{param('pretrained', name)} needs data to be measured on",
            f"name it with {param('data', 'DIR')}",
        )
    with progress(len(open_prepared(data).split(split)), f"scoring {split}") as advance:
        return evaluate_published(name, data, split, report=advance, **settings)


def show(measured: dict[str, Any]) -> None:
    """Print tables of the metrics."""
    console = plain_console()
    table = Table(
        title=f"{measured['split']}: {counted(measured['images'], 'image')}, labels {measured['labels']}"
    )
    table.add_column("measure")
    table.add_column("value", justify="right")
    for rule, value in measured["mean_average_precision"].items():
        table.add_row(f"mAP ({rule})", f"{100 * value['mean']:.2f}")
    located = measured.get("location")
    if located:
        table.add_row(f"mAP-loc ({_places(located)})", f"{100 * located['mean']:.2f}")
    if measured.get("location_coupled"):
        table.add_row("mAP-loc, coupled with attention", f"{100 * measured['location_coupled']['mean']:.2f}")
    for name, value in measured["at_threshold"].items():
        table.add_row(f"{name} at {measured['threshold']}", f"{100 * value:.2f}")
    for name, value in measured["at_threshold_top_3"].items():
        table.add_row(f"{name} at {measured['threshold']}, top 3", f"{100 * value:.2f}")
    for row in measured["at_k"]:
        table.add_row(f"recall at {row['k']}", f"{100 * row['recall']:.2f}")
        table.add_row(f"precision at {row['k']}", f"{100 * row['precision']:.2f}")
    for count, subset in (measured["by_number_of_labels"] or {}).items():
        mean, present = (subset["average_precision"][key] for key in ("mean_of_present", "present"))
        if mean is not None:
            what = f"mAP, images with {count} label{'' if count == '1' else 's'} "
            what += f"({subset['images']:,}; {present} class{'' if present == 1 else 'es'})"
            table.add_row(what, f"{100 * mean:.2f}")
    if measured.get("real"):
        table.add_row("top-1, the original label", f"{100 * measured['real']['top_1_single']:.2f}")
    _add_real(table, measured.get("real"), "ReaL")
    _add_real(table, measured.get("real_by_logits"), "ReaL, ranked by logits")
    for who, value in (measured["recovery"] or {}).items():
        if value is not None:
            contain = " (they contain the observed ones)" if who == "estimates" else ""
            table.add_row(f"all training labels: mAP of the {who}{contain}", f"{100 * value:.2f}")
    console.print(table)
    console.print(f"scored by {measured['engine']}")
    _show_classes(measured, located)


def _show_classes(measured: dict[str, Any], located: dict[str, Any] | None) -> None:
    """Print a table of the metrics of each class."""
    console = plain_console()
    shown = ("AP-loc",) if located else ()
    at = f"at {measured['threshold']:g}"
    classes = names_first("class", "positives", "AP", f"precision {at}", f"recall {at}", f"F1 {at}", *shown)
    for column in classes.columns[1:]:
        column.justify = "right"
    for row in measured["classes"]:
        keys = ("average_precision", "precision", "recall", "f1")
        numbers = [row[key] for key in keys] + ([located["classes"][row["name"]]] if located else [])
        classes.add_row(row["name"], f"{row['positive']:,}", *(f"{100 * number:.1f}" for number in numbers))
    console.print(classes)


def _places(located: dict[str, Any]) -> str:
    """What maps were evaluated by, as in "masks of 1,118 images, boxes of 4,705 images; 9,000 ranked"."""
    parts = [f"{kind} of {counted(located[kind], 'image')}" for kind in ("masks", "boxes") if located[kind]]
    return f"{', '.join(parts)}; {located['ranked']:,} ranked"


def _add_real(table: Table, real: dict[str, Any] | None, name: str) -> None:
    """Rows of Verelst 2023 table 3, where the data has ReaL labels."""
    if real is None:
        return
    table.add_row(f"{name}: top-1 ({real['images']:,} images)", f"{100 * real['top_1']:.2f}")
    table.add_row(f"{name}: mAP", f"{100 * real['mean_average_precision']['mean']:.2f}")
    for number, subset in real["by_number_of_labels"].items():
        mean, present = (subset["average_precision"][key] for key in ("mean_of_present", "present"))
        if mean is not None:
            what = f"{name}: mAP, images with {number} labels ({subset['images']:,}; {present} classes)"
            table.add_row(what, f"{100 * mean:.2f}")
