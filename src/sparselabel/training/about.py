"""What run.json says of a run: its data, versions and command, and the content of files that it names."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from sparselabel.config import TrainConfig
from sparselabel.data.answers import last_words
from sparselabel.data.dataset import Prepared
from sparselabel.training.class_prior import prior_file
from sparselabel.training.features import content_digest, weights_identity
from sparselabel.training.resolve_expected import expected_file


def about(data: Prepared, command: Sequence[str], config: TrainConfig | None = None) -> dict[str, Any]:
    """What run.json says; with a configuration, of the content of the files that it names too."""
    packages = ("sparselabel", "torch", "torchvision", "timm", "lightning-fabric", "numpy")
    contents = {}
    if config is not None:
        contents["weights_identity"] = weights_identity(config)
        given = expected_file(config)
        if given is not None:
            contents["expected_identity"] = content_digest(given)
        prior = prior_file(config)
        if prior is not None:
            contents["prior_identity"] = content_digest(prior)
    return contents | {
        "data": str(data.folder.resolve()),
        "data_digest": {name: split.digest for name, split in data.splits.items()},
        "answers": len(last_words(data.answers)),
        "classes": list(data.classes),
        "command": list(command),
        "versions": {name: version(name) for name in packages} | {"python": sys.version.split()[0]},
    }
