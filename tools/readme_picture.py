"""docs/found.jpg, the picture of the README: one label given, four found, and where.

    sparselabel demo && python -m tools.readme_picture demo/runs/pu+scl-seed0

Shows training images with four things of which the run, which saw one label of each, finds all four and
nothing else. Images are drawn larger than the run saw them.
"""

import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.labels import POSITIVE
from sparselabel.data.scenes.generate import make_scene
from sparselabel.data.thumbnails import stretched
from sparselabel.inference.predictor import Prediction
from sparselabel.report.figures.style import new_figure, style
from sparselabel.run import Run

THINGS, SIDE = 4, 320
LOOKED_AT = 400  # training images
STRONG = 0.8  # opacity where a map is highest; the image is seen through lower places


def complete_finds(run: Run, part: PreparedSplit) -> list[tuple[int, Prediction]]:
    """Rows whose four things are all found, and what was said of them."""
    truth = part.truth.values == POSITIVE
    rows = np.flatnonzero(truth.sum(axis=1) == THINGS)[:LOOKED_AT].tolist()
    said = run.predict([part.path(row) for row in rows], maps=True)
    return [
        (row, one)
        for row, one in zip(rows, said, strict=True)
        if {name for name, _ in one.labels} == {run.classes[column] for column in np.flatnonzero(truth[row])}
    ]


def large(heat: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A map of cells as large as the image."""
    return np.asarray(Image.fromarray(heat).resize((SIDE, SIDE), Image.Resampling.BICUBIC)).clip(0, 1)


def draw(run: Run, out: Path) -> None:
    """Write the picture."""
    part = run.split("train")
    seed = json.loads((run.data_folder / "scenes.json").read_text())["seed"]
    first, *others = complete_finds(run, part)
    names = {name for name, _ in first[1].labels}
    other = min(others, key=lambda find: len(names & {name for name, _ in find[1].labels}))
    with style():
        figure = new_figure(11, 4.9)
        axes = figure.subplots(2, THINGS + 1)
        for line, (row, prediction) in zip(axes, (first, other), strict=True):
            image = make_scene(seed, int(part.path(row).stem), SIDE).image
            given = run.classes[int(np.flatnonzero(part.observed.values[row] == POSITIVE)[0])]
            line[0].imshow(image)
            line[0].set_title(f"given: {given}", fontsize=15, fontweight="bold")
            shown = sorted(prediction.labels, key=lambda label: label[0] != given)
            for axis, (name, _) in zip(line[1:], shown, strict=True):
                if prediction.maps is None:
                    raise ValueError("the run gave no maps")
                heat = stretched(prediction.maps[run.classes.index(name)])
                axis.imshow(image)
                axis.imshow(large(heat), cmap="inferno", vmin=0, vmax=1, alpha=STRONG * large(heat))
                axis.set_title(name if name == given else f"+ {name}", fontsize=15)
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            axis.grid(visible=False)
        figure.savefig(out, dpi=110, pil_kwargs={"quality": 88})


if __name__ == "__main__":
    draw(Run.open(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "docs/found.jpg"))
