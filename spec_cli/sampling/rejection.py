"""Rejection verification: keep a draft token with probability min(1, p / q).

Source: Leviathan, Kalman, Matias 2023 (arXiv:2211.17192), algorithm 1; Chen et al. 2023
(arXiv:2302.01318), algorithm 2. A deterministic draft has a one-hot q.
"""

import torch

from spec_cli.core.proposal import Proposal, Verification
from spec_cli.sampling.choose import probabilities
from spec_cli.sampling.device import upload
from spec_cli.sampling.noise import Purpose, gumbel, stream_key, uniform
from spec_cli.sampling.processors import Block


def verify_rejection(
    logits: torch.Tensor, blocks: list[Block], proposals: list[Proposal]
) -> list[Verification]:
    """Accept or reject on the device, and bring the outcome to the host once.

    Args:
        logits: float32 `[N, V]`: for each block `len(draft) + 1` rows, in order.
        blocks: Whose rows they are.
        proposals: One per block; at least one of them not empty.
    """
    device = logits.device
    p = probabilities(logits, blocks)  # [N, V]
    k_max = max(len(block.draft) for block in blocks)
    starts, accept, drafts = _draft_table(blocks, k_max, device)
    rows = starts[:, None] + torch.arange(k_max, device=device)  # [B, k_max]
    rows.clamp_(max=p.shape[0] - 1)
    real = drafts >= 0
    x = drafts.clamp(min=0)
    q = _draft_probabilities(proposals, x)  # of the draft tokens, [B, k_max]
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
        accept.append(
            [uniform(block.seed, block.position + i, Purpose.ACCEPT) for i in range(k_max)]
        )
        drafts.append(list(block.draft) + [-1] * (k_max - len(block.draft)))
    return (
        upload(starts, device),
        upload(accept, device, torch.float64),
        upload(drafts, device),
    )


def _draft_probabilities(proposals: list[Proposal], x: torch.Tensor) -> torch.Tensor:
    """What each draft token of `x`, `[B, k_max]`, was given by its own distribution; 1 if one-hot.

    Returns:
        float32 `[B, k_max]`.
    """
    q = torch.ones(x.shape, device=x.device)
    for b, proposal in enumerate(proposals):
        if proposal.draft_probs is not None and proposal.token_ids:
            num = len(proposal.token_ids)
            probs = proposal.draft_probs.to(x.device)
            q[b, :num] = probs.gather(1, x[b, :num, None]).squeeze(1)
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
            # Indexed by a tensor of one dimension: for one of none the host would fetch the number.
            q[b] = probs[num_accepted[b : b + 1].clamp(max=probs.shape[0] - 1)].squeeze(0)
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
    keys = upload(
        [
            [
                [stream_key(b.seed, b.position + i, purpose) for i in range(k_max + 1)]
                for purpose in (Purpose.TARGET, Purpose.RECOVER)
            ]
            for b in blocks
        ],
        device,
    )  # [B, 2, k_max + 1]
    picked = keys[torch.arange(len(blocks), device=device), rejected.long(), num_accepted]
    ids = torch.arange(final.shape[-1], device=device)
    return gumbel(picked, ids).add_(final.log()).argmax(dim=-1)
