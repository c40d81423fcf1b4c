"""Verification: what is kept, and that rows and their parameters do not mix."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cli.core.params import SamplingParams
from spec_cli.core.proposal import Proposal
from spec_cli.sampling.choose import choose, probabilities
from spec_cli.sampling.noise import Purpose
from spec_cli.sampling.processors import Block
from spec_cli.sampling.verify import VerifyMode, verify

VOCAB = 12
MODES: tuple[VerifyMode, ...] = ("coupled", "rejection")
PARAMS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.0]),
        "top_k": st.sampled_from([0, 1, 4]),
        "top_p": st.sampled_from([0.8, 1.0]),
        "min_p": st.sampled_from([0.0, 0.1]),
        "repetition_penalty": st.sampled_from([1.0, 1.5]),
        "frequency_penalty": st.sampled_from([0.0, 0.5]),
    }
)
ROWS = st.lists(
    st.tuples(PARAMS, st.integers(0, 99), st.lists(st.integers(0, VOCAB - 1), max_size=4)),
    min_size=1,
    max_size=5,
)


def make(rows: list[Any], *, with_probs: bool) -> tuple[list[Block], list[Proposal], torch.Tensor]:
    """Blocks with drafts and random logits."""
    generator = torch.Generator().manual_seed(0)
    blocks, proposals = [], []
    for params, seed, draft in rows:
        q = torch.rand(len(draft), VOCAB, generator=generator) if draft and with_probs else None
        probs = q / q.sum(dim=-1, keepdim=True) if q is not None else None
        blocks.append(Block(SamplingParams(**params), seed, [3, seed % VOCAB], 1, tuple(draft)))
        proposals.append(Proposal(tuple(draft), "draft", probs))
    num_rows = sum(block.num_rows for block in blocks)
    return blocks, proposals, torch.randn(num_rows, VOCAB, generator=generator) * 2


@settings(deadline=None)
@given(ROWS)
def test_coupled_is_one_token_at_a_time(rows: list[Any]) -> None:
    """What coupled verification keeps is what the target alone would say, token by token."""
    blocks, proposals, logits = make(rows, with_probs=False)
    first = 0
    for block, got in zip(blocks, verify("coupled", logits, blocks, proposals), strict=True):
        said: list[int] = []
        for i in range(block.num_rows):
            one = Block(block.params, block.seed, block.history + said, 1)
            said += choose(logits[first + i : first + i + 1], [one], Purpose.TARGET).tolist()
            if i == len(block.draft) or said[i] != block.draft[i]:
                break
        first += block.num_rows

        assert list(got.token_ids) == said
        assert got.num_accepted == len(said) - 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_probs", [False, True])
@settings(deadline=None, max_examples=50)
@given(rows=ROWS)
def test_rows_do_not_see_each_other(mode: VerifyMode, with_probs: bool, rows: list[Any]) -> None:
    """A row's outcome in a batch is its outcome alone, whatever the others ask for."""
    blocks, proposals, logits = make(rows, with_probs=with_probs)
    together = verify(mode, logits, blocks, proposals)
    first = 0
    for block, proposal, got in zip(blocks, proposals, together, strict=True):
        own = logits[first : first + block.num_rows]
        first += block.num_rows

        assert verify(mode, own, [block], [proposal]) == [got]
        assert got.token_ids[: got.num_accepted] == block.draft[: got.num_accepted]
        assert len(got.token_ids) == got.num_accepted + 1


@pytest.mark.parametrize("with_probs", [False, True])
@settings(deadline=None, max_examples=50)
@given(rows=ROWS)
def test_rejection_says_only_what_the_target_could(with_probs: bool, rows: list[Any]) -> None:
    """Every token of a rejection step has a positive probability under the target."""
    blocks, proposals, logits = make(rows, with_probs=with_probs)
    p = probabilities(logits, blocks)
    first = 0
    verified = verify("rejection", logits, blocks, proposals)
    for block, got in zip(blocks, verified, strict=True):
        for i, token in enumerate(got.token_ids):
            assert float(p[first + i, token]) > 0
        first += block.num_rows


@pytest.mark.parametrize("mode", MODES)
def test_a_greedy_row_keeps_the_argmax(mode: VerifyMode) -> None:
    """Beside a sampled row, a greedy one keeps its draft while it is the argmax, in both ways."""
    logits = torch.tensor([[0.0, 9.0, 8.9], [9.0, 8.9, 0.0], [0.0, 1.0, 2.0]])
    greedy = Block(SamplingParams(temperature=0), 5, [1], 1, (1, 1))
    sampled = Block(SamplingParams(), 5, [1], 1, (2,))
    proposals = [Proposal((1, 1), "draft"), Proposal((2,), "draft")]
    verified = verify(mode, torch.cat([logits, logits[:2]]), [greedy, sampled], proposals)

    assert verified[0].token_ids == (1, 0)
    assert verified[0].num_accepted == 1


def test_equal_distributions_always_agree() -> None:
    """A draft with the target's own distribution is never rejected, in either way."""
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(3))
    for seed in range(300):
        start = Block(SamplingParams(), seed, [1], 1)
        q = probabilities(logits[:1], [start])
        for mode, purpose in zip(MODES, (Purpose.TARGET, Purpose.DRAFT), strict=True):
            token = int(choose(logits[:1], [start], purpose))
            block = Block(SamplingParams(), seed, [1], 1, (token,))
            verified = verify(mode, logits, [block], [Proposal((token,), "draft", q)])

            assert verified[0].num_accepted == 1
