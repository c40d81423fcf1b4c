"""Stand-ins that implement our protocols: a target or draft whose every token is known."""

import torch

from spec_cli.core.proposal import Proposal
from spec_cli.core.sequence import Request, Sequence
from spec_cli.models.base import Row, RowInput
from spec_cli.proposers.base import DraftRequest, Outlook


class FakeRow:
    """A row that caches nothing but its token ids."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids


class FakeRunner:
    """A model given by a function from the tokens of a row to the logits of the next one.

    Attributes:
        num_forwards: Calls of `forward`.
        positions: Every position it was asked to process.
        rows_in_use: Rows acquired and not released.
    """

    can_roll_back = True

    def __init__(self, vocab_size: int, context_length: int = 4096) -> None:
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.num_forwards = 0
        self.positions: list[int] = []
        self.rows_in_use: list[Row] = []

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        """Logits `[V]` after these tokens."""
        raise AssertionError("a FakeRunner says what comes next")

    def bytes_for(self, max_length: int) -> int:
        """A byte a token."""
        return max_length

    def acquire(self, token_ids: list[int], max_length: int, num_rows: int) -> FakeRow:
        """A fresh row."""
        del token_ids, max_length, num_rows
        row = FakeRow([])
        self.rows_in_use.append(row)
        return row

    def release(self, row: Row) -> None:
        """Give it back; twice is an error."""
        self.rows_in_use.remove(row)

    def truncate(self, row: Row, length: int) -> None:
        """Forget the rest."""
        del row.token_ids[length:]

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        """The logits asked for."""
        self.num_forwards += 1
        logits = []
        for item in inputs:
            start = len(item.row.token_ids)
            assert item.token_ids, "an input has at least one token"
            token_ids = item.token_ids if item.drawn is None else item.drawn.tolist()
            item.row.token_ids.extend(token_ids)
            self.positions.extend(range(start, len(item.row.token_ids)))
            assert len(item.row.token_ids) <= self.context_length
            length = len(item.row.token_ids)
            logits += [
                self.next_logits(item.row.token_ids[: stop + 1])
                for stop in range(length - item.num_logits, length)
            ]
        return torch.stack(logits).float() if logits else torch.empty(0, self.vocab_size)


class ScriptRunner(FakeRunner):
    """Continues a prompt of `num_prompt` tokens with a fixed list (SCRIPT in the bug reports)."""

    def __init__(self, script: list[int], num_prompt: int, vocab_size: int = 32) -> None:
        super().__init__(vocab_size)
        self.script = script
        self.num_prompt = num_prompt

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        """All weight on the next token of the script; past its end on its last."""
        at = min(len(token_ids) - self.num_prompt, len(self.script) - 1)
        logits = torch.zeros(self.vocab_size)
        logits[self.script[max(0, at)]] = 50.0
        return logits


class TableRunner(FakeRunner):
    """Gives the same probabilities at every position (TABLE in the bug reports)."""

    def __init__(self, probs: list[float]) -> None:
        super().__init__(len(probs))
        self.logits = torch.tensor(probs, dtype=torch.float64).log().float()

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        """The table."""
        del token_ids
        return self.logits


class ScriptedProposer:
    """Proposes from a function of the committed tokens: an oracle, an adversary, anything."""

    def __init__(self, guess, source="draft", hindsight=lambda token_ids: ()) -> None:
        self._guess = guess
        self._source = source
        self._hindsight = hindsight

    def bytes_for(self, max_length: int) -> int:
        """Nothing is cached."""
        del max_length
        return 0

    def admit(self, sequence: Sequence, num_rows: int) -> bool:
        """Follows anything."""
        del sequence, num_rows
        return True

    def outlook(self, sequence: Sequence) -> Outlook:
        """Always as much as asked."""
        del sequence
        return Outlook(self._source, 32)

    def propose(self, requests: list[DraftRequest]) -> list[Proposal]:
        """The function's tokens, cut to what was asked."""
        return [
            Proposal(
                tuple(self._guess(r.sequence.token_ids, r.num_draft_tokens))[: r.num_draft_tokens],
                self._source,
                hindsight=self._hindsight(r.sequence.token_ids),
            )
            for r in requests
        ]

    def release(self, sequence: Sequence) -> None:
        """Nothing to forget."""


class NoStops:
    """A StopChecker without stop strings."""

    def start(self, request: Request) -> None:
        """Nothing to follow."""

    def keep(self, request_id: str, token_ids: tuple[int, ...]) -> tuple[int, bool]:
        """Keeps all."""
        del request_id
        return len(token_ids), False

    def finish(self, request_id: str) -> None:
        """Nothing to forget."""


class FakeClock:
    """Seconds that pass by a fixed amount at each reading."""

    def __init__(self, tick_s: float = 0.001) -> None:
        self.now_s = 0.0
        self.tick_s = tick_s

    def __call__(self) -> float:
        """The time."""
        self.now_s += self.tick_s
        return self.now_s
