"""Strong views: random changes of colour, which leave everything where it is.

The operations are those of RandAugment that do not move pixels (``changes.py``), each at a strength drawn
within its range there. Crop and flip are drawn as for any view and are in its frame.
"""

import numpy as np
from PIL import Image

from sparselabel.data.changes import COLOURS, Pixels, changed

CHANGES = 2  # of a view, one after the other
STREAM = 1  # tells the random numbers of colours from those of the crop, which have the same key


def recoloured(pixels: Pixels, key: tuple[int, ...]) -> Pixels:
    """A view (3, S, S) with two random changes of colour, which depend on nothing but the key."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((*key, STREAM))))
    image = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    for name in random.choice(COLOURS, CHANGES):
        strength, sign = float(random.random()), 1.0 if random.random() < 0.5 else -1.0
        image = changed(image, str(name), strength, sign)
    return np.asarray(image).transpose(2, 0, 1)
