"""Who takes part in a step: rows that decode, and pieces of prompts."""

from collections import deque
from dataclasses import dataclass

from spec_cli.core.sequence import Sequence
from spec_cli.engine.active import ActiveRow

_MIN_CHUNK = 32
_FIRST_CHUNK = 128
_MAX_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request without a row."""

    sequence: Sequence
    arrived_s: float


class PrefillBudget:
    """How many prompt tokens a step may process.

    Chunks are sized by measured time, so that an interrupt is answered and rows that decode are
    not held up, whatever the model and the machine.
    """

    def __init__(self, target_s: float) -> None:
        self._target_s = target_s
        self.num_tokens = _FIRST_CHUNK

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step that processed prompt tokens.

        Only a step that used most of the budget tells about its size; growth is at most twofold a
        step, for a larger chunk may be slower per token.
        """
        if num_tokens < self.num_tokens // 2 or seconds <= 0.0:
            return
        wanted = int(num_tokens * self._target_s / seconds)
        grown = min(wanted, 2 * self.num_tokens)
        self.num_tokens = max(_MIN_CHUNK, min(_MAX_CHUNK, grown))


class Scheduler:
    """First come, first served: the queue, and the rows that run.

    Attributes:
        waiting: Requests without a row, oldest first.
        running: Rows, oldest first.
    """

    def __init__(self, max_rows: int, budget: PrefillBudget) -> None:
        self.max_rows = max_rows
        self.budget = budget
        self.waiting: deque[Waiting] = deque()
        self.running: list[ActiveRow] = []

    @property
    def has_work(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self.waiting or self.running)

    @property
    def next_waiting(self) -> Waiting | None:
        """The request to admit next, if there is a row for it."""
        return self.waiting[0] if self.waiting and len(self.running) < self.max_rows else None

    def admit(self, active: ActiveRow) -> None:
        """The oldest waiting request got its row."""
        self.waiting.popleft()
        self.running.append(active)

    def remove(self, active: ActiveRow) -> None:
        """A row is done."""
        self.running.remove(active)

    def decoding(self) -> list[ActiveRow]:
        """The rows that decode."""
        return [active for active in self.running if active.is_decoding]

    def prefill_chunks(self) -> list[tuple[ActiveRow, list[int]]]:
        """The next pieces of unfinished prompts, within the budget, oldest first."""
        chunks = []
        left = self.budget.num_tokens
        for active in self.running:
            if not active.is_decoding and left > 0:
                chunk = active.lacking[:left]
                left -= len(chunk)
                chunks.append((active, chunk))
        return chunks
