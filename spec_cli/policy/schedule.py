"""Draft lengths by batch size, as the user wrote them: `--k-schedule 1-4:5,5-8:3,9-:0`.

The form is vLLM's dynamic speculative decoding ladder, with ranges a person can read.
"""

import re
from dataclasses import dataclass

from spec_cli.core.config import MAX_DRAFT_TOKENS
from spec_cli.core.errors import UsageError
from spec_cli.core.events import SpeculationState
from spec_cli.policy.base import RowOutlook, UnlearningPolicy

_RUNG = re.compile(r"(\d+)(?:(-)(\d*))?:(\d+)", re.ASCII)
_HINT = "--k-schedule 1-4:5,5-8:3,9-:0"


@dataclass(frozen=True, slots=True)
class Rung:
    """One range of batch sizes.

    Attributes:
        first: Smallest number of decoding rows.
        last: Largest, or None for no end.
        num_draft_tokens: Draft length in this range; 0 drafts nothing.
    """

    first: int
    last: int | None
    num_draft_tokens: int


def parse_schedule(text: str) -> tuple[Rung, ...]:
    """Read `FIRST-LAST:K` ranges, separated by commas, that cover 1 row upwards without holes.

    Raises:
        UsageError: It is not of that form; the message names the fault.
    """
    rungs: list[Rung] = []
    for part in text.split(","):
        rung = _parse_rung(part.strip(), text)
        _check_follows(rungs[-1] if rungs else None, rung, text)
        rungs.append(rung)
    last = rungs[-1].last
    if last is not None:
        raise UsageError(
            f"schedule '{text}' says nothing for {last + 1} rows and more: "
            f"its last range must be open, as in '{last + 1}-:0'.",
            hint=_HINT,
        )
    return tuple(rungs)


def _parse_rung(part: str, text: str) -> Rung:
    match = _RUNG.fullmatch(part)
    if match is None:
        raise UsageError(
            f"schedule '{text}': '{part}' is not of the form FIRST-LAST:K or FIRST-:K.", hint=_HINT
        )
    first = int(match[1])
    last = first if match[2] is None else int(match[3]) if match[3] else None
    num_draft_tokens = int(match[4])
    if first < 1:
        raise UsageError(f"schedule '{text}': '{part}' starts below 1 row.", hint=_HINT)
    if last is not None and last < first:
        raise UsageError(f"schedule '{text}': '{part}' ends before it starts.", hint=_HINT)
    if num_draft_tokens > MAX_DRAFT_TOKENS:
        raise UsageError(
            f"schedule '{text}': '{part}' asks for {num_draft_tokens} draft tokens; "
            f"at most {MAX_DRAFT_TOKENS} are possible.",
            hint=_HINT,
        )
    return Rung(first, last, num_draft_tokens)


def _check_follows(before: Rung | None, rung: Rung, text: str) -> None:
    """Each range must start where the one before it ended."""
    if before is None:
        expected = 1
    elif before.last is None:
        raise UsageError(
            f"schedule '{text}': a range follows '{before.first}-', which has no end.", hint=_HINT
        )
    else:
        expected = before.last + 1
    if rung.first > expected:
        missing = f"{expected}" if rung.first == expected + 1 else f"{expected} to {rung.first - 1}"
        raise UsageError(f"schedule '{text}' has a gap: no length for {missing} rows.", hint=_HINT)
    if rung.first < expected:
        raise UsageError(
            f"schedule '{text}' has an overlap or is out of order: "
            f"the range from {rung.first} should start at {expected}.",
            hint=_HINT,
        )


class SchedulePolicy(UnlearningPolicy):
    """The draft length the schedule has for the number of decoding rows.

    Args:
        rungs: Ranges from 1 row upwards without holes, as `parse_schedule` returns them.
    """

    def __init__(self, rungs: tuple[Rung, ...]) -> None:
        self._rungs = rungs
        never = all(rung.num_draft_tokens == 0 for rung in rungs)
        self._state = SpeculationState("off", "the schedule has no drafts") if never else _ON

    def choose(self, rows: tuple[RowOutlook, ...], num_prefill_tokens: int) -> tuple[int, ...]:
        """The same length for every row, where the row allows it."""
        del num_prefill_tokens
        if not rows:
            return ()
        length = self._length(len(rows))
        if self._state.mode != "off":
            reason = f"the schedule has no drafts at {len(rows)} rows"
            self._state = _ON if length else SpeculationState("paused", reason)
        return tuple(min(length, row.max_draft_tokens) for row in rows)

    def _length(self, num_rows: int) -> int:
        for rung in self._rungs:
            if rung.last is None or num_rows <= rung.last:
                return rung.num_draft_tokens
        raise AssertionError("a schedule covers every number of rows")

    @property
    def state(self) -> SpeculationState:
        """On, paused at this batch size, or off."""
        return self._state


_ON = SpeculationState("on")
