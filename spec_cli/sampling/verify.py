"""Turn drafts and the target's logits into tokens that follow the target's distribution.

Two ways, both lossless for any proposer and any draft length:

coupled    The target's token is argmax(log p + g), with Gumbel noise g a function of (seed,
           position, token id); a draft token is kept while it equals the target's. The text is a
           function of prompt and seed alone (Daliri, Musco, Suresh 2024, arXiv:2408.07978).
rejection  Keep a draft token x with probability min(1, p(x) / q(x)), else choose from
           max(0, p - q) (Leviathan, Kalman, Matias 2023, arXiv:2211.17192, algorithm 1; Chen et
           al. 2023, arXiv:2302.01318, algorithm 2). A deterministic draft has a one-hot q.

At temperature 0 both reduce to argmax, ties to the lowest id.
"""

from collections import defaultdict
from typing import Literal

import torch

from spec_cli.core.proposal import Proposal, Verification
from spec_cli.sampling.noise import Purpose, gumbel, stream_key, uniform
from spec_cli.sampling.processors import Block, Distribution, distribution, penalize

VerifyMode = Literal["coupled", "rejection"]


def verify(
    mode: VerifyMode, logits: torch.Tensor, blocks: list[Block], proposals: list[Proposal]
) -> list[Verification]:
    """Verify the drafts of all rows of a step.

    Args:
        mode: `coupled` or `rejection`.
        logits: float32 `[N, V]`: for each block `len(draft) + 1` rows, in order.
        blocks: Whose rows they are; `block.draft` are the proposal's tokens.
        proposals: One per block; may be empty.
    """
    sampled = any(p.token_ids and not b.params.is_greedy for p, b in zip(proposals, blocks, strict=True))
    if mode == "rejection" and sampled:
        return _verify_rejection(logits, blocks, proposals)
    chosen = choose(logits, blocks, Purpose.TARGET).tolist()
    verifications = []
    row = 0
    for block in blocks:
        tokens = chosen[row : row + block.num_rows]
        verifications.append(_keep_equal(tokens, block.draft))
        row += block.num_rows
    return verifications


def choose(logits: torch.Tensor, blocks: list[Block], purpose: Purpose) -> torch.Tensor:
    """Choose one token per row of logits.

    Args:
        logits: float32 `[N, V]`.
        blocks: Whose rows they are.
        purpose: Which noise decides at temperature > 0.

    Returns:
        int64 `[N]`.
    """
    logits = penalize(logits, blocks)
    if all(block.params.is_greedy for block in blocks):
        return logits.argmax(dim=-1)
    keys = _keys(blocks, purpose, logits.device)
    chosen = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)  # [N]
    for members, rows in _group_rows(blocks):
        part = logits if len(rows) == logits.shape[0] else logits[rows]
        params = blocks[members[0]].params
        if params.is_greedy:
            chosen[rows] = part.argmax(dim=-1)
        else:
            chosen[rows] = draw(distribution(part, params), keys[rows])
    return chosen


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
    probs = torch.empty_like(logits)
    for members, rows in _group_rows(blocks):
        params = blocks[members[0]].params
        part = logits[rows]
        if params.is_greedy:
            best = part.argmax(dim=-1, keepdim=True)
            probs[rows] = torch.zeros_like(part).scatter_(1, best, 1.0)
        else:
            probs[rows] = distribution(part, params).probs(logits.shape[-1])
    return probs


def _keep_equal(tokens: list[int], draft: tuple[int, ...]) -> Verification:
    num_accepted = 0
    while num_accepted < len(draft) and tokens[num_accepted] == draft[num_accepted]:
        num_accepted += 1
    return Verification(tuple(tokens[: num_accepted + 1]), num_accepted)


def _verify_rejection(
    logits: torch.Tensor, blocks: list[Block], proposals: list[Proposal]
) -> list[Verification]:
    """Accept or reject on the device, and bring the outcome to the host once."""
    device = logits.device
    p = probabilities(logits, blocks)  # [N, V]
    k_max = max(len(block.draft) for block in blocks)
    starts, accept, drafts = _draft_table(blocks, k_max, device)
    rows = starts[:, None] + torch.arange(k_max, device=device)  # [B, k_max]
    rows.clamp_(max=p.shape[0] - 1)
    real = drafts >= 0
    x = drafts.clamp(min=0)
    q = _draft_probabilities(proposals, k_max, device)  # of the draft tokens, [B, k_max]
    kept = real & (accept * q < p[rows, x])
    num_accepted = kept.long().cumprod(dim=1).sum(dim=1)  # [B]

    final = p[starts + num_accepted]  # [B, V]: the target's distribution where the draft ended
    rejected = num_accepted < real.sum(dim=1)
    residual = (final - _rejected_distribution(final, proposals, x, num_accepted)).clamp_(min=0.0)
    usable = rejected & (residual.sum(dim=-1) > 0.0)  # rounding can leave nothing of p - q
    final = torch.where(usable[:, None], residual, final)
    last = _draw_final(final, rejected, blocks, num_accepted)

    accepted, tokens = torch.stack((num_accepted, last)).tolist()
    return [
        Verification((*block.draft[:n], token), n)
        for block, n, token in zip(blocks, accepted, tokens, strict=True)
    ]


