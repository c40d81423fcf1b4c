"""Why speculation gains or loses: what changes with the load, and what does not."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from spec_cli.bench.harness import Group

if TYPE_CHECKING:
    from spec_cli.models.base import Row, Runner

_REPEATS = 5
_WARMUP = 2
_FEWEST_STEPS = 5
"""Drafting steps below which nothing is said of their cost."""
_SAME_ACCEPTANCE = 0.05


@dataclass(frozen=True, slots=True)
class ForwardTime:
    """The target's forward at one shape.

    Attributes:
        batch: Rows.
        tokens_per_row: 1 is plain decoding, k + 1 checks k draft tokens.
        seconds: Median.
    """

    batch: int
    tokens_per_row: int
    seconds: float


def measure_forwards(
    runner: "Runner",
    batches: list[int],
    widths: list[int],
    context: list[int],
    clock: Callable[[], float],
) -> list[ForwardTime]:
    """Time the target alone at shapes of interest, without an engine around it.

    Args:
        runner: The target; one that cannot roll back is measured at a width of 1 only.
        batches: Numbers of rows; those that memory does not hold are left out.
        widths: Tokens per row, within what is left of the runner's context.
        context: Tokens that every row holds already.
        clock: Seconds, after the device is done.
    """
    from spec_cli.models.base import RowInput

    found = []
    for batch in sorted(set(batches)):
        rows: list[Row] = []
        for _ in range(batch):
            row = runner.acquire(context, len(context) + max(widths), batch - len(rows))
            if row is None:
                break
            rows.append(row)
        if len(rows) == batch:
            runner.forward([RowInput(row, context[len(row.token_ids) :], 0) for row in rows])
            possible = widths if runner.can_roll_back else [1]
            for width, seconds in _time_widths(runner, rows, possible, context, clock).items():
                found.append(ForwardTime(batch, width, seconds))
        for row in rows:
            runner.release(row)
    return found


def _time_widths(
    runner: "Runner",
    rows: "list[Row]",
    widths: list[int],
    context: list[int],
    clock: Callable[[], float],
) -> dict[int, float]:
    """Median seconds of each width, taken in rounds: what disturbs a round disturbs all of them."""
    from spec_cli.models.base import RowInput

    seconds: dict[int, list[float]] = {width: [] for width in widths}
    for number in range(_WARMUP + _REPEATS):
        for width in widths:
            started = clock()
            runner.forward([RowInput(row, context[-width:], width) for row in rows])
            if number >= _WARMUP:
                seconds[width].append(clock() - started)
            if runner.can_roll_back:
                for row in rows:
                    runner.truncate(row, len(context))
    return {width: median(found) for width, found in seconds.items()}


def step_economics(
    batch: int, groups: list[Group], base: list[Group]
) -> dict[str, float | int | None] | None:
    """What a drafting step costs and brings, and the acceptance at which it pays for itself.

    Only steps that processed no prompt and had all rows of the batch are compared. A step without
    drafts brings one token a row for t1; one with a mean of k draft tokens a row brings 1 + a k
    for t. So it pays when the acceptance a is above (t / t1 - 1) / k.

    Returns:
        None where no such steps were seen in one of the two.
    """
    plain = [step for group in base for step in group.decode_steps if len(step.rows) == batch]
    drafting = [
        step
        for group in groups
        for step in group.decode_steps
        if len(step.rows) == batch and any(row.draft_token_ids for row in step.rows)
    ]
    num_drafted = sum(len(row.draft_token_ids) for step in drafting for row in step.rows)
    if not plain or not num_drafted:
        return None
    plain_s = fmean([step.times.total_s for step in plain])
    drafting_s = fmean([step.times.total_s for step in drafting])
    mean_k = num_drafted / (batch * len(drafting))
    judged = sum(row.num_judged for step in drafting for row in step.rows)
    accepted = sum(row.num_accepted for step in drafting for row in step.rows)
    return {
        "batch": batch,
        "plain_step_ms": 1e3 * plain_s,
        "drafting_step_ms": 1e3 * drafting_s,
        "draft_ms": 1e3 * fmean([step.times.propose_s for step in drafting]),
        "cost_ratio": drafting_s / plain_s,
        "mean_draft_tokens": mean_k,
        "num_drafting_steps": len(drafting),
        "num_judged": judged,
        "num_accepted": accepted,
        "acceptance": accepted / judged if judged else None,
        "break_even_acceptance": (drafting_s / plain_s - 1.0) / mean_k,
    }


def explain(report: dict[str, Any]) -> list[str]:
    """The section in words, with the run's own numbers.

    Args:
        report: With `why`, `batches`, `sweep` and `break_even` filled in as far as they were run.
    """
    why = report["why"]
    sentences = _forward_sentences(why["forwards"])
    for arm, rows in why["economics"].items():
        if rows:
            sentences += _arm_sentences(arm, rows)
    sentences += _acceptance_under_load(report)
    for kind, unit in (("rate", "requests per second"), ("batch", "rows")):
        for arm, found in report["break_even"][kind].items():
            sentences.append(_break_even_sentence(arm, found, unit))
    return sentences


def _forward_sentences(forwards: list[dict[str, Any]]) -> list[str]:
    by_batch: dict[int, dict[int, float]] = {}
    for each in forwards:
        by_batch.setdefault(each["batch"], {})[each["tokens_per_row"]] = each["ms"]
    shared = [batch for batch in sorted(by_batch) if len(by_batch[batch]) > 1]
    if len(shared) < 2:
        return []
    low, high = shared[0], shared[-1]
    width = max(by_batch[low])
    parts = [
        f"at {batch} row{'s' if batch > 1 else ''} {by_batch[batch][1]:.1f} ms for 1 token a row"
        f" and {by_batch[batch][width]:.1f} ms for {width}"
        f" ({by_batch[batch][width] / by_batch[batch][1]:.2f}x)"
        for batch in (low, high)
    ]
    return [
        "What changes with the load is the price of checking drafts. The target's forward took "
        + ", and ".join(parts)
        + "."
    ]


def _arm_sentences(arm: str, rows: list[dict[str, Any]]) -> list[str]:
    parts = []
    for row in rows:
        if row["num_drafting_steps"] < _FEWEST_STEPS:
            continue
        needed = row["break_even_acceptance"]
        cost = f"at batch {row['batch']} a drafting step costs {row['cost_ratio']:.2f}x a plain one"
        found = f"{_percent(row['acceptance'])} were ({row['num_accepted']}/{row['num_judged']})"
        if needed > 1.0:
            parts.append(f"{cost}, which even full acceptance would not pay for; {found}")
        elif needed <= 0.0:
            parts.append(f"{cost}, so it pays whatever is accepted; {found}")
        else:
            pays = row["acceptance"] is not None and row["acceptance"] > needed
            parts.append(
                f"{cost}, so more than {needed:.0%} of the drafts must be accepted; {found}, so"
                f" drafting {'pays' if pays else 'does not pay'}"
            )
    return [f"{arm}: " + "; ".join(parts) + "."] if parts else []


def _acceptance_under_load(report: dict[str, Any]) -> list[str]:
    """What stays: the acceptance of fixed draft lengths over all loads."""
    found: dict[str, list[tuple[str, float, int, int]]] = {}
    cells = [(f"batch {each['batch']}", each["arms"]) for each in report["batches"]]
    cells += [(f"{each['rate']}/s", each["arms"]) for each in report["sweep"]]
    for label, arms in cells:
        for arm in arms:
            counts = arm["speculative_decoding"]
            rate = counts["draft_acceptance_rate"]
            if rate is not None and isinstance(arm["num_draft_tokens"], int):
                entry = (
                    label,
                    rate,
                    counts["num_accepted_draft_tokens"],
                    counts["num_draft_tokens"],
                )
                found.setdefault(arm["arm"], []).append(entry)
    sentences = []
    for name, entries in found.items():
        if len(entries) > 1:
            low, high = (pick(entries, key=lambda entry: entry[1]) for pick in (min, max))
            stays = high[1] - low[1] <= _SAME_ACCEPTANCE
            words = "equally good at every load" if stays else "not equally good at every load"
            sentences.append(
                f"The drafts of {name} were {words}: accepted from {low[1]:.0%}"
                f" ({low[2]}/{low[3]}, {low[0]}) to {high[1]:.0%} ({high[2]}/{high[3]}, {high[0]})."
            )
    return sentences


def _break_even_sentence(arm: str, found: dict[str, Any], unit: str) -> str:
    low, high = found["range"]
    within = f"between {low:g} and {high:g} {unit}"
    if found["verdict"] == "crosses":
        text = f"{arm} stops paying at {found['at']:.2g} {unit}"
        if found["interval"]:
            text += f" (95 % interval {found['interval'][0]:.2g} to {found['interval'][1]:.2g})"
        return text + "."
    words = {
        "pays everywhere": "pays everywhere",
        "pays nowhere": "pays nowhere",
        "recovers": "loses at first and gains later",
    }
    return f"{arm} {words[found['verdict']]} {within}: no break-even in this range."


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"
