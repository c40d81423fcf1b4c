"""What the engine and the proposers know of a model: rows of cached tokens and one forward."""

from dataclasses import dataclass
from typing import Protocol

import torch

UNREAD = -1
"""Stands for a token that only the device knows so far; equal to no token's id."""


class Row(Protocol):
    """A place for the keys and values of one sequence.

    Attributes:
        token_ids: The tokens whose keys and values it holds; the next forward continues there.
            Whoever has it hold UNREAD puts the id in that place when the host has read it.
    """

    token_ids: list[int]


@dataclass(frozen=True, slots=True)
class RowInput:
    """Tokens to process for one row in a forward.

    Attributes:
        row: Where their keys and values go.
        token_ids: At least one token; they follow the tokens that the row holds.
        num_logits: How many of the last tokens want logits, 0 to `len(token_ids)`.
        drawn: int64 `[1]` on the device, where the input is one token that was chosen there: the
            forward takes it as it is, and `token_ids` may hold UNREAD.
    """

    row: Row
    token_ids: list[int]
    num_logits: int
    drawn: torch.Tensor | None = None


class Runner(Protocol):
    """A model with its cache.

    Catch-up rule: a caller hands over whatever tokens the row lacks, whether that is a prompt, one
    token, or a few that were committed while the row was left alone.
    """

    @property
    def vocab_size(self) -> int:
        """V, the width of the logits."""

    @property
    def context_length(self) -> int:
        """Most tokens a row can hold."""

    @property
    def can_roll_back(self) -> bool:
        """Whether `truncate` works."""

    def bytes_for(self, max_length: int) -> int:
        """Bytes of cache that a row of up to `max_length` tokens takes."""

    def acquire(self, token_ids: list[int], max_length: int, num_rows: int) -> Row | None:
        """Reserve a row for up to `max_length` tokens.

        It comes holding the longest prefix of `token_ids` found in another row, short of the last
        token, whose logits are still to be computed. None when memory must first come free.

        Args:
            token_ids: The tokens it is for.
            max_length: Most tokens it will hold.
            num_rows: How many rows of this kind may soon be wanted.
        """

    def release(self, row: Row) -> None:
        """Give a row back; its tokens stay reusable as a prefix until overwritten."""

    def truncate(self, row: Row, length: int) -> None:
        """Forget all but the first `length` tokens of a row; moves no data."""

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        """Process the inputs of several rows in one forward.

        Args:
            inputs: Of different rows; either all are `drawn` or none is.

        Returns:
            float32 `[M, V]`: the logits asked for, inputs in their order.
        """