def _draft_table(
    blocks: list[Block], k_max: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """First logits row `[B]`, accept uniforms `[B, k_max]` and draft tokens, -1 padded."""
    starts, accept, drafts = [], [], []
    row = 0
    for block in blocks:
        starts.append(row)
        row += block.num_rows
        accept.append([uniform(block.seed, block.position + i, Purpose.ACCEPT) for i in range(k_max)])
        drafts.append(list(block.draft) + [-1] * (k_max - len(block.draft)))
    return (
        torch.tensor(starts, device=device),
        torch.tensor(accept, dtype=torch.float64, device=device),
        torch.tensor(drafts, device=device),
    )


def _draft_probabilities(
    proposals: list[Proposal], k_max: int, device: torch.device
) -> torch.Tensor:
    """What each draft token's own distribution gave it, `[B, k_max]`; 1 where one-hot."""
    q = torch.ones(len(proposals), k_max, device=device)
    for b, proposal in enumerate(proposals):
        if proposal.draft_probs is not None and proposal.token_ids:
            ids = torch.tensor(proposal.token_ids, device=device)
            probs = proposal.draft_probs.gather(1, ids[:, None]).squeeze(1)
            q[b, : len(ids)] = probs.to(device)
    return q


def _rejected_distribution(
    final: torch.Tensor, proposals: list[Proposal], x: torch.Tensor, num_accepted: torch.Tensor
) -> torch.Tensor:
    """The draft's distribution at the position where each row's draft ended, `[B, V]`."""
    at = num_accepted.clamp(max=x.shape[1] - 1)
    q = torch.zeros_like(final).scatter_(1, x.gather(1, at[:, None]), 1.0)
    for b, proposal in enumerate(proposals):
        if proposal.draft_probs is not None and proposal.token_ids:
            probs = proposal.draft_probs.to(final.device)
            q[b] = probs[num_accepted[b].clamp(max=probs.shape[0] - 1)]
    return q


def _draw_final(
    final: torch.Tensor, rejected: torch.Tensor, blocks: list[Block], num_accepted: torch.Tensor
) -> torch.Tensor:
    """Choose each row's last token, `[B]`: recovered after a rejection, bonus otherwise.

    The noise depends on where the draft ended, which only the device knows: every candidate
    position's noise is keyed on the host and the right key picked on the device.
    """
    device = final.device
    k_max = max(len(block.draft) for block in blocks)
    keys = torch.tensor(
        [
            [
                [stream_key(b.seed, b.position + i, purpose) for i in range(k_max + 1)]
                for purpose in (Purpose.TARGET, Purpose.RECOVER)
            ]
            for b in blocks
        ],
        device=device,
    )  # [B, 2, k_max + 1]
    picked = keys[torch.arange(len(blocks), device=device), rejected.long(), num_accepted]
    ids = torch.arange(final.shape[-1], device=device)
    return gumbel(picked, ids).add_(final.log()).argmax(dim=-1)


def _keys(blocks: list[Block], purpose: Purpose, device: torch.device) -> torch.Tensor:
    keys = [
        stream_key(block.seed, block.position + i, purpose)
        for block in blocks
        for i in range(block.num_rows)
    ]
    return torch.tensor(keys, device=device)  # int64 [N]


def _group_rows(blocks: list[Block]) -> list[tuple[list[int], list[int]]]:
    """Blocks that share their sampling parameters: their indices and their rows of logits."""
    groups: dict[tuple[float, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    row = 0
    for index, block in enumerate(blocks):
        params = block.params
        key = (params.temperature, params.top_k, params.top_p, params.min_p)
        members, rows = groups[key]
        members.append(index)
        rows.extend(range(row, row + block.num_rows))
        row += block.num_rows
    return list(groups.values())
