"""Timing forwards on purpose, before the first answer, so that its first step is well chosen.

Learning while answering needs no extra work, but an answer of thirty tokens is over before much is
learnt, and what drafting costs at a batch size can only be learnt by drafting there. A few forwards
of the sizes between which the policy will choose tell it beforehand: at most two seconds of them
for one pair of models on one machine, all sessions together, for they are kept
(calibration_file.py).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Literal

from spec_cli.engine.calibration_file import CalibrationFile
from spec_cli.models.base import Row, RowInput, Runner
from spec_cli.policy.cost import CostSample

BUDGET_S = 2.0
_REPEATS = 3
"""The policy takes the median: one of them may have met a pause of the machine."""
_TOKENS_EACH = (1, 2, 3, 5, 9)
_TOKENS_OF_MANY = (1, 2, 3, 5)
_STEADY = 1.3
"""Median over least of equal forwards, up to which a machine is not busy with other things."""
_MANY_ROWS = 4
"""Rows from which nine tokens for each say little for their price."""
_CATCH_UP_TOKENS = 64
_ID_STRIDE = 7919
"""Tokens of a timed forward differ, for experts and caches serve equal ones too well."""


class Calibration:
    """The measured forwards of a target and perhaps of a draft model."""

    def __init__(
        self,
        target: Runner,
        draft: Runner | None,
        *,
        file: CalibrationFile,
        clock: Callable[[], float],
        first_forward_s: float,
    ) -> None:
        """Read what earlier sessions measured.

        Args:
            target: The target's rows and forward.
            draft: The draft model's, if any.
            file: Where samples are kept.
            clock: Seconds.
            first_forward_s: What a forward of one token may take, at most: none is begun that
                could end after the budget.
        """
        self._runners = (target, draft)
        self._file = file
        self._clock = clock
        self._first_forward_s = first_forward_s
        self.samples, self.spent_s = file.read()
        self._timed = list(self.samples)

    def measure(self, num_rows: int) -> list[CostSample]:
        """Time what is not yet known of steps of one row and of `num_rows`.

        Returns:
            The new samples, none where all is known or the two seconds are spent.
        """
        sizes = sorted({1, num_rows})
        if not any(map(self._is_wanted, sizes)):
            return []
        new = self._read_news()
        spent_before_s = self.spent_s
        for rows in sizes:
            if self._is_wanted(rows):
                measured = self._measure(rows)
                self.samples += measured
                new += measured
        if self.spent_s > spent_before_s and _is_steady(self.samples):
            self._file.write(self.samples, self.spent_s)
        return new

    def _read_news(self) -> list[CostSample]:
        """What others of the same models measured since, in this process or beside it."""
        stored, spent_s = self._file.read()
        if len(stored) <= len(self.samples):
            return []
        news = [sample for sample in stored if sample not in self.samples]
        self.samples, self.spent_s = stored, max(spent_s, self.spent_s)
        self._timed += news
        return news

    def _is_wanted(self, num_rows: int) -> bool:
        """Whether rows are worth reserving: not known, and one step of so many fits the budget."""
        return not self._knows(num_rows) and self._fits("target", num_rows)

    def _knows(self, num_rows: int) -> bool:
        """Whether steps of about as many rows were timed: less than twice as many or as few."""
        return any(
            sample.num_rows == num_rows or 1 < sample.num_rows < 2 * num_rows < 4 * sample.num_rows
            for sample in self.samples
        )

    def _measure(self, num_rows: int) -> list[CostSample]:
        tokens_each = _TOKENS_EACH if num_rows < _MANY_ROWS else _TOKENS_OF_MANY
        target, draft = self._runners
        samples: list[CostSample] = []
        with ExitStack() as stack:
            if draft is not None:
                drafting = stack.enter_context(_rows(draft, num_rows, _CATCH_UP_TOKENS))
            verifying = stack.enter_context(_rows(target, num_rows, max(tokens_each)))
            # In rounds, so that all sizes meet the machine's moods alike.
            for _ in range(_REPEATS):
                if draft is not None:
                    samples += self._time("draft", draft, drafting, 1)
                    if num_rows == 1:
                        samples += self._time("draft", draft, drafting, _CATCH_UP_TOKENS)
                for each in tokens_each:
                    samples += self._time("target", target, verifying, each)
        # A time taken once may be of a pause of the machine, and nothing would tell.
        times = Counter((sample.kind, sample.num_tokens) for sample in samples)
        return [sample for sample in samples if times[sample.kind, sample.num_tokens] > 1]

    def _time(
        self, kind: Literal["target", "draft"], runner: Runner, rows: list[Row], each: int
    ) -> list[CostSample]:
        """Time one forward of `each` tokens a row, if there is time and room for it."""
        num_tokens = len(rows) * each
        if not rows or not self._fits(kind, num_tokens):
            return []
        token_ids = [_ID_STRIDE * i % runner.vocab_size for i in range(each)]
        num_logits = each if kind == "target" else 1
        begin = self._clock()
        runner.forward([RowInput(row, token_ids, num_logits) for row in rows])
        seconds = self._clock() - begin
        for row in rows:
            runner.truncate(row, 0)
        self.spent_s += seconds
        sample = CostSample(kind, len(rows), num_tokens, 0, seconds)
        self._timed.append(sample)
        return [sample]

    def _fits(self, kind: Literal["target", "draft"], num_tokens: int) -> bool:
        """Whether a forward ends within the budget.

        It takes no more times as long as another one than it has times as many tokens.
        """
        bounds = [
            sample.seconds * max(1.0, num_tokens / sample.num_tokens)
            for sample in self._timed
            if sample.kind == kind
        ]
        return self.spent_s + min(bounds, default=self._first_forward_s) <= BUDGET_S


def _is_steady(samples: list[CostSample]) -> bool:
    """Whether equal forwards took about equal times; on a busy machine they do not.

    Such times serve the session that met them, which corrects them as it goes, and no other.
    """
    times: dict[tuple[str, int, int], list[float]] = {}
    for sample in samples:
        times.setdefault((sample.kind, sample.num_rows, sample.num_tokens), []).append(
            sample.seconds
        )
    return all(median(found) <= _STEADY * min(found) for found in times.values())


@contextmanager
def _rows(runner: Runner, num_rows: int, max_length: int) -> Iterator[list[Row]]:
    """So many empty rows, or none where memory or context do not hold them."""
    rows: list[Row] = []
    try:
        if max_length <= runner.context_length:
            while len(rows) < num_rows:
                row = runner.acquire([0], max_length, num_rows - len(rows))
                if row is None:
                    break
                rows.append(row)
        yield rows if len(rows) == num_rows else []
    finally:
        for row in rows:
            runner.release(row)
