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

from typing import Literal

import torch

from spec_cli.core.proposal import Proposal, Verification
from spec_cli.sampling.choose import choose, choose_rows
from spec_cli.sampling.device import looks_are_free
from spec_cli.sampling.noise import Purpose, stream_key
from spec_cli.sampling.processors import Block, penalize
from spec_cli.sampling.rejection import verify_rejection

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
    sampled = any(
        p.token_ids and not b.params.is_greedy for p, b in zip(proposals, blocks, strict=True)
    )
    if mode == "rejection" and sampled:
        return verify_rejection(logits, blocks, proposals)
    if sampled and looks_are_free(logits.device):
        return _verify_one_by_one(logits, blocks)
    chosen = choose(logits, blocks, Purpose.TARGET).tolist()
    verifications = []
    row = 0
    for block in blocks:
        tokens = chosen[row : row + block.num_rows]
        verifications.append(_keep_equal(tokens, block.draft))
        row += block.num_rows
    return verifications


def _keep_equal(tokens: list[int], draft: tuple[int, ...]) -> Verification:
    num_accepted = 0
    while num_accepted < len(draft) and tokens[num_accepted] == draft[num_accepted]:
        num_accepted += 1
    return Verification(tuple(tokens[: num_accepted + 1]), num_accepted)


def _verify_one_by_one(logits: torch.Tensor, blocks: list[Block]) -> list[Verification]:
    """Coupled verification that stops a row at its first unequal token.

    Noise over a whole vocabulary takes about 1 ms a position on a CPU, and there it costs nothing
    to look at each token before the next is chosen; on an accelerator each look is a
    synchronisation, and all positions are chosen at once.
    """
    logits = penalize(logits, blocks)
    first_rows = [0]
    for block in blocks:
        first_rows.append(first_rows[-1] + block.num_rows)
    tokens: list[list[int]] = [[] for _ in blocks]
    going = list(range(len(blocks)))
    while going:
        depth = len(tokens[going[0]])  # rows that still go on have all chosen as many
        keys = [
            stream_key(blocks[b].seed, blocks[b].position + depth, Purpose.TARGET) for b in going
        ]
        rows = [first_rows[b] + depth for b in going]
        chosen = choose_rows(logits[rows], [blocks[b].params for b in going], keys).tolist()
        for b, token_id in zip(going, chosen, strict=True):
            tokens[b].append(token_id)
        going = [
            b
            for b in going
            if depth < len(blocks[b].draft) and tokens[b][depth] == blocks[b].draft[depth]
        ]
    return [Verification(tuple(each), len(each) - 1) for each in tokens]
