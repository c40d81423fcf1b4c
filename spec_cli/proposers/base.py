"""The seam between ways to guess and everything else."""

from dataclasses import dataclass
from typing import Protocol

from spec_cli.core.proposal import DraftSource, Proposal
from spec_cli.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a proposer could offer a row, told before anything is computed.

    Attributes:
        source: Which proposer would guess.
        max_draft_tokens: Most draft tokens it could return now; 0 when it has no guess.
        match_length: Lookup: tokens of the row's end found earlier in the text; else 0.
        num_lag_tokens: Draft model: committed tokens its cache lacks, which it must process first.
        ended: Why it will not guess for this row any more, or None.
    """

    source: DraftSource
    max_draft_tokens: int
    match_length: int = 0
    num_lag_tokens: int = 0
    ended: str | None = None


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Ask for at most `num_draft_tokens` >= 1 tokens after a sequence's last committed one."""

    sequence: Sequence
    num_draft_tokens: int


class Proposer(Protocol):
    """A way to guess the next tokens.

    A proposer reads `sequence.token_ids` and never changes a sequence. It follows a row from
    `admit` to `release`, and may be left unasked for any number of steps in between: whatever it
    missed it catches up when asked.
    """

    def bytes_for(self, max_length: int) -> int:
        """Bytes of cache that following a row of up to `max_length` tokens takes."""

    def admit(self, sequence: Sequence, num_rows: int) -> bool:
        """Begin to follow a row; False when memory for it must first come free.

        Args:
            sequence: Its committed tokens.
            num_rows: How many rows of its kind may soon be wanted.
        """

    def outlook(self, sequence: Sequence) -> Outlook:
        """What it could offer now; costs next to nothing."""

    def propose(self, requests: list[DraftRequest]) -> list[Proposal]:
        """Guess for several rows at once, in their order; an empty guess is allowed."""

    def release(self, sequence: Sequence) -> None:
        """Stop following a row."""
