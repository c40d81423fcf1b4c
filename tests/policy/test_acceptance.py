"""Survival: what is counted as a trial, what is censored, and whose history counts."""

from random import Random

import pytest

from spec_cli.policy.acceptance import AcceptanceModel, match_bucket


def _feed(model: AcceptanceModel, name: str, accept: float, drafts: int, rng: Random) -> None:
    for _ in range(drafts):
        accepted = 0
        while accepted < 4 and rng.random() < accept:
            accepted += 1
        model.observe("draft", name, 0, 4, accepted)


def test_drafts_accepted_to_the_end_are_censored() -> None:
    """Nothing but full acceptance drives survival to one at every depth, tried or not."""
    model = AcceptanceModel()
    for _ in range(100):
        model.observe("draft", "r", 0, 2, 2)
    survival = model.survival("draft", "r", 0, 8)
    assert survival[1] > 0.97
    assert survival[7] > 0.9


@pytest.mark.parametrize("accept", [0.2, 0.5, 0.8])
def test_the_true_survival_is_found(accept: float) -> None:
    """After 300 drafts each S(i) is within 0.08 of its true value, and it never rises."""
    model = AcceptanceModel()
    _feed(model, "r", accept, 300, Random(1))
    survival = model.survival("draft", "r", 0, 4)
    assert survival == sorted(survival, reverse=True)
    for i, estimate in enumerate(survival, start=1):
        assert estimate == pytest.approx(accept**i, abs=0.08)


def test_tokens_that_were_not_judged_do_not_count() -> None:
    """A draft cut off by an accepted end token tells nothing of the tokens behind it."""
    model = AcceptanceModel()
    before = model.survival("draft", "r", 0, 3)
    model.observe("draft", "r", 0, 0, 0)
    assert model.survival("draft", "r", 0, 3) == before
    assert model.recent_counts() == (0, 0)
    model.observe("draft", "r", 0, 1, 1)
    assert model.recent_counts() == (1, 1)


def test_a_row_is_told_from_its_neighbours() -> None:
    """A row that is always right and one that never is part ways although they share a pool."""
    model, rng = AcceptanceModel(), Random(2)
    for _ in range(60):
        _feed(model, "good", 0.95, 1, rng)
        _feed(model, "bad", 0.05, 1, rng)
    assert model.survival("draft", "good", 0, 1)[0] > 0.8
    assert model.survival("draft", "bad", 0, 1)[0] < 0.2
    model.forget("bad")
    assert model.survival("draft", "bad", 0, 1)[0] > 0.3


def test_lookup_is_told_apart_by_match_length() -> None:
    """What short matches teach does not reach long ones."""
    model = AcceptanceModel()
    long_before = model.survival("ngram", "new", 12, 1)
    for _ in range(50):
        model.observe("ngram", "r", 1, 4, 0)
    assert model.survival("ngram", "new", 1, 1)[0] < 0.1
    assert model.survival("ngram", "new", 12, 1) == long_before
    assert [match_bucket(n) for n in (0, 1, 3, 4, 7, 8, 900)] == [0, 1, 3, 4, 4, 5, 5]


def test_a_change_of_text_is_noticed_soon() -> None:
    """Twenty good drafts outweigh two hundred bad ones."""
    model, rng = AcceptanceModel(), Random(3)
    _feed(model, "r", 0.1, 200, rng)
    assert model.survival("draft", "r", 0, 1)[0] < 0.2
    _feed(model, "r", 0.9, 20, rng)
    assert model.survival("draft", "new", 0, 1)[0] > 0.6
