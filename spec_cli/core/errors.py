"""Every failure a user can cause or meet, with its exit code.

    SpecCliError                 1  unexpected failure
    ├── UsageError               2  bad value, contradictory options
    │   └── UntrustedCodeError   2  code in a model folder without permission
    ├── ModelUnavailableError    3  not found, incomplete, offline, gated
    ├── DraftIncompatibleError   4  target and draft do not fit together
    ├── InsufficientMemoryError  5  weights or key-value cache do not fit
    └── ContextLengthError       6  the prompt does not fit the context

A message says what happened and why, with the numbers; `hint` holds commands or changes to try.
"""

from typing import ClassVar


class SpecCliError(Exception):
    """A failure with one clear message.

    Attributes:
        code: Stable machine-readable name, as in the JSON report.
        exit_code: Exit status of the command line.
        hint: What to try, one suggestion per line, or None.
    """

    code: ClassVar[str] = "failure"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(SpecCliError, ValueError):
    """A value or combination of options that cannot work."""

    code = "usage"
    exit_code = 2


class UntrustedCodeError(UsageError):
    """A model folder ships Python code and nobody allowed it to run."""

    code = "code_not_trusted"


class ModelUnavailableError(SpecCliError):
    """A model cannot be had: missing, incomplete, gated, or not cached while offline."""

    code = "model_unavailable"
    exit_code = 3


class DraftIncompatibleError(SpecCliError):
    """The draft model does not fit the target."""

    code = "draft_incompatible"
    exit_code = 4


class InsufficientMemoryError(SpecCliError, MemoryError):
    """Weights or key-value cache do not fit into the memory at hand."""

    code = "out_of_memory"
    exit_code = 5


class ContextLengthError(SpecCliError, ValueError):
    """A prompt is longer than the context."""

    code = "context_length"
    exit_code = 6


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line; its kind if it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
