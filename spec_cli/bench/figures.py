"""From what happened to the figures of a report."""

from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from spec_cli.bench.arms import Arm
from spec_cli.bench.arrivals import mean_rate
from spec_cli.bench.counts import Totals, mean_draft_length, paused_share, time_split_ms
from spec_cli.bench.harness import Group, LoadRun
from spec_cli.bench.slo import ServiceLevel
from spec_cli.bench.stats import BreakEven, bootstrap_interval, break_even, summarize
from spec_cli.bench.timeline import Timeline
from spec_cli.core.events import StepFinished

SATURATED_BELOW = 0.95
"""A rate of which less than this part was achieved is marked saturated."""
_NUM_PARTS = 60
_FEWEST_PAIRS = 3
_Pair = tuple[Group, Group]


def batch_figures(arm: Arm, groups: list[Group], base: list[Group]) -> dict[str, Any]:
    """The figures of an arm at a batch size.

    Args:
        arm: Whose they are.
        groups: What it ran; at least one.
        base: What the target alone ran; empty if it failed.
    """
    timelines = [timeline for group in groups for timeline in group.timelines]
    steps = [step for group in groups for step in group.steps]
    decode = [step for group in groups for step in group.decode_steps]
    totals = Totals.of([each.stats for each in timelines if each.stats is not None])
    runs = [_speed(part) for part in _by_repeat(groups)]
    pairs = pair_groups(groups, base)
    interval = bootstrap_interval(pairs, _speedup) if pairs and not arm.is_base else None
    return {
        "arm": arm.name,
        "spec": arm.spec,
        "num_draft_tokens": arm.num_draft_tokens,
        "tokens_per_second": _speed(groups),
        "tokens_per_second_sd": stdev(runs) if len(runs) > 1 else None,
        "tokens_per_second_runs": runs,
        "speedup_measured": _speedup(pairs) if pairs else None,
        "speedup_interval": [interval.low, interval.high] if interval else None,
        "time_to_first_token_ms": _summary([t.time_to_first_token_s for t in timelines]),
        "time_per_output_token_ms": _summary([t.time_per_output_token_s for t in timelines]),
        "mean_num_draft_tokens": mean_draft_length(steps),
        "mean_rows": _mean_rows(decode),
        "paused_share": paused_share(steps),
        "time_split_ms": time_split_ms(decode),
        "speculative_decoding": totals.record(),
    }


def pair_groups(groups: list[Group], base: list[Group]) -> list[_Pair]:
    """The same work in both arms: equal prompts and repeat."""
    by_key = {(group.index, group.repeat): group for group in base}
    return [
        (group, by_key[group.index, group.repeat])
        for group in groups
        if (group.index, group.repeat) in by_key
    ]


def _by_repeat(groups: list[Group]) -> list[list[Group]]:
    repeats = sorted({group.repeat for group in groups})
    return [[group for group in groups if group.repeat == repeat] for repeat in repeats]


def _speed(groups: list[Group]) -> float:
    """Tokens per second of decoding: prompts excluded, all rows of the batch together."""
    seconds = sum(group.decode_s for group in groups)
    return sum(group.num_decode_tokens for group in groups) / seconds if seconds > 0.0 else 0.0


def _speedup(pairs: list[_Pair]) -> float:
    base = _speed([base for _, base in pairs])
    return _speed([group for group, _ in pairs]) / base if base else 0.0


