"""How work that takes a while tells where it stands, before the first token."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

StageName = Literal["download", "convert", "load", "pack", "shape", "calibrate"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One report of progress; a later one with the same stage and subject replaces it.

    Attributes:
        stage: Kind of work.
        what: Its subject in words, such as the model's name.
        done: Amount done (bytes of a download, otherwise pieces), or None where it is unknown.
        total: Amount there is in all, or None where it is unknown.
    """

    stage: StageName
    what: str
    done: int | None = None
    total: int | None = None


ReportStage = Callable[[Stage], None]
