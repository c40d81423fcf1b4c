"""`spec-cli config`: the settings in force and where they come from."""

import json as json_format
from typing import Annotated, Any

import typer
from rich.console import Console

from spec_cli.cli.config_file import (
    config_path,
    environment_value,
    option_names,
    read_settings,
)
from spec_cli.cli.guard import guard
from spec_cli.cli.options import option
from spec_cli.cli.stdout import write_out

_OWN = frozenset({"help", "debug", "install_completion", "show_completion"})

config = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@config.callback()
def _about() -> None:
    """Show the settings in force, or where they are kept."""


@config.command()
def path() -> None:
    """Print the path of the settings file."""
    with guard():
        write_out(f"{config_path()}\n")


@config.command()
def show(
    context: typer.Context,
    command: Annotated[
        str, typer.Argument(metavar="[COMMAND]", help="Whose options; generate if left out.")
    ] = "generate",
    json: Annotated[bool, option("--json", panel="Output", help="As one JSON object.")] = False,
) -> None:
    """Print every option of a command, its value, and whether env, file or default set it."""
    with guard("json" if json else "text"):
        application: Any = context.find_root().command
        commands = application.commands
        if command not in commands:
            known = ", ".join(sorted(commands))
            raise typer.BadParameter(f"there is no command {command!r}: {known}.")
        rows = _rows(commands[command], context.find_root().obj)
        if json:
            record = {name: {"value": value, "origin": origin} for name, value, origin in rows}
            write_out(json_format.dumps(record, ensure_ascii=False, indent=2) + "\n")
            return
        console = Console(highlight=False, markup=False, emoji=False)
        for name, value, origin in rows:
            style = None if origin != "default" else "dim"
            console.print(f"{name:<26} {_shown(value):<28} {origin}", style=style, soft_wrap=True)
        if not config_path().exists():
            console.print(f"There is no settings file; it would be {config_path()}", soft_wrap=True)


def _rows(command: Any, profile: str | None) -> list[tuple[str, Any, str]]:
    settings = read_settings(config_path(), profile)
    rows = []
    for parameter in command.params:
        names = option_names(parameter)
        if not names or parameter.name in _OWN:
            continue
        value, origin = parameter.default, "default"
        for name in names & settings.keys():
            value, origin = settings[name].value, settings[name].origin
        from_environment = environment_value(parameter)
        if from_environment is not None:
            value, origin = from_environment, "env"
        rows.append((parameter.name, value, origin))
    return rows


def _shown(value: Any) -> str:
    if value is None or value is False:
        return "-" if value is None else "false"
    return "true" if value is True else str(value)