def load_figures(run: LoadRun, slo: ServiceLevel) -> dict[str, Any]:
    """The figures of an arm at a request rate."""
    timelines = run.timelines
    complete = [each for each in timelines if each.is_complete]
    sent = [each for each in timelines if each.failure != "not sent in time"]
    achieved = mean_rate([each.finished_s for each in complete if each.finished_s is not None])
    if run.plan.planned_rate is None and complete:
        achieved = len(complete) / run.duration_s  # all came at once
    num_good = sum(slo.is_met(each) for each in timelines)
    steps = run.steps
    return {
        "arm": run.arm.name,
        "spec": run.arm.spec,
        "num_draft_tokens": run.arm.num_draft_tokens,
        "num_requests": len(timelines),
        "num_completed": len(complete),
        "failures": _failures(timelines),
        "duration_s": run.duration_s,
        "sent_rate": mean_rate([each.sent_s for each in sent]),
        "achieved_rate": achieved,
        "saturated": is_saturated(run, achieved),
        "send_lag_ms": _summary([each.sent_s - each.planned_s for each in sent]),
        "queue_time_ms": _summary([each.queue_s for each in timelines]),
        "time_to_first_token_ms": _summary([each.time_to_first_token_s for each in complete]),
        "time_per_output_token_ms": _summary([each.time_per_output_token_s for each in complete]),
        "inter_token_latency_ms": _summary(
            [gap for each in complete for gap in each.inter_token_latencies_s]
        ),
        "end_to_end_ms": _summary([each.end_to_end_s for each in complete]),
        "tokens_per_second": sum(each.num_tokens for each in timelines) / run.duration_s,
        "goodput": num_good / run.duration_s,
        "slo_attained": num_good / len(timelines),
        "mean_num_draft_tokens": mean_draft_length(steps),
        "mean_rows": _mean_rows(steps),
        "paused_share": paused_share(steps),
        "num_steps": len(steps),
        "draft_length_over_time": draft_length_over_time(run),
        "speculative_decoding": Totals.of(
            [each.stats for each in timelines if each.stats is not None]
        ).record(),
    }


def draft_length_over_time(run: LoadRun) -> list[list[float]]:
    """Mean draft tokens per row in up to 60 equal parts of the run, as `[seconds, k]`."""
    decoding = [step for step in run.steps if step.rows]
    if not decoding or run.duration_s <= 0.0:
        return []
    width = run.duration_s / _NUM_PARTS
    parts: dict[int, list[StepFinished]] = {}
    for step in decoding:
        part = int((step.time_s - run.origin_s) / width)
        parts.setdefault(min(part, _NUM_PARTS - 1), []).append(step)
    return [
        [round((part + 0.5) * width, 3), round(mean_draft_length(steps) or 0.0, 3)]
        for part, steps in sorted(parts.items())
    ]


def is_saturated(run: LoadRun, achieved_rate: float | None) -> bool:
    """Whether requests leave more slowly than they come.

    Held against the rate of this very draw of arrivals, not against the rate asked for, so that the
    chance in a short plan is not taken for a limit.
    """
    planned = run.plan.planned_rate
    if planned is None:
        return len(run.plan.times_s) > 1  # all at once
    if any(not each.is_complete for each in run.timelines):
        return True
    return achieved_rate is None or achieved_rate < SATURATED_BELOW * planned


def load_ratios(run: LoadRun, base: LoadRun) -> list[float]:
    """End-to-end latency over that of the target alone, request by request."""
    by_index = {each.index: each.end_to_end_s for each in base.timelines}
    ratios = []
    for each in run.timelines:
        mine, other = each.end_to_end_s, by_index.get(each.index)
        if mine is not None and other:
            ratios.append(mine / other)
    return ratios


def break_even_record(samples: list[tuple[float, list[float]]]) -> dict[str, Any] | None:
    """Where the median ratio rises through 1; None with fewer than two loads.

    A load with fewer than three pairs has no median worth the name and is left out.
    """
    usable = [(load, ratios) for load, ratios in samples if len(ratios) >= _FEWEST_PAIRS]
    if len(usable) < 2:
        return None
    found: BreakEven = break_even(usable)
    record = asdict(found)
    record["interval"] = [found.interval.low, found.interval.high] if found.interval else None
    record["range"] = [usable[0][0], usable[-1][0]]
    return record


def _mean_rows(steps: list[StepFinished]) -> float | None:
    """Rows that decoded together, over the steps in which any did."""
    counts = [len(step.rows) for step in steps if step.rows]
    return fmean(counts) if counts else None


def _failures(timelines: list[Timeline]) -> dict[str, int]:
    reasons = [each.failure for each in timelines if each.failure is not None]
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def _summary(seconds: list[float | None]) -> dict[str, float] | None:
    """A summary in milliseconds."""
    found = summarize([1e3 * value for value in seconds if value is not None])
    return None if found is None else asdict(found)
