"""What a command is given: a file or a recipe beside its flags, and whole numbers that are whole.

Both are sources in cyclopts' sense: they see the arguments of the command that was asked for, before any of
them is converted.
"""

from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from sparselabel.errors import ConfigError

if TYPE_CHECKING:
    from cyclopts import App, Argument, ArgumentCollection


@dataclass(frozen=True)
class FromFile:
    """Settings from a file.

    Parameters
    ----------
    config
        TOML file with these settings, nested flags as tables; a flag beats the file.
    """

    config: Path | None = None


@dataclass(frozen=True)
class FromFileOrRecipe(FromFile):
    """Settings from a file, or from a recipe.

    Parameters
    ----------
    recipe
        The same from a published table's recipe (`sparselabel recipes` lists them).
    """

    recipe: str | None = None


FROM_FILE, FROM_FILE_OR_RECIPE = FromFile(), FromFileOrRecipe()


def take_file(app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """Fill what no flag has set from the file or the recipe that --config or --recipe names."""
    config, recipe = (_word_of(arguments, flag) for flag in ("--config", "--recipe"))
    if config is not None and recipe is not None:
        raise ConfigError(
            f"--config {config} and --recipe {recipe} cannot both be given: copy one and change it"
        )
    if recipe is not None:
        from sparselabel.recipes import text_of

        _fill(app, commands, arguments, text_of(recipe), f"recipe {recipe}")
    elif config is not None:
        if not Path(config).is_file():
            raise ConfigError(f"there is no configuration file {config}")
        try:
            text = Path(config).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{config} is not TOML: {error}") from error
        _fill(app, commands, arguments, text, config)


def refuse_fractions(app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """A fraction where a whole number is wanted: cyclopts would round it without a word."""
    for argument in arguments:
        if not _is_whole(argument.hint):
            continue
        for token in argument.tokens:
            if _is_fraction(token.value):
                raise ConfigError(f"{argument.name} must be a whole number, not {token.value}")


def _word_of(arguments: "ArgumentCollection", flag: str) -> str | None:
    found: list[Argument] = [argument for argument in arguments if flag in argument.names]
    return found[0].tokens[-1].value if found and found[0].tokens else None


def _fill(
    app: "App", commands: tuple[str, ...], arguments: "ArgumentCollection", text: str, source: str
) -> None:
    import tomllib

    from cyclopts.config import Dict

    from sparselabel.config import take_recipe

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}") from error
    take_recipe(values, source)
    if "config" in values:
        raise ConfigError(f"{source} names another file (config): one file has all settings")
    Dict(values, use_commands_as_keys=False, source=source)(app, commands, arguments)


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
