"""From logits to a distribution: as transformers' own processors do it."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from spec_cli.core.params import SamplingParams
from spec_cli.sampling.choose import probabilities
from spec_cli.sampling.processors import Block, distribution, penalize

VOCAB = 50


def ours(logits: torch.Tensor, **params: Any) -> torch.Tensor:
    return distribution(logits, SamplingParams(**params)).probs(logits.shape[-1])


def theirs(logits: torch.Tensor, **params: Any) -> torch.Tensor:
    """The warpers of transformers in the order its generate() applies them."""
    warpers = LogitsProcessorList()
    if params.get("temperature", 1.0) != 1.0:
        warpers.append(TemperatureLogitsWarper(params["temperature"]))
    if params.get("top_k", 0) > 0:
        warpers.append(TopKLogitsWarper(params["top_k"]))
    if params.get("top_p", 1.0) < 1.0:
        warpers.append(TopPLogitsWarper(params["top_p"]))
    if params.get("min_p", 0.0) > 0.0:
        warpers.append(MinPLogitsWarper(params["min_p"]))
    ids = torch.zeros(logits.shape[0], 1, dtype=torch.long)
    return torch.softmax(warpers(ids, logits.clone()), dim=-1)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.3, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 2, 10, 49, 50, 51, 1000]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.99, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
)
def test_warpers_agree_with_transformers(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Any combination of temperature, top-k, top-p and min-p equals that of transformers."""
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    params = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}

    assert torch.allclose(ours(logits, **params), theirs(logits, **params), atol=1e-6)


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
def test_nucleus_of_a_large_vocabulary(top_p: float) -> None:
    """The short cut through the first thousand ids changes nothing, peaked or flat."""
    generator = torch.Generator().manual_seed(0)
    for spread in (0.1, 4.0):
        logits = torch.randn(3, 5000, generator=generator) * spread

        assert torch.allclose(ours(logits, top_p=top_p), theirs(logits, top_p=top_p), atol=1e-6)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    history=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30),
    penalty=st.sampled_from([0.5, 1.1, 2.0]),
)
def test_repetition_penalty_agrees_with_transformers(
    seed: int, history: list[int], penalty: float
) -> None:
    """Prompt and output tokens are penalised once each, by the sign of their logit."""
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    block = Block(SamplingParams(repetition_penalty=penalty), 0, history, 1)
    want = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([history]), logits.clone())

    assert torch.equal(penalize(logits, [block]), want)


def test_presence_and_frequency_penalties() -> None:
    """Presence is subtracted once, frequency per occurrence, and the prompt does not count."""
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    block = Block(params, 0, [1, 1, 2, 3, 3, 3], 2)

    assert penalize(torch.zeros(1, 5), [block])[0].tolist() == [0.0, 0.0, -0.75, -1.25, 0.0]


@settings(deadline=None)
@given(
    history=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    draft=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    repetition=st.sampled_from([1.0, 0.7, 1.4]),
    presence=st.sampled_from([0.0, -1.0, 0.6]),
    frequency=st.sampled_from([0.0, -0.5, 1.1]),
)
def test_penalties_see_the_drafts_before_them(
    history: list[int], draft: list[int], repetition: float, presence: float, frequency: float
) -> None:
    """A block of drafts is penalised as if its tokens came one at a time."""
    params = SamplingParams(
        repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency
    )
    logits = torch.randn(len(draft) + 1, 10, generator=torch.Generator().manual_seed(1))
    plain = Block(SamplingParams(), 0, [1], 1)
    block = Block(params, 0, history, 1, tuple(draft))
    together = penalize(torch.cat([logits[:1], logits, logits[:1]]), [plain, block, plain])

    for i in range(len(draft) + 1):
        one = Block(params, 0, history + draft[:i], 1)
        assert torch.equal(together[1 + i], penalize(logits[i : i + 1], [one])[0])
    assert torch.equal(together[0], logits[0])
    assert torch.equal(together[-1], logits[0])


def test_penalties_leave_the_logits_alone() -> None:
    """The model's logits are not changed in place."""
    logits = torch.ones(1, 4)
    penalize(logits, [Block(SamplingParams(repetition_penalty=2.0), 0, [1], 1)])

    assert torch.equal(logits, torch.ones(1, 4))


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_ties_go_to_the_lowest_id(top_k: int) -> None:
    """Of equal logits at the edge of top-k and top-p the lowest ids are kept."""
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0, 2.0, 2.0]])

    kept = ours(logits, top_k=top_k)[0].nonzero().flatten().tolist()
    assert kept == [1, 2, 4][:top_k]
    nucleus = ours(torch.zeros(1, 8), top_p=0.3)[0].nonzero().flatten().tolist()
    assert nucleus == [0, 1, 2]


@pytest.mark.parametrize("top_k", [0, -1, 32, 33, 10**6])
def test_top_k_about_the_vocabulary(top_k: int) -> None:
    """P-05: a top_k of nothing, of the vocabulary's size and beyond keeps every id."""
    logits = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))

    assert torch.equal(ours(logits, top_k=top_k), torch.softmax(logits, dim=-1))


@pytest.mark.parametrize("top_p", [0.0, 1e-6])
def test_tiny_top_p(top_p: float) -> None:
    """P-05: a tiny top_p keeps the likeliest id with probability 1, and nothing is NaN."""
    assert ours(torch.tensor([[50.0, 0.0, 0.0]]), top_p=top_p).tolist() == [[1.0, 0.0, 0.0]]
    assert ours(torch.tensor([[0.0, 0.0, 50.0]]), top_p=top_p).tolist() == [[0.0, 0.0, 1.0]]


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-10, 1e-3, 1e3, 1e30, 1e300])
def test_extreme_temperatures(temperature: float) -> None:
    """However cold or hot, probabilities are numbers that sum to 1; cold is argmax, hot is flat."""
    probs = ours(torch.tensor([[-3.0, 60.0, 59.0, -200.0]]), temperature=temperature)[0]

    assert probs.isfinite().all()
    assert float(probs.sum()) == pytest.approx(1.0)
    want = [0.0, 1.0, 0.0, 0.0] if temperature < 1 else [0.25] * 4
    assert probs.tolist() == pytest.approx(want, abs=0.06)


def test_impossible_ids_stay_impossible() -> None:
    """An id of logit -inf, as those of a padded vocabulary, has probability 0 in every way."""
    logits = torch.tensor([[1.0, 0.5, -math.inf, -math.inf]])
    for params in ({}, {"top_k": 3}, {"top_p": 0.99}, {"min_p": 0.01}, {"temperature": 9.0}):
        probs = ours(logits, **params)

        assert probs[0, 2:].tolist() == [0.0, 0.0]
        assert float(probs.sum()) == pytest.approx(1.0)


def test_greedy_is_one_hot() -> None:
    """A greedy row's distribution is all on its likeliest token, ties to the lowest id."""
    blocks = [
        Block(SamplingParams(temperature=0), 0, [1], 1),
        Block(SamplingParams(), 0, [1], 1),
        Block(SamplingParams(top_k=1), 0, [1], 1),
    ]
    logits = torch.tensor([[0.0, 1.0, 1.0]]).repeat(3, 1)
    probs = probabilities(logits, blocks)

    assert probs[0].tolist() == probs[2].tolist() == [0.0, 1.0, 0.0]
    assert torch.equal(probs[1], torch.softmax(logits[1], dim=-1))
