"""Reports of areas LOSS and PARAM, through the whole engine on models given by a table."""

import math
from collections import Counter
from typing import Any

import pytest
import torch

from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.sampling.verify import VerifyMode
from tests.driving import Answer, drive, request
from tests.fakes import FakeRunner, ScriptedProposer, TableRunner

MODES: tuple[VerifyMode, ...] = ("coupled", "rejection")
P = [0.5, 0.3, 0.2]
Q = [0.7, 0.2, 0.1]
BATCH = 250


def table_draft(probs: list[float], mode: VerifyMode) -> DraftModelProposer:
    return DraftModelProposer(TableRunner(probs), verify=mode, num_token_ids=len(probs))


def frequencies(
    proposer: Any, mode: VerifyMode, k: int, num_seeds: int, max_tokens: int
) -> list[list[float]]:
    """Over seeds 0, 1, ...: how often each id came at each place of the answer."""
    driver = drive(TableRunner(P), proposer, k, verify_mode=mode, max_rows=BATCH)
    for first in range(0, num_seeds, BATCH):
        for seed in range(first, first + BATCH):
            driver.add(request(str(seed), (0,), max_tokens, seed=seed, temperature=1.0))
        driver.run()
    texts = [answer.token_ids for answer in driver.answers.values()]
    counts = [Counter(text[i] for text in texts) for i in range(max_tokens)]
    return [[count[v] / num_seeds for v in range(len(P))] for count in counts]


@pytest.mark.parametrize("mode", MODES)
def test_frequencies_are_the_targets_own(mode: VerifyMode) -> None:
    """L-01, K=1: each token within 0.015 of p in 20 000 draws (4.2 sigma: false alarm 2e-4).

    The first token is the target's alone, the second is drafted, the third is a bonus or follows.
    """
    for row in frequencies(table_draft(Q, mode), mode, k=1, num_seeds=20_000, max_tokens=3):
        assert row == pytest.approx(P, abs=0.015)


@pytest.mark.parametrize("mode", MODES)
def test_frequencies_with_a_greedy_draft(mode: VerifyMode) -> None:
    """L-01: a draft that always picks its favourite is one-hot: within 0.045 in 2 000 (5e-4)."""
    favourite = ScriptedProposer(lambda token_ids, count: [0] * count)

    for row in frequencies(favourite, mode, k=1, num_seeds=2_000, max_tokens=3):
        assert row == pytest.approx(P, abs=0.045)


@pytest.mark.parametrize("mode", MODES)
def test_frequencies_with_long_drafts(mode: VerifyMode) -> None:
    """L-01, K=4: each of six tokens within 0.045 of p in 2 000 draws (4 sigma: 1e-3)."""
    for row in frequencies(table_draft(Q, mode), mode, k=4, num_seeds=2_000, max_tokens=6):
        assert row == pytest.approx(P, abs=0.045)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_greedy_collapses_both_sides(mode: VerifyMode, k: int, batch: int) -> None:
    """L-03: at temperature 0 a draft token that is not the target's top one is never kept."""
    draft = table_draft([0.24, 0.26, 0.25, 0.25], mode)
    driver = drive(TableRunner([0.50, 0.35, 0.10, 0.05]), draft, k, verify_mode=mode)
    driver.add(*(request(str(i), (3,), 8) for i in range(batch)))

    for answer in driver.run().values():
        assert answer.token_ids == [0] * 8
        assert answer.stats.num_accepted_draft_tokens == 0
        assert answer.stats.num_draft_tokens > 0


@pytest.mark.parametrize("mode", MODES)
def test_equal_scores_go_to_the_lower_id(mode: VerifyMode) -> None:
    """L-04b: of two equal top scores the lower id is chosen, with drafts and without."""
    probs = [0.1, 0.4, 0.1, 0.4]
    for k in (0, 4):
        driver = drive(TableRunner(probs), table_draft(probs, mode), k, verify_mode=mode)
        driver.add(request("0", (3,), 8))

        assert driver.run()["0"].token_ids == [1] * 8


