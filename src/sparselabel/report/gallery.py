"""A gallery of predictions: one HTML file with thumbnails, searchable by label.

Everything is inside the file. Names and labels are data that a script of ours shows as text; nothing of them
becomes markup.
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from sparselabel.data.decode import load
from sparselabel.data.thumbnails import as_uri
from sparselabel.errors import ConfigError, RunError, counted, param
from sparselabel.files import atomic_write, require_file_to_write
from sparselabel.inference.predictor import Prediction
from sparselabel.report.page import environment

MOST = 5000
"""Images in a gallery, of about 10 kB each."""
SIDE = 320  # pixels of the long side


def check_gallery(out: Path, *, force: bool) -> None:
    """Raise if a gallery cannot be written there, before any work."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(
            f"a gallery is an HTML file: {param('gallery')} must end in .html, but is {out}", what="gallery"
        )
    require_file_to_write(out)
    if out.exists() and not force:
        raise RunError(
            f"{out} exists already",
            f"choose another {param('gallery')}",
            f"replace it ({param('force', True)})",
            what=out,
        )


class Gallery:
    """Collects small images with their labels; ``finish`` writes the page."""

    def __init__(self, out: Path, title: str) -> None:
        self.out, self.title, self.left_out = out, title, 0
        self.images: list[dict[str, Any]] = []

    def write(self, prediction: Prediction) -> None:
        """One image; those that cannot be read are not shown."""
        if prediction.error is not None:
            return
        if len(self.images) == MOST:
            self.left_out += 1
            return
        image = load(prediction.image, SIDE)
        image.thumbnail((SIDE, SIDE))
        self.images.append(
            {
                "name": prediction.image.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                "file": quote(
                    os.path.relpath(prediction.image, self.out.parent).encode("utf-8", "surrogateescape")
                ),
                "small": as_uri(image, 60),
                "wide": image.width,
                "high": image.height,
                "labels": [[name, round(score, 3)] for name, score in prediction.labels],
            }
        )

    def finish(self) -> str:
        """Write the page."""
        data = json.dumps({"images": self.images}, ensure_ascii=False)
        for character in "<>&\u2028\u2029":  # so that no text ends the script
            data = data.replace(character, f"\\u{ord(character):04x}")
        page = environment().get_template("gallery.html")
        text = page.render(
            title=self.title, data=Markup(data), images=len(self.images), left_out=self.left_out
        )
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.out) as partial:
            partial.write_text(text, encoding="utf-8")
        rest = f"; {self.left_out:,} more than the {MOST:,} of a gallery" if self.left_out else ""
        return f"{self.out}: a gallery of {counted(len(self.images), 'image')}{rest}"
