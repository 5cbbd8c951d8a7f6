"""The quality of a run in plain sentences, and what they rest on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import POSITIVE
from sparselabel.errors import command, counted, listing
from sparselabel.inference.class_thresholds import SOME, ClassThresholds, QualityRanges

WEAK_F1 = 0.5
"""Expected F1 below which a class is called weak."""
NAMED = 5  # classes that a sentence names
BASIS = {
    "complete": "all their labels are known",
    "answered": "labels that are known, there or not there, are taken for a random sample",
    "reviewed": "reviewers' answers about validation images",
    "counted": "the number of labels per image was counted in images with all their labels",
    "given": "the number of labels per image is the one that training was given",
    "estimated": "the number of labels per image is an estimate, which the ranges come from",
    "likelihood": (
        "nobody said how many labels are missing, and the guess from the labels alone is usually too low, "
        "so true precision is likely higher, and true recall lower"
    ),
}
"""What the expected precision and recall rest on, in words."""


@dataclass(frozen=True)
class Quality:
    """The expected quality of a run's labels, from its metrics on a split.

    ``shown`` is how many classes an image shows, ``given`` how many labels a labeled training image has, if
    training does not know all.
    ``measured``: the labels of the split are complete, so nothing is estimated.
    """

    split: str
    images: int
    classes: int
    given: float | None
    shown: float
    precision: float
    recall: float
    measured: bool
    basis: str
    weak: list[tuple[str, int]]
    ranges: QualityRanges | None = None

    def opening(self) -> list[str]:
        """Sentences: what images show, how many suggestions are right and found, which classes are weak."""
        about = "" if self.measured else "about "
        ranges = self.ranges or QualityRanges(labels_per_image=[], precision=[], recall=[])
        ends = [f"{end:.1f}" for end in ranges["labels_per_image"]]
        shown = f"{about}{self.shown:.1f}{f' ({ends[0]} to {ends[1]})' if len({*ends}) > 1 else ''}"
        sentence = f"Your images show {shown} of the {self.classes:,} classes each"
        if self.classes == 1:
            sentence = f"Of your images {about}{100 * self.shown:.0f} % show the class"
        elif self.given is not None and self.given < self.shown - 0.05:
            given = f"{self.given:.1f}".removesuffix(".0")
            sentence += f"; you gave {given} {'label' if given == '1' else 'labels'}"
        sentences = [
            f"{sentence}.",
            f"Expect {of_ten(self.precision, ranges['precision'])} suggested labels to be right, and "
            f"{of_ten(self.recall, ranges['recall'])} present ones to be found.",
        ]
        if self.weak:
            (first, examples), *others = self.weak[:NAMED]
            names = [f"{first} ({counted(examples, 'example')})", *(f"{name} ({n:,})" for name, n in others)]
            more = len(self.weak) - NAMED
            others_too = f" and {more:,} more" if more > 0 else ""
            sentences.append(f"Weak, with F1 below {100 * WEAK_F1:.0f} %: {', '.join(names)}{others_too}.")
        return sentences

    @property
    def rests_on(self) -> str:
        """A sentence on the basis of the numbers."""
        kind = "Measured" if self.measured else "Estimated"
        return f"{kind} on {counted(self.images, f'{self.split} image')}: {BASIS[self.basis]}."


def quality_of(measured: dict[str, Any], split: str, train: PreparedSplit) -> Quality | None:
    """From the metrics of a split at the classes' own thresholds; None if there are none.

    ``split`` is what sentences call it.
    """
    decided = measured.get("decided")
    expected = (decided or {}).get("expected")
    if not decided or not expected or expected["basis"] is None or is_meaningless(measured):
        return None
    complete = measured["labels"] == "complete"
    rows, observed = decided["classes"], train.observed
    examples = observed.counts(POSITIVE).tolist()
    keys = ("precision", "recall") if complete else ("expected_precision", "expected_recall")
    f1 = {row["name"]: _f1(*(row[key] for key in keys)) for row in rows}
    weak = [
        (row["name"], number) for row, number in zip(rows, examples, strict=True) if f1[row["name"]] < WEAK_F1
    ]
    per_image = observed.per_image(POSITIVE)
    labeled = per_image[per_image > 0]
    if complete:
        shown = sum(row["positive"] for row in measured["classes"]) / measured["images"]
        precision, recall = decided["micro_precision"], decided["micro_recall"]
    else:
        shown, precision, recall = (expected[key] for key in ("labels_per_image", "precision", "recall"))
    return Quality(
        split=split,
        images=measured["images"],
        classes=len(rows),
        given=None if observed.complete else float(labeled.mean()) if len(labeled) else 0.0,
        shown=shown,
        precision=precision,
        recall=recall,
        measured=complete,
        basis="complete" if complete else expected["basis"],
        ranges=None if complete else expected.get("ranges"),
        weak=sorted(weak, key=lambda pair: f1[pair[0]]),
    )


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / max(precision + recall, 1e-9)


def of_ten(share: float, ends: Sequence[float] = ()) -> str:
    """A share in words: about 7 of 10, or 3 of 4 if that is nearer; a range as 6 to 9 of 10."""
    low_high = [round(10 * end) for end in ends]
    if len({*low_high}) > 1:
        return f"{low_high[0]} to {low_high[1]} of 10"
    if share >= 0.985:
        return "nearly all"
    if share >= 0.95:
        return "about 19 of 20"
    if share < 0.05:
        return "hardly any"
    right, of = min(((round(10 * share), 10), (3, 4), (1, 4)), key=lambda one: abs(one[0] / one[1] - share))
    return f"about {right} of {of}"


def says_nothing(measured: dict[str, Any], split: str) -> list[str]:
    """Warnings of metrics that mean nothing: of classes on every image, on one or on none."""
    images, rows = measured["images"], measured["classes"]
    never = measured["classes_without_positives"]
    every = [row["name"] for row in rows if row["positive"] == images]
    once = [row["name"] for row in rows if row["positive"] == 1 < images]
    warnings = []
    if every:
        all_of_them = len(every) + len(never) == len(rows)
        what = "so no number can say how good it is" if all_of_them else "so its numbers say nothing"
        warnings.append(
            f"Every {split} image is labeled {listing(every, NAMED)}: there is no image without it to tell "
            f"it from, {what}. Add images that do not show it, labeled as such (a folder 'not {every[0]}', "
            "or the value 0 in a table)."
        )
    if once:
        each, whom = ("is", "the class") if len(once) == 1 else ("each is", "these classes")
        warnings.append(
            f"Only one {split} image {each} labeled {listing(once, NAMED)}: too few to judge {whom} by."
        )
    if never and not is_meaningless(measured):
        counts = "counts" if len(never) == 1 else "each count"
        warnings.append(
            f"No {split} image is labeled {listing(never, NAMED)}: {counts} 0 in the mAP, and nothing says "
            "how good the scores are."
        )
    return warnings


def is_meaningless(measured: dict[str, Any]) -> bool:
    """Whether all classes are on every image or on none, so that any model ranks them perfectly."""
    rows = measured.get("classes", [])
    return bool(rows) and all(row["positive"] in (0, measured["images"]) for row in rows)


def trust_in(thresholds: ClassThresholds, run: Path) -> list[str]:
    """Sentences on unreliable thresholds, with the command that helps and its cost; none if all are good.

    Its commands are those of ``command``.
    """
    poor = [row for row in thresholds.classes if row.trust == "poor"]
    if not poor:
        return []
    many = len(thresholds.classes)
    which, names = "any of the", ""
    if len(poor) < many:
        which, names = f"{len(poor):,} of", f" ({listing([row.name for row in poor], NAMED)})"
    sentences = [
        "Do not rely on the threshold yet."
        if many == 1
        else f"Do not rely on {which} {many:,} thresholds yet{names}."
    ]
    few = [row.name for row in poor if row.answers_needed is None]
    if thresholds.answers_needed:
        sentences.append(
            f"{command('review', run, goal='thresholds')} mends that: it takes about "
            f"{counted(thresholds.answers_needed, 'answer')} about validation images, and {SOME} of these "
            f"that show {'it' if many == 1 else 'each class'}. The answers make thresholds "
            f"and these estimates surer; the model itself gets better by {command('review', run)}."
        )
    elif not few:  # answers would not help
        sentences.append(f"{poor[0].name}: {poor[0].why}.")
    if few:
        sentences.append(
            f"{listing(few, NAMED)}: validation shows {'it' if len(few) == 1 else 'them'} in fewer than "
            f"{SOME} images, and only more images help."
        )
    return sentences
