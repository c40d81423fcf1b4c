"""From logits to the distribution a token is chosen from.

Order, as in transformers: penalties, temperature, top-k, top-p, min-p.
"""

import math
from collections import Counter
from dataclasses import dataclass

import torch

from spec_cli.core.params import SamplingParams
from spec_cli.sampling.device import looks_are_free, upload

_FIRST_CANDIDATES = 1024
_COLDEST = 1e-30
"""Any colder is the same distribution, but its logits are beyond float32."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of logits that belong to one sequence in one step.

    Row i is conditioned on `history` and the first i tokens of `draft`.

    Attributes:
        params: Sampling parameters.
        seed: The request's seed.
        history: The tokens before the first row's token, as a list nobody changes meanwhile. What
            they are matters to penalties alone; how many they are, to the noise.
        num_prompt_tokens: How many of them are prompt.
        draft: Draft tokens; the block has `len(draft) + 1` rows.
    """

    params: SamplingParams
    seed: int
    history: list[int]
    num_prompt_tokens: int
    draft: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows of logits in this block."""
        return len(self.draft) + 1

    @property
    def position(self) -> int:
        """Absolute position of the token that the first row chooses."""
        return len(self.history)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distributions over token ids, one per row, as unnormalised log-probabilities.

    Attributes:
        logits: float32 `[N, M]`, -inf for ids that cannot be chosen.
        token_ids: int64 `[N, M]`, or None when M = V and column v is token id v.
    """

    logits: torch.Tensor
    token_ids: torch.Tensor | None = None

    def probs(self, vocab_size: int) -> torch.Tensor:
        """Probabilities, float32 `[N, V]`."""
        probs = torch.softmax(self.logits, dim=-1)
        if self.token_ids is None:
            return probs
        dense = probs.new_zeros(probs.shape[0], vocab_size)  # [N, V]
        return dense.scatter_(1, self.token_ids, probs)


def penalize(logits: torch.Tensor, blocks: list[Block]) -> torch.Tensor:
    """Apply repetition, presence and frequency penalties.

    Args:
        logits: float32 `[N, V]`: the rows of all blocks, in their order.
        blocks: Whose rows they are.

    Returns:
        `[N, V]`: the same tensor when no block asks for a penalty, else a copy.
    """
    if not any(block.params.has_penalties for block in blocks):
        return logits
    logits = logits.clone()
    row = 0
    for block in blocks:
        if block.params.has_penalties:
            _penalize_block(logits[row : row + block.num_rows], block)
        row += block.num_rows
    return logits


def _penalize_block(logits: torch.Tensor, block: Block) -> None:
    """Penalise the rows of one block in place: row i also sees the draft tokens before i."""
    params = block.params
    seen = set(block.history)
    counts = Counter(block.history[block.num_prompt_tokens :])
    for i, row in enumerate(logits):
        if i:
            seen.add(block.draft[i - 1])
            counts[block.draft[i - 1]] += 1
        if params.repetition_penalty != 1.0:
            ids = upload(sorted(seen), row.device)  # [unique tokens]
            values = row[ids]
            factor = params.repetition_penalty
            row[ids] = torch.where(values > 0, values / factor, values * factor)
        if counts and (params.presence_penalty or params.frequency_penalty):
            ids = upload(list(counts), row.device)
            times = upload(list(counts.values()), row.device, row.dtype)
            row[ids] -= params.presence_penalty + params.frequency_penalty * times


def distribution(logits: torch.Tensor, params: SamplingParams) -> Distribution:
    """The distribution of rows that share their parameters, penalties already applied.

    Args:
        logits: float32 `[N, V]`.
        params: Not greedy.
    """
    vocab_size = logits.shape[-1]
    temperature = max(params.temperature, _COLDEST)
    scaled = logits / temperature if temperature != 1.0 else logits
    ids: torch.Tensor | None = None
    if 0 < params.top_k < vocab_size:
        scaled, ids = _most_likely(scaled, params.top_k)
    if params.top_p < 1.0:
        scaled, ids = _nucleus(scaled, ids, params.top_p)
    if params.min_p > 0.0:
        floor = scaled.amax(dim=-1, keepdim=True) + math.log(params.min_p)
        scaled = scaled.masked_fill(scaled < floor, -math.inf)
    return Distribution(scaled, ids)


def _most_likely(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest entries of each row, descending, ties to the lowest id."""
    if looks_are_free(logits.device):
        values, ids = logits.topk(k, dim=-1)  # [N, k]
        if not bool(((logits >= values[:, -1:]).sum(dim=-1) > k).any()):
            ids, order = ids.sort(dim=-1)
            values = values.gather(1, order)
            values, again = torch.sort(values, dim=-1, descending=True, stable=True)
            return values, ids.gather(1, again)
    values, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    return values[:, :k], ids[:, :k]


def _nucleus(
    logits: torch.Tensor, ids: torch.Tensor | None, top_p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest set of most likely entries that reaches top_p (Holtzman et al. 2020).

    On a CPU, sorting a whole vocabulary takes longer than a small model's forward; the nucleus is
    nearly always found among the first thousand.
    """
    log_total = logits.logsumexp(dim=-1, keepdim=True)  # [N, 1]
    values, vocab_size = logits, logits.shape[-1]
    if ids is None:
        count = min(_FIRST_CANDIDATES, vocab_size) if looks_are_free(logits.device) else vocab_size
        values, ids = _most_likely(logits, count)
        if count < vocab_size and bool(((values - log_total).exp().sum(dim=-1) < top_p).any()):
            values, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    probs = (values - log_total).exp()
    before = probs.cumsum(dim=-1) - probs  # mass of the entries ahead
    dropped = before >= top_p
    dropped[:, 0] = False
    return values.masked_fill(dropped, -math.inf), ids
