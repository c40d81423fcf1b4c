"""Statistics against values worked out by hand."""

import math
import random
from statistics import fmean, median

import pytest

from spec_cli.bench.stats import (
    bootstrap_interval,
    break_even,
    crossing,
    percentile,
    summarize,
)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0), (0.25, 1.75)]
)
def test_percentile(share, expected):
    """Linear between neighbours: place = share x (n - 1)."""
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(expected)


def test_summary():
    """Mean and percentiles of 1 to 101: the p-th percentile is p + 1."""
    summary = summarize([float(value) for value in range(101, 0, -1)])

    assert summary is not None
    assert (summary.count, summary.mean) == (101, 51.0)
    assert (summary.p50, summary.p90, summary.p99) == pytest.approx((51.0, 91.0, 100.0))
    assert summarize([]) is None


def test_bootstrap_covers_the_truth():
    """Of 95 % intervals of a mean, roughly that many hold it."""
    draw = random.Random(0)
    hits = 0
    for trial in range(60):
        interval = bootstrap_interval([draw.gauss(5, 2) for _ in range(40)], fmean, seed=trial)
        assert interval is not None
        hits += interval.low <= 5 <= interval.high
    assert hits >= 51


def test_bootstrap_needs_three_samples():
    """Two values say nothing about spread."""
    assert bootstrap_interval([1.0, 2.0], fmean) is None


def test_crossing_is_linear_over_the_logarithm_of_load():
    """0.8 at 2, 1.2 at 8: half-way between on a log axis is 4."""
    assert crossing([1.0, 2.0, 8.0], [0.7, 0.8, 1.2]) == pytest.approx(4.0)
    assert crossing([1.0, 2.0], [0.7, 0.8]) is None
    assert crossing([1.0, 2.0], [1.7, 0.8]) is None


def test_break_even_with_its_interval():
    """Noisy ratios around a known line: the crossing at load 4 lies in a narrow interval."""
    draw = random.Random(1)
    samples = [
        (load, [1.0 + 0.2 * math.log(load / 4.0) + draw.gauss(0, 0.03) for _ in range(60)])
        for load in (1.0, 2.0, 4.5, 8.0, 16.0)
    ]

    found = break_even(samples)

    assert found.verdict == "crosses"
    assert found.at == pytest.approx(4.0, rel=0.1)
    assert found.interval is not None
    assert found.at is not None
    assert 3.2 < found.interval.low < found.at < found.interval.high < 5.0
    assert found.share_crossing == 1.0


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([0.7, 0.9], "pays everywhere"),
        ([1.1, 1.2], "pays nowhere"),
        ([1.1, 0.9], "recovers"),
    ],
)
def test_none_in_this_range(ratios, verdict):
    """Without a crossing the verdict says which side the range lies on."""
    found = break_even(
        [(load, [ratio] * 3) for load, ratio in zip((1.0, 2.0), ratios, strict=True)]
    )

    assert (found.at, found.interval, found.verdict) == (None, None, verdict)


def test_the_median_is_what_crosses():
    """One terrible request does not move the crossing."""
    calm = break_even([(1.0, [0.5, 0.5, 0.5]), (2.0, [1.5, 1.5, 1.5])])
    wild = break_even([(1.0, [0.5, 0.5, 99.0]), (2.0, [1.5, 1.5, 1.5])])

    assert calm.at == wild.at
    assert median([0.5, 0.5, 99.0]) == 0.5
