"""Heat maps of predictions as pictures: where each predicted class was seen."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from sparselabel.data.transforms import View, load
from sparselabel.errors import ResourceError
from sparselabel.inference.predictor import Prediction
from sparselabel.report.thumbnails import with_map

SIDE = 640  # pixels of the long side
LONGEST = 80  # letters of a class in the name of a file


class MapFolder:
    """Writes DIR/<path of the picture>.<class>.png for every predicted class."""

    def __init__(self, folder: Path, classes: Sequence[str], view: View) -> None:
        self.folder, self.view = folder, view
        self.places = {name: place for place, name in enumerate(classes)}
        safe = [re.sub(r"[^\w .,+()-]", "_", name)[:LONGEST] for name in classes]
        if len({name.lower() for name in safe}) < len(safe):  # two would share a file
            safe = [f"{place}-{name}" for place, name in enumerate(safe)]
        self.names = dict(zip(classes, safe, strict=True))

    def write(self, prediction: Prediction) -> dict[str, str]:
        """By class, the file of its map."""
        if prediction.maps is None or not prediction.labels:
            return {}
        image = load(prediction.image, SIDE)
        image.thumbnail((SIDE, SIDE))
        written = {}
        for name, _ in prediction.labels:
            file = self.folder / f"{inside(prediction.image)}.{self.names[name]}.png"
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with_map(image, prediction.maps[self.places[name]], self.view, SIDE).save(file)
            except OSError as error:
                raise ResourceError(f"the heat map {file} cannot be written: {error}") from error
            written[name] = str(file)
        return written


def inside(path: str) -> PurePath:
    """A path that stays in whatever folder it is put: no root, no way up."""
    pure = PurePath(path)
    return PurePath(*(part for part in pure.parts if part not in (pure.anchor, "..", ".")))