class CycleRunner(FakeRunner):
    """Its favourite changes with the position, by less than a penalty weighs."""

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        logits = torch.tensor([2.0, 1.9, 1.8, 1.0, -1.0, -2.0])
        return logits.roll(len(token_ids) // 2 % 3)


def greedy(proposer: Any, k: int, **params: Any) -> list[int]:
    driver = drive(CycleRunner(6), proposer, k)
    driver.add(request("0", (5, 4), 24, **params))
    return driver.run()["0"].token_ids


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("presence_penalty", -1.0),
        ("presence_penalty", 1.5),
        ("frequency_penalty", -1.0),
        ("frequency_penalty", 1.5),
        ("repetition_penalty", 0.5),
        ("repetition_penalty", 1.5),
    ],
)
def test_penalties_work_with_drafts(name: str, value: float) -> None:
    """P-01: with drafts a penalty has the effect it has without, and it has one."""
    draft = DraftModelProposer(CycleRunner(6), verify="coupled", num_token_ids=6)

    baseline = greedy(None, 0, **{name: value})

    assert greedy(draft, 4, **{name: value}) == baseline
    assert baseline != greedy(None, 0)


def sampled(runner: FakeRunner, k: int = 4, **params: Any) -> Answer:
    draft = TableRunner([1 / runner.vocab_size] * runner.vocab_size)
    proposer = DraftModelProposer(draft, verify="coupled", num_token_ids=runner.vocab_size)
    driver = drive(runner, proposer, k)
    driver.add(request("0", (1,), 16, seed=3, **params))
    return driver.run()["0"]


def test_top_k_about_the_size_of_the_vocabulary() -> None:
    """P-05: top_k of 0, V, V + 1 and a million all keep everything; 1 is greedy."""
    probs = [2.0**-i for i in range(31)] + [2.0**-30]
    want = sampled(TableRunner(probs), temperature=1.0).token_ids

    for top_k in (0, -1, 32, 33, 10**6):
        assert sampled(TableRunner(probs), temperature=1.0, top_k=top_k).token_ids == want
    assert sampled(TableRunner(probs), temperature=1.0, top_k=1).token_ids == [0] * 16
    assert want != [0] * 16


class PeakRunner(FakeRunner):
    """Scores [50, 0, 0]."""

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        return torch.tensor([50.0, 0.0, 0.0])


@pytest.mark.parametrize("top_p", [0, 0.0, 1e-6])
def test_tiny_top_p_keeps_one_token(top_p: float) -> None:
    """P-05: a top_p of nothing still keeps the likeliest token; top_p = 1 keeps all."""
    assert sampled(PeakRunner(3), temperature=1.0, top_p=top_p).token_ids == [0] * 16

    flat = sampled(TableRunner([1 / 3] * 3), temperature=1.0).token_ids
    assert sampled(TableRunner([1 / 3] * 3), temperature=1.0, top_p=1).token_ids == flat
    assert sampled(TableRunner([1 / 3] * 3), temperature=1.0, top_p=top_p).token_ids == [0] * 16


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", -5),
        ("top_p", 1.5),
        ("top_p", -0.1),
        ("temperature", -1),
        ("temperature", math.nan),
        ("temperature", "abc"),
    ],
)
def test_senseless_values_are_refused_by_name(name: str, value: Any) -> None:
    """P-05, P-06: a value out of range or of the wrong kind is an error that names its field."""
    with pytest.raises(UsageError, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("temperature", [0, 0.0])
def test_temperature_zero_is_greedy(temperature: float) -> None:
    """P-06: temperature 0 is greedy without a warning (they are errors here), twice the same."""
    first = sampled(TableRunner([0.2, 0.5, 0.3]), temperature=temperature).token_ids

    assert first == [1] * 16
    assert sampled(TableRunner([0.2, 0.5, 0.3]), temperature=temperature).token_ids == first


def test_integer_temperature_is_accepted() -> None:
    """P-06: temperature 1 is temperature 1.0."""
    one = sampled(TableRunner(P), temperature=1).token_ids

    assert one == sampled(TableRunner(P), temperature=1.0).token_ids
