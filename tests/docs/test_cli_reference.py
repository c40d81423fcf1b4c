"""The reference of the command line is what the program itself says."""

import subprocess
import sys
from pathlib import Path

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
COMMAND = ("-m", "typer", "spec_cli.cli.main", "utils", "docs", "--name", "spec-cli")


def test_reference_is_up_to_date():
    """docs/reference/cli.md equals what typer makes of the commands; the first line says how."""
    first_line, _, text = REFERENCE.read_text(encoding="utf-8").partition("\n")

    made = subprocess.run(
        [sys.executable, *COMMAND],
        capture_output=True,
        check=True,
        encoding="utf-8",
        cwd=REFERENCE.parents[2],
    ).stdout

    assert " ".join(COMMAND) in first_line
    assert text.strip() == made.strip(), "run the command of its first line and replace the rest"
