"""The parser of the `imix` command, built with cyclopts from the functions of the subcommands."""

from collections.abc import Callable
from typing import Any, get_args

from cyclopts import App, ArgumentCollection, CoercionError, Parameter

from imix._version import __version__
from imix.cli import commands, explore
from imix.cli.config_file import apply_config_file
from imix.cli.flags import OPTIONS
from imix.cli.reproduce import reproduce

FUNCTIONS: tuple[Callable[..., None], ...] = (
    *(commands.demo, commands.pretrain, commands.evaluate, commands.finetune, commands.predict, commands.embed),
    *(explore.cluster, explore.similar, explore.duplicates, explore.outliers, explore.select, explore.label_errors),
    *(commands.transfer, commands.report, commands.map, commands.export, commands.data, reproduce, commands.bench),
)
COMMANDS = [function.__name__.replace("_", "-") for function in FUNCTIONS]


def show_default(value: Any) -> str | None:
    """Return a default as it would be typed, or None if the flag has no default value."""
    if value in (None, "", (), {}):
        return None
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def refuse_fractions(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise an error for an integer with a decimal point, which cyclopts would round. Called by cyclopts."""
    for argument in arguments:
        if int in (argument.hint, *get_args(argument.hint)):
            for token in argument.tokens:
                if "." in token.value:
                    raise CoercionError(token=token, argument=argument, target_type=int)


def all_flags() -> set[str]:
    """Return the flags of all subcommands."""
    app = build_app()
    arguments = [argument for name in COMMANDS for argument in app[name].assemble_argument_collection()]
    return {name for argument in arguments for name in argument.names}


def build_app() -> App:
    """Return the app with all subcommands, in the order of the help."""
    app = App(
        name="imix",
        help="Contrastive representation learning with i-Mix for any data.",
        version=f"imix {__version__}",
        config=(apply_config_file, refuse_fractions),
        default_parameter=Parameter(consume_multiple=True, negative_iterable=(), show_default=show_default),
        group_parameters=OPTIONS,
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for i, function in enumerate(FUNCTIONS):
        app.command(function, sort_key=i)
    return app
