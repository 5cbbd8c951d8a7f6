"""The command ``sparselabel``: one module per verb, flags from typed functions and dataclasses.

Modules of this package import torch only inside the functions that need it, so that help is instant.
"""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from sparselabel.cli import (
    compare,
    data,
    demo,
    differ,
    evaluate,
    expect,
    figure,
    methods,
    prepare,
    recipes,
    train,
)
from sparselabel.errors import DISK_FULL, MAKE_ROOM, ConfigError, DataWarning, SparselabelError

app = App(
    name="sparselabel",
    help="Train multi-label image classifiers from sparse annotations.",
    help_epilogue="Start with `sparselabel demo`, or `sparselabel prepare table labels.csv --out DIR`.",
    version_flags=["--version"],
    default_parameter=Parameter(negative=()),
)
app.suppress_keyboard_interrupt = app.meta.suppress_keyboard_interrupt = False  # main says how to go on
app.command(prepare.app)
app.command(data.data)
app.command(methods.methods)
app.command(recipes.recipes)
app.command(expect.expect)
app.command(train.train)
app.command(evaluate.evaluate)
app.command(compare.compare)
app.command(differ.differ)
app.command(figure.app)
app.command(demo.demo)


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Path | None = None,
    recipe: str | None = None,
) -> Any:
    """Run a command.

    Parameters
    ----------
    config
        TOML file with the command's settings, nested flags as tables; a flag beats the file.
    recipe
        The same from a published table's recipe (`sparselabel recipes` lists them).
    """
    app.config, told = _settings(config, recipe)
    command, given, left_out = app.parse_args(tokens)
    # compare takes more from a recipe than its configuration; the flags --config and --recipe are read here.
    more = {"told": told} if "told" in left_out else {}
    return command(*given.args, **given.kwargs, **more)


def _settings(config: Path | None, recipe: str | None) -> tuple[Any, compare.Told | None]:
    """What a file or a recipe sets, in the form that the command line takes; and what the recipe tells."""
    if config is not None and recipe is not None:
        raise ConfigError(
            f"--config {config} and --recipe {recipe} cannot both be given: copy one and change it"
        )
    if recipe is not None:
        from sparselabel.recipes import text_of

        return _read(text_of(recipe), f"recipe {recipe}")
    if config is None:
        return (), None
    if not config.is_file():
        raise ConfigError(f"there is no configuration file {config}")
    try:
        return _read(config.read_text(encoding="utf-8"), str(config))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{config} is not TOML: {error}") from error


def _read(text: str, source: str) -> tuple[Any, compare.Told | None]:
    import tomllib

    from cyclopts.config import Dict

    from sparselabel.config import take_recipe

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}") from error
    about = take_recipe(values, source)
    settings = Dict(values, use_commands_as_keys=False, source=source)
    return settings, None if about is None else compare.Told(about, values.get("settings", {}))


def main() -> None:
    """Run the command; an error of ours is one clear message, not a traceback."""
    warnings.showwarning = _say_warning
    try:
        app.meta(sys.argv[1:], result_action="return_value")
    except SparselabelError as error:
        _say("error", str(error))
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        _say("stopped", "a training run can go on with --resume")
        sys.exit(130)
    except OSError as error:
        if error.filename is None and error.errno not in DISK_FULL:
            raise  # not about a file: a defect, whose traceback helps
        where, full = error.filename or "a file", error.errno in DISK_FULL
        what = "could not be written" if full else "could not be used"
        hint = MAKE_ROOM if full else "check its name and permissions"
        _say("error", f"{where} {what}: {error.strerror}; {hint}")
        sys.exit(1)


def _say(kind: str, text: str) -> None:
    print(f"sparselabel: {kind}: {text}", file=sys.stderr)  # noqa: T201


def _say_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if issubclass(category, DataWarning):
        _say("warning", str(message))
    elif issubclass(category, UserWarning):
        _say("note", f"{category.__name__}: {message}")
