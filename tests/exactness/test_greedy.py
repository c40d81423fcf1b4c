"""Greedy tokens are those of transformers' generate(), whatever is guessed and whoever is beside.

Every reference asserts that its top two logits are at least 1e-4 apart at each position, so that
equality in float32 is fair to ask.
"""

import itertools
import random
from typing import Any

import pytest

from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from tests import tiny
from tests.driving import DRAFTS, PLENTY, drive, drive_tiny, request
from tests.fakes import ScriptedProposer

NUM_TOKENS = 12
BATCHES = (1, 3, 8)
LENGTHS = range(9)
_JOINED = ("suffix", "hybrid")
"""Made of the others: a few lengths of draft tell as much."""
CROSS = [
    (k, draft, batch)
    for k, draft, batch in itertools.product(LENGTHS, DRAFTS, BATCHES)
    if draft not in _JOINED or k in (1, 4, 8)
]
OTHERS = tuple(family for family in tiny.FAMILIES if family != "llama")


def check_cell(family: str, draft: str, k: int, batch: int, num_prompts: int) -> None:
    """Rows join and leave at different steps, one is aborted; each has its reference's tokens."""
    driver = drive_tiny(family, draft, k, max_rows=max(1, batch - 1))
    lengths = {}
    for i in range(batch):
        lengths[str(i)] = NUM_TOKENS - 2 * (i % 4)
        driver.add(request(str(i), tiny.prompt(i % num_prompts), lengths[str(i)]))
        if i % 2:
            driver.step()
    if batch > 1:
        driver.add(request("aborted", tiny.prompt(1), NUM_TOKENS))
        driver.step()
        driver.abort("aborted")
    answers = driver.run()

    for i in range(batch):
        want = tiny.expected(family, i % num_prompts, NUM_TOKENS)[: lengths[str(i)]]
        assert tuple(answers[str(i)].token_ids) == want, f"row {i}"
        assert answers[str(i)].reason == "length"


@pytest.mark.parametrize(("k", "draft", "batch"), CROSS)
def test_llama_equals_generate(draft: str, k: int, batch: int) -> None:
    """C-05: every draft length, proposer and batch gives the tokens of generate()."""
    check_cell("llama", draft, k, batch, num_prompts=8)


@pytest.mark.parametrize(("k", "batch"), [*((k, 3) for k in range(1, 9)), (1, 1), (4, 1), (8, 1)])
def test_sixty_four_tokens(k: int, batch: int) -> None:
    """L-04a: 64 tokens with a draft that is right now and then are those of generate()."""
    driver = drive_tiny("llama", "noisy", k)
    driver.add(*(request(str(i), tiny.prompt(i), 64) for i in range(batch)))
    answers = driver.run()

    for i in range(batch):
        assert tuple(answers[str(i)].token_ids) == tiny.expected("llama", i, 64)


def covering(*factors: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """A small set of combinations that holds every pair of values of any two factors.

    Greedy: of some random combinations through an uncovered pair, take the one with most of them.
    """
    rng = random.Random(0)
    places = list(itertools.combinations(range(len(factors)), 2))
    missing = {(a, b, x, y) for a, b in places for x in factors[a] for y in factors[b]}
    chosen = []
    while missing:
        a, b, x, y = min(missing, key=repr)
        best: tuple[Any, ...] = ()
        most = -1
        for _ in range(30):
            cell = [rng.choice(values) for values in factors]
            cell[a], cell[b] = x, y
            gain = sum((i, j, cell[i], cell[j]) in missing for i, j in places)
            if gain > most:
                best, most = tuple(cell), gain
        chosen.append(best)
        missing -= {(i, j, best[i], best[j]) for i, j in places}
    return chosen


FACTORS = (OTHERS, DRAFTS, tuple(LENGTHS), BATCHES)
PAIRWISE = sorted(covering(*FACTORS))
REST = sorted(set(itertools.product(*FACTORS)) - set(PAIRWISE))


def test_covering_array_covers_every_pair() -> None:
    """The array below holds every pair of values, with far fewer cells than the full cross."""
    pairs = {
        (a, b, cell[a], cell[b])
        for cell in PAIRWISE
        for a, b in itertools.combinations(range(4), 2)
    }

    assert len(pairs) == sum(len(x) * len(y) for x, y in itertools.combinations(FACTORS, 2))
    assert len(PAIRWISE) < (len(PAIRWISE) + len(REST)) / 8


@pytest.mark.parametrize(("family", "draft", "k", "batch"), PAIRWISE)
def test_other_families_equal_generate(family: str, draft: str, k: int, batch: int) -> None:
    """Every family, with each proposer, draft length and batch, gives the tokens of generate()."""
    check_cell(family, draft, k, batch, num_prompts=3)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "draft", "k", "batch"), REST)
def test_the_rest_of_the_cross(family: str, draft: str, k: int, batch: int) -> None:
    """The combinations that the covering array leaves out."""
    check_cell(family, draft, k, batch, num_prompts=3)


def test_noisy_draft_is_right_now_and_then() -> None:
    """The noisy copy is both accepted and rejected, so the tests above see both."""
    for family in tiny.FAMILIES:
        driver = drive_tiny(family, "noisy", 4)
        driver.add(*(request(str(i), tiny.prompt(i), NUM_TOKENS) for i in range(3)))
        histogram = [0] * 5
        for answer in driver.run().values():
            for accepted, count in enumerate(answer.stats.acceptance_histogram):
                histogram[accepted] += count

        assert sum(histogram[1:]) > 0, family
        assert sum(histogram[:4]) > 0, family


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("wrong", [False, True])
def test_oracle_and_adversary_give_the_same_text(wrong: bool, k: int) -> None:
    """A guess that is always right is always accepted, an always wrong one never; same tokens."""
    prompts = {tiny.prompt(i): tiny.expected("llama", i, NUM_TOKENS) for i in range(3)}

    def guess(token_ids: list[int], count: int) -> list[int]:
        for prompt, answer in prompts.items():
            if tuple(token_ids[: len(prompt)]) == prompt:
                done = len(token_ids) - len(prompt)
                coming = answer[done : done + count]
                return [(t + 1) % tiny.VOCAB for t in coming] if wrong else list(coming)
        raise AssertionError("an unknown row")

    target = ModelRunner(
        tiny.slotted("llama"), context_length=tiny.CONTEXT, budget=MemoryBudget(PLENTY)
    )
    driver = drive(target, ScriptedProposer(guess), k)
    driver.add(*(request(str(i), p, NUM_TOKENS) for i, p in enumerate(prompts)))
    answers = driver.run()

    for i, want in enumerate(prompts.values()):
        stats = answers[str(i)].stats
        assert tuple(answers[str(i)].token_ids) == want
        assert stats.draft_acceptance_rate == (0.0 if wrong else 1.0)
        assert stats.num_target_passes == (
            NUM_TOKENS - 1 if wrong else -(-(NUM_TOKENS - 1) // (k + 1))
        )
