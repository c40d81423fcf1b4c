"""What a proposer guesses and what verification makes of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

DraftSource = Literal["draft", "ngram", "suffix"]
TokenSource = Literal["draft", "ngram", "suffix", "target"]


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Draft tokens for one row: the guess for the tokens after its last committed one.

    Attributes:
        token_ids: k >= 0 draft tokens; none is a valid guess.
        source: Who guessed.
        draft_probs: float32 `[k, V]`: the distribution each token was sampled from, needed by
            rejection verification. None for a deterministic guess, whose distribution is one-hot.
        hindsight: For some of the row's last committed tokens, those that came while the proposer
            was not asked: whether it would have drafted that token after the ones before it. None
            where it would have drafted none.
    """

    token_ids: tuple[int, ...]
    source: DraftSource
    draft_probs: "torch.Tensor | None" = None
    hindsight: tuple[bool | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """The tokens that follow the target's distribution.

    Attributes:
        token_ids: Accepted draft tokens, then one token of the target's own: *recovered* after a
            rejection, *bonus* after none. 1 to k + 1 tokens.
        num_accepted: How many of them are draft tokens, 0 to k.
    """

    token_ids: tuple[int, ...]
    num_accepted: int
