"""Find image files in a folder, also by names that lack a suffix or a folder."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sparselabel.data.decode import SUFFIXES
from sparselabel.errors import DataError


def images_below(root: Path) -> list[str]:
    """Paths of all images in a folder, relative to it, sorted; hidden and linked folders are left out."""
    paths: list[str] = []

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error

    for folder, folders, files in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = Path(folder).relative_to(root).as_posix()
        inner = "" if below == "." else f"{below}/"
        paths += [inner + name for name in files if is_image(name)]
    return sorted(paths)


def is_image(name: str) -> bool:
    """Whether a file is an image by its name; hidden ones are none."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def match_names(names: Sequence[str], files: Sequence[str], taken: set[str]) -> dict[str, str]:
    """By name, the one file that it can mean; names that could mean several files are left out.

    A name means the file that has its end as path below the folder (``old/photos/a.jpg`` that of ``a.jpg``),
    or else its last part in any folder; in any case of letters, with its suffix or else with another one. Two
    names do not mean one file, nor one that is ``taken``.
    """
    indices: list[dict[str, list[str]]] = [{}, {}, {}, {}]
    for file in files:
        plain = file.casefold()
        last = plain.rpartition("/")[2]
        for index, key in zip(indices, (plain, _stem(plain), last, _stem(last)), strict=True):
            index.setdefault(key, []).append(file)
    paths, stems, last_parts, last_stems = indices
    matched: dict[str, str] = {}
    for name in names:
        parts = [part for part in name.casefold().replace("\\", "/").split("/") if part not in ("", ".")]
        ends = ["/".join(parts[start:]) for start in range(len(parts))]
        tried = [
            *((paths, end) for end in ends),
            *((stems, _stem(end)) for end in ends),
            *((last_parts, end) for end in ends[-1:]),
            *((last_stems, _stem(end)) for end in ends[-1:]),
        ]
        matches = next((index[key] for index, key in tried if key in index), [])
        if len(matches) == 1:
            matched[name] = matches[0]
    times = Counter(matched.values())
    return {name: file for name, file in matched.items() if times[file] == 1 and file not in taken}


def _stem(path: str) -> str:
    """A path without the suffix of an image."""
    return next((path.removesuffix(suffix) for suffix in SUFFIXES if path.endswith(suffix)), path)
