"""With coupled verification a seeded text is a function of prompt and seed alone."""

import functools
from typing import Any

import pytest

from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.sampling.verify import VerifyMode
from tests import tiny
from tests.driving import DRAFTS, drive, drive_tiny, request
from tests.fakes import TableRunner

NUM_TOKENS = 20
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"temperature": 1.0},
    "cold": {"temperature": 0.5},
    "hot": {"temperature": 1.7},
    "top_p": {"temperature": 1.0, "top_p": 0.9},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "min_p": {"temperature": 1.0, "min_p": 0.1},
    "penalties": {
        "temperature": 1.0,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.4,
    },
    "everything": {
        "temperature": 0.8,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.02,
        "repetition_penalty": 1.1,
        "frequency_penalty": -0.3,
    },
    "greedy penalties": {"temperature": 0.0, "repetition_penalty": 1.5, "presence_penalty": 1.0},
}


def alone(family: str, setting: str, index: int, draft: str | None, k: int) -> list[int]:
    driver = drive_tiny(family, draft, k)
    options = SETTINGS[setting]
    driver.add(request("0", tiny.prompt(index), NUM_TOKENS, seed=index, **options))
    return driver.run()["0"].token_ids


@functools.cache
def baseline(family: str, setting: str, index: int) -> list[int]:
    """The target alone, the request alone."""
    return alone(family, setting, index, None, 0)


@pytest.mark.parametrize("draft", ["ngram", "noisy"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_speculation_changes_nothing(setting: str, draft: str) -> None:
    """Lookup and a draft model give the target-only tokens however the distribution is shaped."""
    assert alone("llama", setting, 2, draft, 5) == baseline("llama", setting, 2)


@pytest.mark.parametrize("k", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("draft", DRAFTS)
def test_draft_length_changes_nothing(draft: str, k: int) -> None:
    """Every draft length gives the target-only tokens."""
    assert alone("llama", "plain", 1, draft, k) == baseline("llama", "plain", 1)


@pytest.mark.parametrize("draft", [None, *DRAFTS])
def test_neighbours_change_nothing(draft: str | None) -> None:
    """In a batch of all settings, with rows joining and leaving, each row is as if alone."""
    driver = drive_tiny("llama", draft, 4, max_rows=5)
    for i, (name, options) in enumerate(SETTINGS.items()):
        length = NUM_TOKENS - 4 * (i % 3)
        driver.add(request(name, tiny.prompt(i % 3), length, seed=i % 3, **options))
        driver.step()
    answers = driver.run()

    for i, name in enumerate(SETTINGS):
        got = answers[name].token_ids
        assert got == baseline("llama", name, i % 3)[: NUM_TOKENS - 4 * (i % 3)], name


@pytest.mark.parametrize("family", [f for f in tiny.FAMILIES if f != "llama"])
def test_families(family: str) -> None:
    """Sampled tokens of every family are those of the target alone, in a batch with drafts."""
    driver = drive_tiny(family, "noisy", 4)
    for i in range(3):
        driver.add(request(str(i), tiny.prompt(i), NUM_TOKENS, seed=i, **SETTINGS["plain"]))
        driver.step()
    answers = driver.run()

    for i in range(3):
        assert answers[str(i)].token_ids == baseline(family, "plain", i)


@pytest.mark.parametrize("p_min", [0.2, 0.6])
def test_early_stop_changes_nothing(p_min: float) -> None:
    """A draft model that stops at low confidence leaves the coupled text as it is."""
    driver = drive_tiny("llama", "noisy", 6, p_min=p_min)
    driver.add(request("0", tiny.prompt(1), NUM_TOKENS, seed=1, temperature=1.0))
    answer = driver.run()["0"]

    assert answer.token_ids == baseline("llama", "plain", 1)
    assert any(len(row.draft_token_ids) < 6 for step in driver.steps[1:8] for row in step.rows)


@pytest.mark.parametrize("draft", DRAFTS)
def test_rejection_ignores_neighbours(draft: str) -> None:
    """With rejection at a fixed draft length a seeded row does not depend on its neighbours."""
    options = [SETTINGS["plain"], SETTINGS["top_p"], SETTINGS["penalties"], {"temperature": 0.0}]

    def run(members: tuple[int, ...], max_rows: int) -> dict[int, list[int]]:
        driver = drive_tiny("llama", draft, 3, verify_mode="rejection", max_rows=max_rows)
        for i in members:
            driver.add(request(str(i), tiny.prompt(i), NUM_TOKENS, seed=i, **options[i]))
            driver.step()
        return {int(name): answer.token_ids for name, answer in driver.run().items()}

    together, reversed_order = run((0, 1, 2, 3), 4), run((3, 2, 1, 0), 2)

    for i in range(4):
        assert run((i,), 4)[i] == together[i] == reversed_order[i]


@pytest.mark.parametrize("mode", ["coupled", "rejection"])
def test_seeds(mode: VerifyMode) -> None:
    """P-04 (engine): seed 0 repeats itself, alone and in a batch, and differs from other seeds.

    Two unequal seeds give the same 16 tokens of 32 equal chances with odds of 1e-24.
    """

    def run(*seeds: int) -> list[list[int]]:
        table = [1 / 32] * 32
        draft = DraftModelProposer(TableRunner(table), verify=mode, num_token_ids=32)
        driver = drive(TableRunner(table), draft, 4, verify_mode=mode)
        for i, seed in enumerate(seeds):
            driver.add(request(str(i), (3, 4), 16, seed=seed, temperature=1.0))
        answers = driver.run()
        return [answers[str(i)].token_ids for i in range(len(seeds))]

    first = run(0)[0]

    assert run(0)[0] == first
    assert run(5, 0, 6)[1] == first
    assert run(1)[0] != first
    drawn = [run(seed)[0] for seed in (0, 2**63, 2**64 - 1, 12345, 7)]
    assert len({tuple(tokens) for tokens in drawn}) == 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_mixed_batch_of_seeded_and_unseeded_rows(temperature: float) -> None:
    """L-05: rows with a seed equal their solo runs beside a row without one, greedy or sampled."""
    probs = [0.4, 0.3, 0.2, 0.1, 0.0, 0.0]
    drawn = 0x5EED  # what a request without a seed happened to draw
    prompts = {7: (1,), drawn: (1, 2), 9: (1, 2, 3)}

    def run(*seeds: int) -> list[list[int]]:
        draft = DraftModelProposer(TableRunner([1 / 6] * 6), verify="coupled", num_token_ids=6)
        driver = drive(TableRunner(probs), draft, 4)
        for seed in seeds:
            driver.add(request(str(seed), prompts[seed], seed=seed, temperature=temperature))
        answers = driver.run()
        return [answers[str(seed)].token_ids for seed in seeds]

    together = run(7, drawn, 9)

    assert together[0] == run(7)[0]
    assert together[2] == run(9)[0]
    assert set(together[1]) <= ({0} if temperature == 0 else {0, 1, 2, 3})
    assert all(len(row) == 16 for row in together)
