"""The exceptions of sparselabel.

    SparselabelError
    ├── DataError        a file, a table or an image is not what it must be
    ├── ConfigError      a setting is unknown, contradictory or out of range
    ├── ModelError       a backbone or its weights cannot be had
    ├── ResourceError    something does not fit into memory or onto the disk
    └── RunError         a run directory is in the way, incomplete or of another configuration; or it failed

An error has a problem (the thing, the rule, the value) and remedies. Its texts name parameters by ``param``:
``str`` shows them as the library has them, the command as flags, and leaves out a remedy whose flag the
command does not have. The command prints no traceback and exits with 1 (2 for wrong usage).
"""

import errno
import re
from collections.abc import Callable, Iterable
from typing import Self

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_MEMORY = "can't allocate memory"  # torch's words on a CPU

Spelling = Callable[[str, str | None], str | None]
"""How a parameter, perhaps with a value, is shown to a user; None where this user cannot set it."""

_PARAMETER = re.compile("\x02([^=\x03]+)(?:=([^\x03]*))?\x03")


def param(name: str, value: object = None) -> str:
    """A parameter, as ``head.epochs``, perhaps with a value, for the texts of an error."""
    return f"\x02{name}\x03" if value is None else f"\x02{name}={value}\x03"


def command(*words: object, **flags: object) -> str:
    """A command that helps, for the texts of an error: ``command("expect", "DATA", how="counted")``."""
    given = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in flags.items()
    ]
    return f"`{' '.join(['sparselabel', *map(str, words), *given])}`"


MAKE_ROOM = (
    f"make room on the disk, then go on with {param('resume', True)}",
    "take a folder on a larger disk",
)
"""What to do when the disk is full, wherever it is noticed."""


def as_python(name: str, value: str | None) -> str:
    """A parameter as the library has it."""
    return f"`{name}`" if value is None else f"`{name}={value}`"


class _Message(Exception):  # noqa: N818 - warnings are such messages too
    """A problem, remedies and the fields of both.

    ``what`` is the thing (a parameter, a file), ``where`` its place (a line, a row), ``value`` what it is and
    ``allowed`` what it may be; None where there is nothing to say.
    """

    def __init__(
        self,
        problem: str = "",
        *remedies: str,
        what: object = None,
        where: object = None,
        value: object = None,
        allowed: object = None,
    ) -> None:
        super().__init__(problem, *remedies)
        self.problem, self.remedies = problem, remedies
        self.what, self.where, self.value, self.allowed = what, where, value, allowed

    def __str__(self) -> str:
        return self.render(as_python)

    def render(self, spelling: Spelling) -> str:
        """The message, its parameters spelled for a user, without remedies that this user does not have."""

        def show(text: str) -> str:
            return _PARAMETER.sub(
                lambda found: spelling(found[1], found[2]) or as_python(found[1], found[2]), text
            )

        remedies = [
            show(text)
            for text in self.remedies
            if all(spelling(found[1], found[2]) for found in _PARAMETER.finditer(text))
        ]
        return ": ".join([show(self.problem), ", or ".join(remedies)]) if remedies else show(self.problem)

    def without_prefix(self, prefix: str) -> Self:
        """The same, of parameters that are given without a prefix, as ``settings.``."""
        texts = [text.replace(f"\x02{prefix}", "\x02") for text in (self.problem, *self.remedies)]
        what = self.what.removeprefix(prefix) if isinstance(self.what, str) else self.what
        return type(self)(*texts, what=what, where=self.where, value=self.value, allowed=self.allowed)

    @property
    def parameters(self) -> list[str]:
        """The parameters that its remedies name."""
        return [found[1] for text in self.remedies for found in _PARAMETER.finditer(text)]


class SparselabelError(_Message):
    """Anything that sparselabel itself raises."""


class DataError(SparselabelError, ValueError):
    """A file, a table or an image is not what it must be."""


class ConfigError(SparselabelError, ValueError):
    """A setting is unknown, contradictory or out of range."""


class ModelError(SparselabelError):
    """A backbone or its weights cannot be had."""


class ResourceError(SparselabelError):
    """Something does not fit into memory or onto the disk."""


class RunError(SparselabelError):
    """A run directory is in the way, incomplete or of another configuration; or it failed."""


class DataWarning(_Message, UserWarning):
    """Data that can be used but may not be what was meant."""


def listing(items: Iterable[object], most: int = 10) -> str:
    """Items for an error message: all when few, else the first and how many more there are."""
    names = [str(item) for item in items]
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join(names[:most]) + f" and {len(names) - most:,} more"


def counted(number: int, thing: str) -> str:
    """How many there are of a thing: 1 image, 2,000 images."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, whatever else an error may look like."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # torch's, which is not imported here
        or NO_MEMORY in str(error)
    )


def numpy_reason(error: Exception) -> str:
    """What numpy says of a file that it cannot read; not its advice to allow pickles, which run programs."""
    return "not a file of arrays" if "pickle" in str(error) else str(error)


def nearest(name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """A hint for a mistyped name: the nearest known one, if any is near, and all of them.

    Names in ``also`` are known too, but too many to be listed.
    """
    import difflib

    names = sorted(known)
    alike = {one.lower(): one for one in [*names, *also]}
    near = difflib.get_close_matches(name.lower(), alike, n=1)
    hint = f"did you mean {alike[near[0]]!r}? " if near else ""
    return f"{hint}known: {listing(names, 30)}"
