"""Choose tokens from logits, each row by the parameters of its own request."""

import torch

from spec_cli.core.params import SamplingParams
from spec_cli.sampling.device import upload
from spec_cli.sampling.noise import Purpose, gumbel, stream_key
from spec_cli.sampling.processors import Block, Distribution, distribution, penalize


def choose(logits: torch.Tensor, blocks: list[Block], purpose: Purpose) -> torch.Tensor:
    """Choose one token per row of logits.

    Args:
        logits: float32 `[N, V]`.
        blocks: Whose rows they are.
        purpose: Which noise decides at temperature > 0.

    Returns:
        int64 `[N]`.
    """
    keys = [
        stream_key(block.seed, block.position + i, purpose)
        for block in blocks
        for i in range(block.num_rows)
    ]
    params = [block.params for block in blocks for _ in range(block.num_rows)]
    return choose_rows(penalize(logits, blocks), params, keys)


def choose_rows(
    logits: torch.Tensor, params: list[SamplingParams], keys: list[int]
) -> torch.Tensor:
    """Choose one token per row, penalties already applied.

    Args:
        logits: float32 `[N, V]`.
        params: N sampling parameters.
        keys: N stream keys; those of greedy rows are not used.

    Returns:
        int64 `[N]`.
    """
    groups = _group(params)
    if len(groups) == 1:
        return _choose_alike(logits, params[0], keys)
    chosen = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)  # [N]
    for shared, rows in groups:
        index = upload(rows, logits.device)
        chosen[index] = _choose_alike(logits[index], shared, [keys[row] for row in rows])
    return chosen


def _choose_alike(logits: torch.Tensor, params: SamplingParams, keys: list[int]) -> torch.Tensor:
    """Choose one token per row, int64 `[N]`; the rows share their parameters."""
    if params.is_greedy:
        return logits.argmax(dim=-1)
    return draw(distribution(logits, params), upload(keys, logits.device))


def draw(dist: Distribution, keys: torch.Tensor) -> torch.Tensor:
    """Sample each row by the Gumbel-max trick (Gumbel 1954): argmax(log p + g) follows p.

    Args:
        dist: N rows.
        keys: int64 `[N]` stream keys.

    Returns:
        int64 `[N]`.
    """
    if dist.token_ids is None:
        ids = torch.arange(dist.logits.shape[-1], device=dist.logits.device)  # [V]
        return gumbel(keys, ids).add_(dist.logits).argmax(dim=-1)
    best = gumbel(keys, dist.token_ids).add_(dist.logits).argmax(dim=-1, keepdim=True)
    return dist.token_ids.gather(1, best).squeeze(1)


def probabilities(logits: torch.Tensor, blocks: list[Block]) -> torch.Tensor:
    """The distribution each row's token follows, float32 `[N, V]`; one-hot where greedy."""
    logits = penalize(logits, blocks)
    params = [block.params for block in blocks for _ in range(block.num_rows)]
    groups = _group(params)
    if len(groups) == 1:
        return _probabilities_alike(logits, params[0])
    probs = torch.empty_like(logits)
    for shared, rows in groups:
        index = upload(rows, logits.device)
        probs[index] = _probabilities_alike(logits[index], shared)
    return probs


def _probabilities_alike(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """The distributions of rows that share their parameters, float32 `[N, V]`."""
    if params.is_greedy:
        return torch.zeros_like(logits).scatter_(1, logits.argmax(dim=-1, keepdim=True), 1.0)
    return distribution(logits, params).probs(logits.shape[-1])


def _group(params: list[SamplingParams]) -> list[tuple[SamplingParams, list[int]]]:
    """Rows that are greedy, or share temperature, top-k, top-p and min-p."""
    groups: dict[tuple[float, ...], tuple[SamplingParams, list[int]]] = {}
    for row, each in enumerate(params):
        shape = (each.temperature, each.top_k, each.top_p, each.min_p)
        key = () if each.is_greedy else shape
        groups.setdefault(key, (each, []))[1].append(row)
    return list(groups.values())
