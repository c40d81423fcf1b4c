"""Step times: learnt from few and noisy samples, never falling, scaled to any machine."""

from random import Random

import pytest

from spec_cli.policy.cost import CostModel, CostSample
from spec_cli.policy.surface import CostPrior


def _true(rows: int, tokens: int, context: int) -> float:
    return 0.05 + 0.004 * tokens + 0.002 * rows + 1e-6 * context


def test_a_calibration_is_learnt() -> None:
    """A handful of forwards of another machine size predict sizes between and beyond them."""
    model = CostModel()
    sizes = [(rows, rows * each) for rows in (1, 2, 4, 8) for each in (1, 3, 5, 9)]
    model.calibrate(
        CostSample("target", rows, tokens, 500 * rows, _true(rows, tokens, 500 * rows))
        for rows, tokens in sizes * 3
    )
    expected, hopeful = model.target_seconds(3, 3, 20, 1500)
    for tokens, seconds in enumerate(expected, start=3):
        assert seconds == pytest.approx(_true(3, tokens, 1500), rel=0.05)
    assert all(hope <= seconds for hope, seconds in zip(hopeful, expected, strict=True))


def test_outliers_are_not_believed() -> None:
    """One sample in ten being three times too long moves the estimate by under 12 %."""
    model, rng = CostModel(), Random(4)
    for _ in range(200):
        tokens = rng.choice((1, 4, 8))
        seconds = _true(1, tokens, 0) * (3.0 if rng.random() < 0.1 else rng.gauss(1.0, 0.03))
        model.observe_target(1, tokens, 0, seconds)
    expected, _ = model.target_seconds(1, 1, 8, 0)
    for tokens in (1, 4, 8):
        assert expected[tokens - 1] == pytest.approx(_true(1, tokens, 0), rel=0.12)


def test_more_tokens_never_take_less_time() -> None:
    """Whatever noise was measured."""
    model, rng = CostModel(), Random(5)
    for _ in range(100):
        model.observe_target(2, rng.randint(2, 30), 100, rng.uniform(0.01, 0.1))
        expected, _ = model.target_seconds(2, 2, 40, 100)
        assert expected == sorted(expected)


def test_a_jump_is_found_though_no_line_has_one() -> None:
    """A kernel change at nine tokens stays a step."""
    model = CostModel()
    for _ in range(30):
        for tokens in (1, 8, 9, 16):
            model.observe_target(1, tokens, 0, 0.02 if tokens < 9 else 0.03)
    expected, _ = model.target_seconds(1, 1, 16, 0)
    assert expected[7] == pytest.approx(0.02, rel=0.05)
    assert expected[8] == pytest.approx(0.03, rel=0.05)


def test_a_slower_machine_is_followed() -> None:
    """When all steps take 1.5 times as long, sizes not met since are known to as well."""
    model = CostModel()
    for _ in range(40):
        for tokens in (1, 5):
            model.observe_target(1, tokens, 0, _true(1, tokens, 0))
    for _ in range(60):
        model.observe_target(1, 5, 0, 1.5 * _true(1, 5, 0))
    expected, _ = model.target_seconds(1, 1, 5, 0)
    assert expected[4] == pytest.approx(1.5 * _true(1, 5, 0), rel=0.1)
    assert expected[0] == pytest.approx(1.5 * _true(1, 1, 0), rel=0.2)


def test_catch_up_is_the_drafts_cost() -> None:
    """Passes and tokens caught up on are told apart."""
    model = CostModel(draft=CostPrior(0.001, 0.0002))
    rng = Random(6)
    for step in range(200):
        lag = 1 if step % 4 else 50
        model.observe_draft(1, 3, 3, 300, lag, (3 * 0.004 + lag * 0.0001) * rng.gauss(1.0, 0.02))
    assert model.draft_seconds(1, 3, 3, 300) == pytest.approx(0.012, rel=0.05)
    assert model.catch_up_s == pytest.approx(0.0001, rel=0.25)


def test_one_slow_lookup_does_not_shut_lookup_out() -> None:
    """A pause of the interpreter at most doubles what lookup is thought to cost."""
    model = CostModel()
    before = model.lookup_seconds(4)
    model.observe_lookup(4, 1.0)
    assert model.lookup_seconds(4) <= 2.0 * before


def test_two_outliers_of_three_do_not_spoil_a_size() -> None:
    """A calibration that met two pauses of the machine at a size still tells that size's time."""
    model = CostModel()
    for tokens in (1, 3, 5, 9):
        slow = 2.0 if tokens == 9 else 1.0
        for factor in (slow, slow, 1.0):
            model.observe_target(1, tokens, 0, factor * _true(1, tokens, 0))
    expected, _ = model.target_seconds(1, 9, 1, 0)
    assert expected[0] == pytest.approx(_true(1, 9, 0), rel=0.05)


def test_a_size_met_once_leans_on_those_beside_it() -> None:
    """One sample that is 40 % too long counts a third against its neighbours; a second one heals.

    Negative control: where the size does take 40 % longer, two samples say so.
    """
    for is_outlier in (True, False):
        model = CostModel()
        for tokens in (1, 4, 12):
            for _ in range(10):
                model.observe_target(1, tokens, 0, _true(1, tokens, 0))
        model.observe_target(1, 8, 0, 1.4 * _true(1, 8, 0))
        once = model.target_seconds(1, 8, 1, 0)[0][0] / _true(1, 8, 0)
        assert 1.05 < once < 1.2
        model.observe_target(1, 8, 0, (1.0 if is_outlier else 1.4) * _true(1, 8, 0))
        twice = model.target_seconds(1, 8, 1, 0)[0][0] / _true(1, 8, 0)
        assert (twice < 1.05) if is_outlier else (twice > 1.15)
