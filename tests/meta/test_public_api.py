"""The public surface: what it is, and what it costs to import."""

import subprocess
import sys
from pathlib import Path

import pytest

import spec_cli

ROOT = Path(__file__).parents[2]
SLOW_LIBRARIES = {"accelerate", "huggingface_hub", "rich", "torch", "transformers", "typer"}


def loaded_by(code: str) -> set[str]:
    """Which of the slow libraries a fresh interpreter has loaded after running `code`."""
    report = "\nimport sys; print('LOADED', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code + report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return SLOW_LIBRARIES & set(done.stdout.rpartition("LOADED")[2].split())


def test_names_are_sorted_and_listed() -> None:
    """`__all__` is sorted as ruff sorts it, constants first, and is what dir shows."""
    assert spec_cli.__all__ == [
        "LLM",
        "CompletionOutput",
        "RequestOutput",
        "SamplingParams",
        "SpecCliError",
        "TextDelta",
        "__version__",
    ]
    assert dir(spec_cli) == sorted(spec_cli.__all__)


@pytest.mark.parametrize("name", spec_cli.__all__)
def test_name_can_be_imported(name: str) -> None:
    """Every public name is there, and is the object it is named after."""
    value = getattr(spec_cli, name)

    assert name == "__version__" or value.__name__ == name


def test_unknown_name_is_an_attribute_error() -> None:
    """A name that is not public is refused as by any module."""
    with pytest.raises(AttributeError, match="no attribute 'Engine'"):
        _ = spec_cli.Engine


def test_import_is_light() -> None:
    """Importing the package, and the names that need no model, loads no slow library."""
    code = "import spec_cli; spec_cli.SamplingParams, spec_cli.TextDelta, spec_cli.SpecCliError"

    assert loaded_by(code) == set()


def test_slow_library_is_seen() -> None:
    """The probe itself notices a slow library."""
    assert "typer" in loaded_by("import typer")


def test_help_loads_no_model_library() -> None:
    """`spec-cli --help` answers without torch and its kin."""
    code = (
        "import sys; sys.argv = ['spec-cli', '--help']\n"
        "from spec_cli.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code"
    )

    assert loaded_by(code) <= {"rich", "typer"}
