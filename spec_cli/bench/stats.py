"""Statistics of measurements: percentiles, bootstrap intervals, and where a curve crosses one."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import TypeVar

NUM_RESAMPLES = 1000
_T = TypeVar("_T")


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed, linear between neighbours.

    Definition 7 of Hyndman and Fan 1996, as numpy's default.

    Args:
        values: At least one.
        share: In [0, 1]; 0.5 is the median.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean and percentiles of a measured quantity."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float


def summarize(values: list[float]) -> Summary | None:
    """The summary of values; None of none."""
    if not values:
        return None
    return Summary(
        len(values),
        fmean(values),
        percentile(values, 0.5),
        percentile(values, 0.9),
        percentile(values, 0.99),
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A range that holds the true value with 95 % confidence."""

    low: float
    high: float


def bootstrap_interval(
    samples: list[_T], statistic: Callable[[list[_T]], float], *, seed: int = 0
) -> Interval | None:
    """The percentile bootstrap (Efron 1979) of a statistic.

    Args:
        samples: Independent units; with fewer than three there is no interval.
        statistic: Of a resample.
        seed: Of the resampling, so that a report can be computed again.
    """
    if len(samples) < 3:
        return None
    draw = random.Random(seed)
    found = [statistic(draw.choices(samples, k=len(samples))) for _ in range(NUM_RESAMPLES)]
    return Interval(percentile(found, 0.025), percentile(found, 0.975))


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where a ratio crosses 1 as the load rises.

    Attributes:
        verdict: `crosses`, `pays everywhere`, `pays nowhere`, or `recovers`: a ratio that starts
            above 1 and ends below it.
        at: The first crossing from below, or None.
        interval: Its bootstrap interval, over the resamples that cross.
        share_crossing: Part of the resamples that cross, in [0, 1].
    """

    verdict: str
    at: float | None
    interval: Interval | None
    share_crossing: float


def break_even(samples: list[tuple[float, list[float]]], *, seed: int = 0) -> BreakEven:
    """Where the median cost ratio rises through 1.

    Args:
        samples: For each load, ascending and finite, the paired ratios measured there: a cost with
            speculation over the cost without, so that above 1 speculation loses. Every list holds
            at least one.
        seed: Of the resampling.
    """
    loads = [load for load, _ in samples]
    medians = [median(ratios) for _, ratios in samples]
    at = crossing(loads, medians)
    draw = random.Random(seed)
    found = []
    for _ in range(NUM_RESAMPLES):
        resampled = [median(draw.choices(ratios, k=len(ratios))) for _, ratios in samples]
        one = crossing(loads, resampled)
        if one is not None:
            found.append(one)
    interval = None
    if at is not None and len(found) > 1:
        interval = Interval(percentile(found, 0.025), percentile(found, 0.975))
    return BreakEven(_verdict(medians, at), at, interval, len(found) / NUM_RESAMPLES)


def crossing(loads: list[float], ratios: list[float]) -> float | None:
    """The first load at which the ratios rise through 1, by straight lines over log(load)."""
    for (load, ratio), (next_load, next_ratio) in pairwise(zip(loads, ratios, strict=True)):
        if ratio <= 1.0 < next_ratio:
            part = (1.0 - ratio) / (next_ratio - ratio)
            return math.exp(math.log(load) + part * (math.log(next_load) - math.log(load)))
    return None


def _verdict(medians: list[float], at: float | None) -> str:
    if at is not None:
        return "crosses"
    if all(ratio <= 1.0 for ratio in medians):
        return "pays everywhere"
    if all(ratio > 1.0 for ratio in medians):
        return "pays nowhere"
    return "recovers"
