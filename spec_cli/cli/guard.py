"""Every failure becomes one message and an exit code; a traceback only with --debug."""

import contextlib
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import typer

from spec_cli.cli.options import FLAGS
from spec_cli.cli.stdout import discard_output
from spec_cli.core.errors import SpecCliError, UsageError

OutputFormat = Literal["text", "json", "jsonl"]

INTERRUPTED = 130
_OUT_OF_MEMORY = 5
# A field at the start of a message, or one that is no ordinary word, but no part of a path.
_FIELD = re.compile(r"(?<![\w/.-])([a-z]+(?:_[a-z]+)+)(?![\w/])")
_FIRST_WORD = re.compile(r"^([a-z_]+)\b")


@dataclass(frozen=True, slots=True)
class Failure:
    """What is told of an error.

    Attributes:
        code: Stable name for programs.
        exit_code: Of the process.
        message: What happened and why.
        hint: What to try, one suggestion a line, or None.
    """

    code: str
    exit_code: int
    message: str
    hint: str | None = None

    def record(self) -> dict[str, Any]:
        """The failure in JSON."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


@dataclass(slots=True)
class Kept:
    """What a failure must not lose.

    Attributes:
        record: Returns what was made so far, to stand beside the error in JSON.
    """

    record: Callable[[], dict[str, Any]] = dict


@contextlib.contextmanager
def guard(output_format: OutputFormat = "text", *, debug: bool = False) -> Iterator[Kept]:
    """Turn whatever goes wrong inside into a message on stderr and `typer.Exit`.

    Args:
        output_format: With `json` and `jsonl` the error is also an object on stdout.
        debug: Print the traceback too.
    """
    kept = Kept()
    try:
        yield kept
        sys.stdout.flush()
    except (typer.Exit, typer.TyperException, SystemExit, GeneratorExit):
        raise
    except BrokenPipeError:
        # Whoever read the output has what they wanted.
        discard_output()
        raise typer.Exit(0) from None
    except BaseException as error:
        if debug:
            traceback.print_exc()
        failure = describe(error)
        raise typer.Exit(exit_with(failure, output_format, **kept.record())) from None


def describe(error: BaseException) -> Failure:
    """The failure in words, with the names of flags instead of those of fields."""
    if isinstance(error, SpecCliError):
        message = str(error)
        if isinstance(error, UsageError):
            message = with_flags(message)
        return Failure(error.code, error.exit_code, message, error.hint)
    if isinstance(error, KeyboardInterrupt):
        return Failure("interrupted", INTERRUPTED, "interrupted.")
    text = str(error).strip().partition("\n")[0]
    # torch.OutOfMemoryError, named without loading torch.
    kind = type(error).__name__
    out_of_memory = isinstance(error, MemoryError) or kind == "OutOfMemoryError"
    if out_of_memory or "can't allocate memory" in text:
        hint = "-c N   a shorter context\n--max-rows N   fewer prompts at once\n--dtype bfloat16"
        message = f"out of memory: {text}" if text else "out of memory."
        return Failure("out_of_memory", _OUT_OF_MEMORY, message, hint)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return Failure("failure", 1, f"{where}{error.strerror}.")
    return Failure("failure", 1, f"{kind}: {text}", "the same again with --debug, for a traceback")


def with_flags(message: str) -> str:
    """A message about fields, about flags."""
    named = _FIRST_WORD.sub(lambda match: FLAGS.get(match[1], match[1]), message)
    return _FIELD.sub(lambda match: FLAGS.get(match[1], match[1]), named)


def exit_with(failure: Failure, output_format: OutputFormat, **more: Any) -> int:
    """Print a failure, in JSON with more beside it; returns the exit code."""
    with contextlib.suppress(OSError):
        if failure.exit_code != INTERRUPTED:
            typer.echo(f"Error: {failure.message}", err=True)
        elif sys.stderr.isatty():
            # The terminal wrote ^C where the cursor was.
            typer.echo("", err=True)
        for number, line in enumerate((failure.hint or "").splitlines()):
            typer.echo(("     " if number else "Try: ") + line, err=True)
    try:
        if output_format == "json":
            typer.echo(json.dumps({"error": failure.record(), **more}, ensure_ascii=False))
        elif output_format == "jsonl":
            record = {"event": "error", "error": failure.record()}
            typer.echo(json.dumps(record, ensure_ascii=False))
        sys.stdout.flush()
    except OSError:
        discard_output()
    return failure.exit_code


def wanted_format(arguments: list[str]) -> OutputFormat:
    """The output format that arguments ask for, where they cannot be parsed."""
    joined = " ".join(arguments).replace("=", " ")
    for name in ("jsonl", "json"):
        if re.search(rf"(^| )(--{name}|(-o|--output-format) ?{name})( |$)", joined):
            return "jsonl" if name == "jsonl" else "json"
    return "text"
