"""``sparselabel demo``: the whole way on the embedded data, in a few minutes."""
from pathlib import Path


def demo(*, out: Path = Path("demo"), force: bool = False) -> None:
    """Make scenes, hide all labels but one a picture, train four methods and compare them.

    Parameters
    ----------
    out
        Folder for data and runs.
    force
        Replace what is in --out.
    """
