"""Failures in words, with exit codes."""

import errno
import json
from typing import Any

import pytest
import typer

from spec_cli.cli.guard import describe, guard, wanted_format, with_flags
from spec_cli.cli.options import parse_size
from spec_cli.core.errors import InsufficientMemoryError, ModelUnavailableError, UsageError


def caught(error: BaseException, **how: Any) -> int:
    """Exit code that a failure becomes."""
    with pytest.raises(typer.Exit) as exit_info, guard(**how):
        raise error
    return exit_info.value.exit_code


class OutOfMemoryError(RuntimeError):
    """What torch calls its own."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("?"), 1),
        (UsageError("?"), 2),
        (ModelUnavailableError("?"), 3),
        (InsufficientMemoryError("?"), 5),
        (MemoryError(), 5),
        (OutOfMemoryError("CUDA out of memory"), 5),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 5),
        (OSError(errno.ENOSPC, "No space left on device", "/tmp/x"), 1),
        (BrokenPipeError(), 0),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    """Every kind of failure has its exit code."""
    assert caught(error) == code


def test_hints_are_lined_up(capsys: pytest.CaptureFixture[str]) -> None:
    """What happened, then what to try, one suggestion a line."""
    caught(ModelUnavailableError("it is gone.", hint="one\ntwo"))

    assert capsys.readouterr().err == "Error: it is gone.\nTry: one\n     two\n"


def test_unexpected_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A failure nobody thought of shows its kind and first line, and how to see more."""
    caught(ValueError("first\nsecond"))

    error = capsys.readouterr().err
    assert error.startswith("Error: ValueError: first\nTry: ")
    assert "--debug" in error
    assert "second" not in error


def test_interrupt_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C prints nothing, but is an object in JSON."""
    caught(KeyboardInterrupt(), output_format="json")

    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["error"]["code"] == "interrupted"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("top_k must be at least -1, got -5.", "--top-k must be at least -1, got -5."),
        ("seed must be a whole number.", "--seed must be a whole number."),
        ("ngram_min is 4, above ngram_max.", "--ngram-min is 4, above --ngram-max."),
        ("cannot read /tmp/top_k/top_p.txt: gone.", "cannot read /tmp/top_k/top_p.txt: gone."),
        ("the seed is odd.", "the seed is odd."),
    ],
)
def test_fields_become_flags(message: str, told: str) -> None:
    """Messages about fields are about flags; words and paths stay as they are."""
    assert with_flags(message) == told
    assert describe(UsageError(message)).message == told


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["generate", "--json"], "json"),
        (["generate", "-o", "jsonl", "x"], "jsonl"),
        (["generate", "--output-format=json"], "json"),
        (["generate", "-ojson"], "json"),
        (["generate", "about json"], "text"),
    ],
)
def test_format_of_arguments_that_do_not_parse(arguments: list[str], expected: str) -> None:
    """The format is known even where the parser gave up."""
    assert wanted_format(arguments) == expected


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4e9), ("512mb", 512e6), ("1.5GiB", 1.5 * 2**30), ("1k", 1000), ("77", 77)],
)
def test_sizes(text: str, size: float) -> None:
    """Sizes in units of ten and of two."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "GB", "-1GB", "1XB", "1e9"])
def test_no_size(text: str) -> None:
    """What is no size is refused."""
    with pytest.raises(UsageError, match="size such as"):
        parse_size(text)
