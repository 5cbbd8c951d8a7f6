"""The exceptions of sparselabel.

    SparselabelError
    ├── DataError        a file, a table or an image is invalid
    ├── ConfigError      a setting is unknown, contradictory or out of range
    ├── ModelError       a backbone or its weights are not available
    ├── ResourceError    something does not fit into memory or onto the disk
    └── RunError         a run folder is occupied, incomplete or of another configuration, or the run failed

An error has a problem (the thing, the rule, the value) and remedies. Its texts name parameters by ``param``
and commands by ``command``: ``str`` shows them as the library has them, the command as flags, and leaves
out a remedy whose flag the command does not have. The command prints no traceback and exits with 1 (2 for
wrong usage).
"""

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Self

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_MEMORY = "can't allocate memory"  # torch's words on a CPU

_PARAMETER = re.compile("\x02([^=\x03]+)(?:=([^\x03]*))?\x03")
_COMMAND = re.compile("\x04([^\x05]*)\x05")


class Spelling(NamedTuple):
    """How a user is shown parameters and commands; ``parameter`` returns None for one that cannot be set."""

    parameter: Callable[[str, str | None], str | None]
    command: Callable[[str, Mapping[str, str | None]], str]


def param(name: str, value: object = None) -> str:
    """A parameter, as ``head.epochs``, perhaps with a value, for the texts of an error."""
    return f"\x02{name}\x03" if value is None else f"\x02{name}={value}\x03"


def command(*words: object, **parameters: object) -> str:
    """A command that helps, for the texts of an error: ``command("expect", "DATA", how="counted")``."""
    given = [name if value is True else f"{name}={value}" for name, value in parameters.items()]
    return "\x04" + "\x1f".join([" ".join(["sparselabel", *map(str, words)]), *given]) + "\x05"


_LITERAL = re.compile(r"-?[\d.]+(e[-+]?\d+)?|True|False")


def _python_parameter(name: str, value: str | None) -> str:
    name = name.removeprefix("settings.")  # a method's are keywords like others
    if value is None:
        return f"`{name}`"
    outer, _, inner = name.partition(".")
    if not inner.isidentifier():
        return f"`{name}={value}`"
    shown = value if _LITERAL.fullmatch(value) else repr(value)
    return f"`{outer}={{'{inner}': {shown}}}`"


def _python_command(words: str, parameters: Mapping[str, str | None]) -> str:
    given = [_python_parameter(name, value or "True") for name, value in parameters.items()]
    return f"`{words}`{' with ' if given else ''}{' and '.join(given)}"


AS_PYTHON = Spelling(_python_parameter, _python_command)
"""As the library has it."""


_SPELLING: ContextVar[Spelling] = ContextVar("spelling", default=AS_PYTHON)


@contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """Within this context, ``spell`` and ``render`` spell like this: the command's user has flags."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


def spell(text: str, spelling: Spelling | None = None) -> str:
    """A text with its parameters and commands spelled for a user; by default as ``spelled`` has set it."""
    user = spelling or _SPELLING.get()

    def shown(match: re.Match[str]) -> str:
        words, *given = match[1].split("\x1f")
        pairs = (one.partition("=") for one in given)
        return user.command(words, {name: value if equals else None for name, equals, value in pairs})

    text = _PARAMETER.sub(
        lambda found: (
            user.parameter(found[1], found[2]) or AS_PYTHON.parameter(found[1], found[2]) or found[1]
        ),
        text,
    )
    return _COMMAND.sub(shown, text)


MAKE_ROOM = (
    f"make room on the disk, then go on with {param('resume', True)}",
    "take a folder on a larger disk",
)
"""Remedies for a full disk."""


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
        return self.render(AS_PYTHON)

    def render(self, spelling: Spelling | None = None) -> str:
        """The message as ``spell`` writes it, without remedies whose parameters this user does not have."""
        spelling = spelling or _SPELLING.get()
        remedies = [
            spell(text, spelling)
            for text in self.remedies
            if all(spelling.parameter(found[1], found[2]) for found in _PARAMETER.finditer(text))
        ]
        problem = spell(self.problem, spelling)
        return ": ".join([problem, ", or ".join(remedies)]) if remedies else problem

    def without_prefix(self, prefix: str) -> Self:
        """The same message with parameters that lack a prefix such as ``settings.``."""
        texts = [text.replace(f"\x02{prefix}", "\x02") for text in (self.problem, *self.remedies)]
        what = self.what.removeprefix(prefix) if isinstance(self.what, str) else self.what
        return type(self)(*texts, what=what, where=self.where, value=self.value, allowed=self.allowed)

    @property
    def parameters(self) -> list[str]:
        """The parameters that its remedies name."""
        return [found[1] for text in self.remedies for found in _PARAMETER.finditer(text)]


class SparselabelError(_Message):
    """Base class of all errors that sparselabel raises."""


class DataError(SparselabelError, ValueError):
    """A file, a table or an image is invalid."""


class ConfigError(SparselabelError, ValueError):
    """A setting is unknown, contradictory or out of range."""


class ModelError(SparselabelError):
    """A backbone or its weights are not available."""


class ResourceError(SparselabelError):
    """Something does not fit into memory or onto the disk."""


class RunError(SparselabelError):
    """A run folder is occupied, incomplete or of another configuration, or the run failed."""


class DataWarning(_Message, UserWarning):
    """Data that can be used but may not be as intended."""


class ModelWarning(_Message, UserWarning):
    """A model that runs differently than requested."""


def listing(items: Iterable[object], most: int = 10) -> str:
    """Items for an error message: all when few, else the first and how many more there are."""
    names = [str(item) for item in items]
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join(names[:most]) + f" and {len(names) - most:,} more"


def counted(number: int, thing: str) -> str:
    """A number with its noun: 1 image, 2,000 images, 3 classes."""
    plural = "es" if thing.endswith("s") else "s"
    return f"{number:,} {thing}{'' if number == 1 else plural}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # torch's, which is not imported here
        or NO_MEMORY in str(error)
    )


def shown(value: object, most: int = 200) -> str:
    """A value for a message, truncated if it is long, or only its type if ``repr`` fails."""
    try:
        return f"{value!r:.{most}}"
    except (ValueError, RecursionError):
        return f"a very large {type(value).__name__}"


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
