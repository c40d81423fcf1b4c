"""Settings from a file: defaults of options, by profile, below the environment and flags."""

import difflib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from spec_cli.core.errors import UsageError

_PROFILES = "profiles"
_KINDS = (str, bool, int, float, list)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it comes from.

    Attributes:
        value: As in the file.
        origin: `file`, or the name of a profile.
    """

    value: Any
    origin: str


def config_path() -> Path:
    """Where settings are read from, whether it is there or not."""
    return user_config_path("spec-cli") / "config.toml"


def read_settings(path: Path, profile: str | None) -> dict[str, Setting]:
    """Settings of a file, those of a profile over the general ones.

    Args:
        path: The file; none is an empty one, unless a profile is asked for.
        profile: Name of the profile, or None.

    Returns:
        By the name of the option, with underscores.

    Raises:
        UsageError: The file cannot be read, is no TOML, or lacks the profile.
    """
    content = _parse(path)
    profiles = content.pop(_PROFILES, {})
    if not isinstance(profiles, dict):
        raise UsageError(f"{path}: profiles are tables, such as [profiles.fast].")
    settings = _table(path, content, "file")
    if profile is not None:
        if profile not in profiles:
            known = ", ".join(sorted(profiles)) or "none"
            raise UsageError(f"there is no profile {profile!r} in {path}; there is {known}.")
        settings |= _table(path, profiles[profile], f"profile {profile}")
    return settings


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error


def _table(path: Path, table: Any, origin: str) -> dict[str, Setting]:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {origin} must be a table.")
    settings = {}
    for key, value in table.items():
        if not isinstance(value, _KINDS):
            raise UsageError(f"{path}: {key} must be a text, a number, true, false or a list.")
        settings[key.replace("-", "_")] = Setting(value, origin)
    return settings


def option_names(parameter: Any) -> set[str]:
    """The names by which a file may set an option: its own and its long flags."""
    flags = {
        flag[2:].replace("-", "_")
        for flag in parameter.opts
        if flag.startswith("--") and parameter.param_type_name == "option"
    }
    return flags | {parameter.name} if flags else set()


def default_map(
    commands: dict[str, Any], settings: dict[str, Setting], path: Path
) -> dict[str, dict[str, Any]]:
    """Defaults for the options of each command.

    Args:
        commands: The commands of the application by name.
        settings: As read.
        path: Of the file, for messages.

    Raises:
        UsageError: A setting is no option of any command; the message names the nearest.
    """
    found: dict[str, dict[str, Any]] = {}
    unused = set(settings)
    known: set[str] = set()
    for command_name, command in commands.items():
        for parameter in command.params:
            names = option_names(parameter)
            known |= names
            for name in names & settings.keys():
                unused.discard(name)
                found.setdefault(command_name, {})[parameter.name] = settings[name].value
    for name in sorted(unused):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"{near[0]} = ..." if near else None
        raise UsageError(f"{path}: {name} ({settings[name].origin}) is no option.", hint=hint)
    return found


def environment_value(parameter: Any) -> str | None:
    """What the environment says of an option, or None."""
    names = parameter.envvar if isinstance(parameter.envvar, list) else [parameter.envvar]
    return next((os.environ[name] for name in names if name and os.environ.get(name)), None)


def take_profile(arguments: list[str]) -> tuple[list[str], str | None]:
    """Take `--profile NAME` out of arguments, wherever it stands before `--`.

    Raises:
        UsageError: It has no name.
    """
    left: list[str] = []
    profile = os.environ.get("SPEC_CLI_PROFILE") or None
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return [*left, argument, *rest], profile
        if argument == "--profile" or argument.startswith("--profile="):
            _, _, name = argument.partition("=")
            profile = name or next(rest, "")
            if not profile:
                raise UsageError("--profile needs a name.")
        else:
            left.append(argument)
    return left, profile
