"""The report of a comparison: one JSON object from which every other form is made."""

import math
from dataclasses import asdict
from typing import Any

from spec_cli.bench.arms import BASE, Arm
from spec_cli.bench.comparison import Plan, Results
from spec_cli.bench.figures import (
    batch_figures,
    break_even_record,
    load_figures,
    load_ratios,
    pair_groups,
)
from spec_cli.bench.harness import Group
from spec_cli.bench.proof import Difference, difference_record, verdict_of
from spec_cli.bench.why import ForwardTime, explain, step_economics

Differences = dict[tuple[int, str], list[Difference]]


def rate_label(rate: float) -> float | str:
    """A rate in JSON, which has no infinity; a whole one without a point."""
    if math.isinf(rate):
        return "inf"
    return int(rate) if rate.is_integer() else rate


def batch_cell(results: Results, arm: Arm, batch: int) -> dict[str, Any]:
    """The figures of one arm at one batch size."""
    groups = results.groups[batch, arm.name]
    figures = batch_figures(arm, groups, results.groups.get((batch, BASE), []))
    memory = {"kv_bytes": results.kv_bytes.get((batch, arm.name), 0)}
    return {**figures, "memory": memory}


def rate_cell(plan: Plan, results: Results, arm: Arm, rate: float) -> dict[str, Any]:
    """The figures of one arm at one request rate."""
    return load_figures(results.loads[rate, arm.name], plan.slo)


def build_report(
    plan: Plan,
    results: Results,
    *,
    head: dict[str, Any],
    failures: dict[str, str],
    forwards: list[ForwardTime],
    found: Differences,
    is_checked: bool,
) -> dict[str, Any]:
    """Everything, as far as it was run.

    Args:
        plan: What was to run.
        results: What ran.
        head: Models, settings, environment and command, put first.
        failures: Arms that failed, with the reason.
        forwards: Times of the target's forward.
        found: First differences of the texts by batch and arm, where both ran.
        is_checked: Whether these were judged.
    """
    batches = [batch_record(plan, results, batch, found) for batch in plan.batches]
    report: dict[str, Any] = {
        **head,
        "arms": [asdict(arm) for arm in plan.arms],
        "interrupted": results.is_interrupted,
        "failures": failures,
        "batches": [each for each in batches if each["arms"]],
        "sweep": [
            _rate_record(plan, results, rate)
            for rate in plan.rates
            if any((rate, arm.name) in results.loads for arm in plan.arms)
        ],
        "break_even": {"batch": _even_batches(plan, results), "rate": _even_rates(plan, results)},
        "check": _check_record(found, is_checked=is_checked),
        "why": {
            "forwards": [_forward_record(each) for each in forwards],
            "economics": {
                arm.name: _economics(plan, results, arm) for arm in plan.arms if not arm.is_base
            },
        },
    }
    report["why"]["words"] = explain(report)
    return report


def _forward_record(time: ForwardTime) -> dict[str, Any]:
    return {
        "batch": time.batch,
        "tokens_per_row": time.tokens_per_row,
        "ms": 1e3 * time.seconds,
    }


def batch_record(plan: Plan, results: Results, batch: int, found: Differences) -> dict[str, Any]:
    """One batch size, as far as it was run."""
    arms = []
    for arm in plan.arms:
        if (batch, arm.name) in results.groups:
            cell = batch_cell(results, arm, batch)
            differences = found.get((batch, arm.name))
            cell["identical"] = None if differences is None else not differences
            cell["same_text"] = None if differences is None else verdict_of(differences)
            arms.append(cell)
    return {"batch": batch, "arms": arms}


def _rate_record(plan: Plan, results: Results, rate: float) -> dict[str, Any]:
    runs = [results.loads[rate, arm.name] for arm in plan.arms if (rate, arm.name) in results.loads]
    arrivals = runs[0].plan
    arms = []
    for arm in plan.arms:
        if (rate, arm.name) in results.loads:
            cell = rate_cell(plan, results, arm, rate)
            cell["median_latency_ratio"] = _median_ratio(results, arm, rate)
            arms.append(cell)
    return {
        "rate": rate_label(rate),
        "planned_rate": arrivals.planned_rate,
        "planned_times_s": list(arrivals.times_s),
        "arms": arms,
    }


def _median_ratio(results: Results, arm: Arm, rate: float) -> float | None:
    base = results.loads.get((rate, BASE))
    ratios = [] if base is None else load_ratios(results.loads[rate, arm.name], base)
    return sorted(ratios)[len(ratios) // 2] if ratios else None


def _even_rates(plan: Plan, results: Results) -> dict[str, Any]:
    """Break-even rate of each arm, over the finite rates."""
    found = {}
    for arm in plan.served_arms:
        samples = [
            (rate, load_ratios(results.loads[rate, arm.name], results.loads[rate, BASE]))
            for rate in plan.rates
            if not math.isinf(rate)
            and (rate, arm.name) in results.loads
            and (rate, BASE) in results.loads
        ]
        record = None if arm.is_base else break_even_record(samples)
        if record is not None:
            found[arm.name] = record
    return found


def _even_batches(plan: Plan, results: Results) -> dict[str, Any]:
    """Break-even batch of each arm: seconds a token over those of the target alone."""
    found = {}
    for arm in plan.served_arms:
        samples = []
        for batch in plan.batches:
            pairs = pair_groups(
                results.groups.get((batch, arm.name), []), results.groups.get((batch, BASE), [])
            )
            ratios = [
                _seconds_per_token(mine) / _seconds_per_token(base)
                for mine, base in pairs
                if mine.num_decode_tokens and base.num_decode_tokens
            ]
            samples.append((float(batch), ratios))
        record = None if arm.is_base else break_even_record(samples)
        if record is not None:
            found[arm.name] = record
    return found


def _seconds_per_token(group: Group) -> float:
    return group.decode_s / group.num_decode_tokens


def _economics(plan: Plan, results: Results, arm: Arm) -> list[dict[str, Any]]:
    found = []
    for batch in plan.batches:
        row = step_economics(
            batch,
            results.groups.get((batch, arm.name), []),
            results.groups.get((batch, BASE), []),
        )
        if row is not None:
            found.append(row)
    return found


def _check_record(found: Differences, *, is_checked: bool) -> dict[str, Any]:
    listed = [
        {"batch": batch, "arm": arm, **difference_record(each)}
        for (batch, arm), differences in found.items()
        for each in differences
    ]
    verdicts = [each["verdict"] for each in listed]
    return {
        "checked": is_checked,
        "identical": not listed if found else None,
        "num_mismatches": verdicts.count("mismatch"),
        "num_near_ties": verdicts.count("near-tie"),
        "differences": listed,
    }
