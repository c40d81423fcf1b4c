"""The command line, run in this process, as a process of its own, and in a terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pexpect
from typer.testing import CliRunner, Result

from spec_cli.cli.main import app

COMMAND = [sys.executable, "-m", "spec_cli"]
ROOT = Path(__file__).parents[2]


def invoke(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command in this process; its stdin is no terminal."""
    return CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)


def invoke_json(*arguments: object, stdin: str | None = None) -> dict[str, Any]:
    """The JSON that a command prints."""
    result = invoke(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def run(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command as a process, its output in pipes."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )


def terminal(*arguments: object) -> pexpect.spawn:
    """Run a command in a pseudo-terminal."""
    return pexpect.spawn(
        COMMAND[0],
        [*COMMAND[1:], *map(str, arguments)],
        cwd=str(ROOT),
        env=dict(os.environ),
        encoding="utf-8",
        timeout=40,
        dimensions=(40, 200),
    )
