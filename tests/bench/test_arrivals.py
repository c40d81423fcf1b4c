"""Arrival plans are fixed beforehand, equal for all arms, and Poisson."""

import math

import pytest
from scipy import stats

from spec_cli.bench.arrivals import mean_rate, plan_arrivals
from spec_cli.core.errors import UsageError


def test_same_seed_same_plan():
    """The plan depends on rate, number and seed alone."""
    plan = plan_arrivals(4.0, 50, seed=1, horizon_s=math.inf)

    assert plan == plan_arrivals(4.0, 50, seed=1, horizon_s=math.inf)
    assert plan != plan_arrivals(4.0, 50, seed=2, horizon_s=math.inf)
    assert list(plan.times_s) == sorted(plan.times_s)


def test_gaps_are_exponential_with_the_mean_asked_for():
    """Kolmogorov-Smirnov against the exponential distribution, and the mean within 4 sigma."""
    rate = 50.0
    times = plan_arrivals(rate, 4000, seed=1, horizon_s=math.inf).times_s
    gaps = [b - a for a, b in zip((0.0, *times), times, strict=False)]

    assert stats.kstest(gaps, "expon", args=(0, 1 / rate)).pvalue > 0.01
    assert abs(len(gaps) / times[-1] - rate) < 4 * rate / math.sqrt(len(gaps))


def test_rates_differ_in_speed_and_in_nothing_else():
    """Plans of different rates are scaled copies."""
    slow = plan_arrivals(1.0, 20, seed=3, horizon_s=math.inf).times_s
    fast = plan_arrivals(4.0, 20, seed=3, horizon_s=math.inf).times_s

    assert fast == pytest.approx([time / 4.0 for time in slow])


def test_horizon_cuts_and_leaves_one():
    """A slow rate sends what fits, at least one."""
    full = plan_arrivals(1.0, 50, seed=0, horizon_s=math.inf).times_s
    cut = plan_arrivals(1.0, 50, seed=0, horizon_s=10.0).times_s

    assert cut == tuple(time for time in full if time <= 10.0)
    assert len(plan_arrivals(0.001, 50, seed=0, horizon_s=1.0).times_s) == 1


def test_infinite_rate_sends_all_at_once():
    """`inf` is a rate (B-02)."""
    plan = plan_arrivals(math.inf, 3, seed=0, horizon_s=1.0)

    assert plan.times_s == (0.0, 0.0, 0.0)
    assert plan.planned_rate is None


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, -math.inf])
def test_rate_of_nothing_is_refused(rate):
    """0 and below (B-02)."""
    with pytest.raises(UsageError, match="above 0"):
        plan_arrivals(rate, 3, seed=0, horizon_s=1.0)


def test_number_of_requests_is_checked():
    """At least one."""
    with pytest.raises(UsageError, match="at least 1"):
        plan_arrivals(1.0, 0, seed=0, horizon_s=1.0)


def test_mean_rate():
    """By hand: 4 gaps in 2 seconds."""
    assert mean_rate([1.0, 1.5, 2.0, 2.5, 3.0]) == 2.0
    assert mean_rate([1.0]) is None
