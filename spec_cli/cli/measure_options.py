"""Options of how `spec-cli compare` measures."""

import math
from dataclasses import dataclass
from typing import Annotated

from spec_cli.bench.arrivals import check_rate
from spec_cli.cli.options import option
from spec_cli.core.errors import UsageError

_RUN = "Measurement"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """How it is measured."""

    repeats: Annotated[
        int | None,
        option(
            "-r",
            "--repeats",
            metavar="N",
            panel=_RUN,
            help="Rounds of the tables: 3, or 1 before a load sweep.",
        ),
    ] = None
    warmup: Annotated[
        int, option("--warmup", metavar="N", panel=_RUN, help="Rounds that are not counted.")
    ] = 1
    batch: Annotated[
        str | None,
        option(
            "--batch",
            metavar="LIST",
            panel=_RUN,
            help="Batch sizes, such as 1,4,8: 1, or 1,8 before a load sweep.",
        ),
    ] = None
    input_len: Annotated[
        str | None,
        option(
            "--input-len",
            metavar="LIST",
            panel=_RUN,
            help="Prompts of exactly so many tokens, cut from the workload, such as 64,512,2048.",
        ),
    ] = None
    output_len: Annotated[
        str | None,
        option(
            "--output-len",
            metavar="LIST",
            panel=_RUN,
            help="Tokens to generate, such as 32,256; one value is the same as --max-tokens.",
        ),
    ] = None
    rate: Annotated[
        str | None,
        option(
            "--rate",
            metavar="LIST",
            panel=_RUN,
            help="Load sweep: requests per second, such as 0.5,1,2,4,8,inf.",
        ),
    ] = None
    num_requests: Annotated[
        int | None,
        option(
            "--num-requests", metavar="N", panel=_RUN, help="Most requests per arm and rate; 32."
        ),
    ] = None
    max_seconds: Annotated[
        float | None,
        option("--max-seconds", metavar="S", panel=_RUN, help="Most seconds of the sweep; 480."),
    ] = None
    slo: Annotated[
        str | None,
        option(
            "--slo",
            metavar="LIMITS",
            panel=_RUN,
            help="Limits in ms that goodput counts by, such as ttft:500,tpot:100.",
        ),
    ] = None
    check: Annotated[
        bool,
        option("--check", panel=_RUN, help="Prove that texts are equal or near-ties; else exit 7."),
    ] = False
    fail_under: Annotated[
        float | None,
        option(
            "--fail-under",
            metavar="X",
            panel=_RUN,
            help="Exit 7 if an arm's speed-up at the first batch size is below this.",
        ),
    ] = None

    def batches(self) -> list[int]:
        """Batch sizes, ascending.

        A sweep needs a large one: how fast it is tells how many requests can be answered in time.

        Raises:
            UsageError: One is no whole number of at least 1.
        """
        default = "1" if self.rate is None else "1,8"
        given = default if self.batch is None else self.batch
        return _whole_numbers("batch", given, 1)

    def input_lengths(self) -> list[int]:
        """Prompt lengths, ascending; none leaves prompts as they are.

        Raises:
            UsageError: One is no whole number of at least 1.
        """
        return [] if self.input_len is None else _whole_numbers("input_len", self.input_len, 1)

    def output_lengths(self) -> list[int]:
        """Answer lengths, ascending; none is --max-tokens.

        Raises:
            UsageError: One is no whole number of at least 2.
        """
        return [] if self.output_len is None else _whole_numbers("output_len", self.output_len, 2)

    def rates(self) -> list[float]:
        """Request rates, ascending.

        Raises:
            UsageError: One is zero, negative or no number.
        """
        found = set()
        for part in (self.rate or "").split(",") if self.rate is not None else []:
            try:
                found.add(check_rate(float(part)))
            except ValueError as error:
                if isinstance(error, UsageError):
                    raise
                raise UsageError(f"rate takes numbers and inf; got {part.strip()!r}.") from error
        return sorted(found)

    def check_values(self, *, has_sweep: bool = False) -> None:
        """Refuse what cannot be, and what would have no effect.

        Args:
            has_sweep: Whether there is a load sweep even without --rate.

        Raises:
            UsageError: The message names the option.
        """
        for name, value, low in (
            ("repeats", self.repeats, 1),
            ("warmup", self.warmup, 0),
            ("num_requests", self.num_requests, 1),
        ):
            if value is not None and value < low:
                raise UsageError(f"{name} must be at least {low}, got {value}.")
        for name in ("max_seconds", "fail_under"):
            number = getattr(self, name)
            if number is not None and not 0.0 < number < math.inf:
                raise UsageError(f"{name} must be above 0, got {number:g}.")
        if self.rate is None and not has_sweep:
            for name in ("num_requests", "max_seconds", "slo"):
                if getattr(self, name) is not None:
                    raise UsageError(f"{name} has no effect without --rate.")


def _whole_numbers(name: str, text: str, low: int) -> list[int]:
    found = set()
    for part in text.split(","):
        word = part.strip()
        if not (word.isascii() and word.isdecimal() and int(word) >= low):
            raise UsageError(f"{name} takes whole numbers of at least {low}; got {word!r}.")
        found.add(int(word))
    return sorted(found)
