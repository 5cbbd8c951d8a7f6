"""Arguments of commands: settings from a file or a recipe beside the flags, and integers that are integers.

Both are sources in cyclopts' sense: they see the arguments of the command that was asked for, before any of
them is converted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from sparselabel.errors import ConfigError, Spelling

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection

    from sparselabel.comparison.from_recipe import FromRecipe
    from sparselabel.config import Recipe


@dataclass(frozen=True)
class FromFile:
    """Settings from a file.

    Parameters
    ----------
    config
        TOML file with these settings, nested flags as tables. A flag overrides the file.
    """

    config: Path | None = None


@dataclass(frozen=True)
class FromFileOrRecipe(FromFile):
    """Settings from a file, or from a recipe.

    Parameters
    ----------
    recipe
        Take these settings from a recipe of a published table (`sparselabel recipes` lists them).
    """

    recipe: str | None = None


@dataclass(frozen=True)
class TableColumns:
    """How to read the table of labels, where that cannot be detected.

    Parameters
    ----------
    image
        Column of --labels with the image's file name; default: image, filename, file, path or the like.
    label
        Column of --labels with the label; default: label, labels, class, tags or the like.
    separator
        What separates several labels in one cell of --labels; default: detected. '' means that nothing does.
    encoding
        Text encoding of --labels, such as cp1252 or utf-16; default: detected.
    """

    image: str | None = None
    label: str | None = None
    separator: str | None = None
    encoding: str | None = None


FROM_FILE, FROM_FILE_OR_RECIPE, TABLE = FromFile(), FromFileOrRecipe(), TableColumns()
GIVEN_FLAGS: set[str] = set()
"""The flags given to the current command, by their long names."""
FLAGS: set[str] = set()
"""All flags of the current command."""


def recipe_in(given: FromFile) -> "FromRecipe | None":
    """The recipe that a command was given by file or name; None if the file is no recipe."""
    from sparselabel.comparison.from_recipe import FromRecipe
    from sparselabel.config import TrainConfig, from_dict
    from sparselabel.file_formats import naming

    config, recipe = given.config, given.recipe if isinstance(given, FromFileOrRecipe) else None
    values, about, source = read_settings(None if config is None else str(config), recipe) or ({}, None, "")
    if about is None:
        return None
    with naming(source):
        return FromRecipe(about, from_dict(TrainConfig, values, source))


def take_file(app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """Fill what no flag has set from the file or the recipe that --config or --recipe names."""
    config, recipe = (_word_of(arguments, flag) for flag in ("--config", "--recipe"))
    if config is None and recipe is None and commands[-1:] == ("train",):
        config = _settings_of_run(arguments)
    file = read_settings(config, recipe)
    if file is None:
        return
    from cyclopts import Token
    from cyclopts.config import Dict

    values, _, source = file
    # Each setting of the method by itself: cyclopts would take all of them for given where one flag is.
    for argument in (one for one in arguments if "--settings" in one.names):
        given = {token.keys for token in argument.tokens}
        for name, value in values.pop("settings", {}).items():
            if all((spelling,) not in given for spelling in (name, name.replace("_", "-"))):
                argument.append(Token(value=str(value), source=source, keys=(name,)))
    Dict(values, use_commands_as_keys=False, source=source)(app, commands, arguments)


def run_folder(data: Path) -> Path:
    """Where a run goes unless --out tells it."""
    return Path("runs") / (data.resolve().name or "run")


def _settings_of_run(arguments: "ArgumentCollection") -> str | None:
    """The file with the settings of a run that goes on, or that --answers were given about; said."""
    from sparselabel.progress import status_console
    from sparselabel.run import Run

    data, out, answers = (_word_of(arguments, name) for name in ("DATA", "--out", "--answers"))
    if _word_of(arguments, "--resume") is not None and data is not None:
        run = Run(Path(out) if out else run_folder(Path(data)))
    elif answers is not None:
        run = Run(Path(answers).parent)
    else:
        return None
    if not run.config_file.is_file():
        return None
    if answers is not None and _word_of(arguments, "--quiet") is None:
        status_console().print(f"settings are taken from {run.path} unless flags set them")
    return str(run.config_file)


def note_flags(app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """Record the flags of the command, and which of them are set by words or a file; others may be chosen."""
    FLAGS.clear()
    FLAGS.update(name for argument in arguments for name in argument.names)
    GIVEN_FLAGS.clear()
    GIVEN_FLAGS.update(name for argument in arguments if argument.tokens for name in argument.names)


def _flag(name: str, value: str | None) -> str | None:
    """A parameter of the library as a flag of the command at hand; None if it has no such flag."""
    flag = f"--{name.replace('_', '-')}"
    if flag not in FLAGS and not (flag.startswith("--settings.") and "--settings" in FLAGS):
        return None
    return flag if value in (None, "True") else f"{flag} {value}"


def _in_shell(words: str, parameters: Mapping[str, str | None]) -> str:
    """A command of ours with its flags."""
    flags = [
        f"--{name.replace('_', '-')}{'' if value is None else f' {value}'}"
        for name, value in parameters.items()
    ]
    return f"`{' '.join([words, *flags])}`"


AS_FLAGS = Spelling(_flag, _in_shell)
"""As the command at hand has it."""


def refuse_fractions(app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """A fraction where a whole number is wanted: cyclopts would round it without a word."""
    for argument in arguments:
        for token in argument.tokens if _is_whole(argument.hint) else ():
            if _is_fraction(token.value):
                raise ConfigError(f"{argument.name} must be a whole number, not {token.value}")


def _word_of(arguments: "ArgumentCollection", flag: str) -> str | None:
    tokens = next((argument.tokens for argument in arguments if flag in argument.names), None)
    return tokens[-1].value if tokens else None


def read_settings(
    config: str | None, recipe: str | None
) -> "tuple[dict[str, Any], Recipe | None, str] | None":
    """The settings of a file or a recipe, its [recipe] table, and its name."""
    from sparselabel.config import TrainConfig, take_recipe
    from sparselabel.file_formats import naming, parse_toml, read_toml
    from sparselabel.recipes import text_of
    from sparselabel.schema import checked

    if config is not None and recipe is not None:
        problem = f"--config {config} and --recipe {recipe} cannot both be given"
        raise ConfigError(problem, "copy one and change it")
    if config is None and recipe is None:
        return None
    source = f"recipe {recipe}" if config is None else config
    if config is not None and not Path(config).is_file():
        raise ConfigError(f"there is no configuration file {config}")
    values = parse_toml(text_of(str(recipe)), source) if config is None else read_toml(Path(config))
    about = take_recipe(values, source)
    if "config" in values:
        raise ConfigError(f"{source} names another file (config): one file has all settings")
    for name, default in vars(TrainConfig()).items():
        if isinstance(default, dict) or is_dataclass(default):
            checked(dict[str, Any], values.get(name, {}), name, source)
    with naming(source):
        solved = _is_solved(values.get("method"))
    if solved:
        values.get("head", {}).pop("epochs", None)  # one, for itself: another method has its own number
    return values, about, source


def _is_solved(method: object) -> bool:
    """Whether a method of a file computes its head, which has no epochs then."""
    from sparselabel.config import AUTO
    from sparselabel.losses.registry import needs_of, parse

    return isinstance(method, str) and method != AUTO and needs_of(parse(method).base, {}).solves


def _is_whole(hint: Any) -> bool:
    """Whether a type has whole numbers and no others: int, a list of them, or None beside them."""
    kinds = {part for part in get_args(hint) or (hint,) if part is not NoneType}
    if any(get_origin(kind) is list for kind in kinds):
        kinds = {part for kind in kinds for part in get_args(kind)}
    return kinds == {int}


def _is_fraction(text: str) -> bool:
    try:
        return not float(text).is_integer()
    except (ValueError, OverflowError):
        return False
