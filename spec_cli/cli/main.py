"""The application and its commands."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spec_cli import __version__
from spec_cli.cli.chat import chat
from spec_cli.cli.check import check
from spec_cli.cli.compare import compare
from spec_cli.cli.config import config
from spec_cli.cli.config_file import config_path, default_map, read_settings, take_profile
from spec_cli.cli.generate import generate
from spec_cli.cli.grouping import with_groups
from spec_cli.cli.guard import Failure, describe, exit_with, wanted_format
from spec_cli.cli.models import models
from spec_cli.cli.stdout import discard_output
from spec_cli.cli.trace import trace
from spec_cli.core.errors import SpecCliError

_EPILOG = (
    "Every option can be set by the environment: SPEC_CLI_ and its long name, such as"
    " SPEC_CLI_MODEL or SPEC_CLI_MAX_TOKENS."
)


class _Commands(TyperGroup):
    """Commands whose usage errors look like every other error."""

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; the process ends with its exit code."""
        given = sys.argv[1:] if args is None else list(args)
        try:
            left, extra["obj"] = take_profile(given)
            code = super().main(left, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            code = 130
        except SpecCliError as error:
            code = exit_with(describe(error), wanted_format(given))
        except typer.TyperException as error:
            code = exit_with(_usage_failure(error), wanted_format(given))
        except SystemExit as error:
            # Help and tables: rich and typer end the process with 1 when the reader has gone.
            if not isinstance(error.__context__, BrokenPipeError):
                raise
            discard_output()
            code = 0
        if not standalone_mode:
            return code
        sys.exit(code)


def _usage_failure(error: typer.TyperException) -> Failure:
    context = getattr(error, "ctx", None)
    path = "spec-cli" if context is None else context.command_path
    return Failure("usage", 2, error.format_message(), f"{path} --help")


app = typer.Typer(
    cls=_Commands,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Settings of the config file to use."),
    ] = None,
) -> None:
    """Run local language models faster by guessing ahead and checking the guesses."""
    del profile  # taken out of the arguments before, as it may stand anywhere
    if version:
        typer.echo(f"spec-cli {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
    if context.invoked_subcommand != "config":  # which has to work with a broken file
        path = config_path()
        commands: dict[str, Any] = context.command.commands  # type: ignore[attr-defined]
        context.default_map = default_map(commands, read_settings(path, context.obj), path)


app.command(epilog=_EPILOG)(with_groups(generate))
app.command(epilog=_EPILOG)(with_groups(chat))
app.command(epilog=_EPILOG)(with_groups(check))
app.command(epilog=_EPILOG)(with_groups(compare))
app.command(epilog=_EPILOG)(with_groups(trace))
app.command(epilog=_EPILOG)(with_groups(models))
app.add_typer(config, name="config")
