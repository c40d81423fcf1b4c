"""What the pictures of `how-it-works.md` show, read from a report of `spec-cli compare`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plotting import Picture, Series

Report = dict[str, Any]

_AT_ONCE = "all at once"
_NO_DIFFERENCE = 0.05
"""Speed-ups this close to 1 are said to be none: other work on a machine moves them as much."""


@dataclass(frozen=True, slots=True)
class Arms:
    """The two arms that are shown, of the same proposer, as the report names them."""

    fixed: str
    auto: str
    num_draft_tokens: int

    @property
    def marks(self) -> dict[str, str]:
        """The colour of each arm, the target alone first."""
        return {"target only": "base", self.fixed: "fixed", self.auto: "auto"}


def chosen_arms(report: Report) -> Arms:
    """The first arm of a fixed draft length that the report has `auto` for as well."""
    autos = {a["spec"]: a["name"] for a in report["arms"] if a["num_draft_tokens"] == "auto"}
    for arm in report["arms"]:
        length = arm["num_draft_tokens"]
        if isinstance(length, int) and arm["spec"] in autos:
            return Arms(arm["name"], autos[arm["spec"]], length)
    raise SystemExit("The report compares no fixed draft length with auto: run -k 4,auto.")


def forwards(report: Report, arms: Arms) -> Picture | None:
    """What more tokens a row cost in a forward of the target; None where it was not timed."""
    width = arms.num_draft_tokens + 1
    times: dict[int, dict[int, float]] = {}
    for each in report["why"]["forwards"]:
        times.setdefault(each["batch"], {})[each["tokens_per_row"]] = each["ms"]
    times = {rows: by_width for rows, by_width in times.items() if width in by_width}
    if not times:
        return None
    ratios = {rows: by_width[width] / by_width[1] for rows, by_width in times.items()}
    plain = _by_rows({rows: f"{by_width[1]:.1f} ms" for rows, by_width in times.items()})
    wide = _by_rows({rows: f"{by_width[width]:.1f} ms" for rows, by_width in times.items()})
    added = _by_rows({rows: f"{_percent(ratio - 1.0):.0f} %" for rows, ratio in ratios.items()})
    return Picture(
        "A forward of the target, relative to one with 1 token a row",
        "rows in the forward",
        [str(rows) for rows in ratios],
        [
            Series("1 token a row", "base", [1.0] * len(ratios)),
            Series(f"{width} tokens a row", "fixed", list(ratios.values())),
        ],
        f"The target's forward of 1 token a row took {plain}; of {width} tokens a row, {wide}."
        f" So {width - 1} guesses a row that are thrown away lengthen it by {added}.",
    )


def break_even(report: Report, arms: Arms) -> Picture | None:
    """Acceptance beside that at which a step with drafts pays; None where no step could tell."""
    counts = {
        record["batch"]: _cell(record, arms.fixed)["speculative_decoding"]
        for record in report["batches"]
    }
    steps = {each["batch"]: each for each in report["why"]["economics"][arms.fixed] if each}
    if not steps:
        return None
    rates = {batch: each["draft_acceptance_rate"] for batch, each in counts.items()}
    needed = {batch: each["break_even_acceptance"] for batch, each in steps.items()}
    accepted = _by_rows(
        {
            batch: f"{_percent(rates[batch]):.0f} % ({each['num_accepted_draft_tokens']} of"
            f" {each['num_draft_tokens']})"
            for batch, each in counts.items()
            if rates[batch] is not None
        }
    )
    least = _by_rows(
        {
            batch: f"{_percent(each['break_even_acceptance']):.0f} % (from"
            f" {each['num_drafting_steps']} drafting steps)"
            for batch, each in steps.items()
        }
    )
    lost = [str(b) for b, bound in needed.items() if rates[b] is not None and rates[b] < bound]
    verdict = (
        f"At batch {', '.join(lost)} such steps did not pay for their drafts."
        if lost
        else "So such steps did pay for their drafts."
    )
    return Picture(
        f"Draft tokens accepted, and needed for drafting to pay ({arms.fixed})",
        "batch size",
        [str(batch) for batch in rates],
        [
            Series("accepted, whole run", "right", [_percent(rate) for rate in rates.values()]),
            Series(
                "break-even, steps with all rows",
                "fixed",
                [_percent(needed.get(batch)) for batch in rates],
            ),
        ],
        f"Of the draft tokens of {arms.fixed} the target accepted {accepted}."
        f" The break-even of the steps that had all rows was {least}. {verdict}",
        unit=" %",
        is_bars=False,
    )


def speedups(report: Report, arms: Arms) -> Picture:
    """Decoding speed over that of the target alone."""
    records = report["batches"]
    series = [
        Series(name, mark, [_cell(record, name)["speedup_measured"] for record in records])
        for name, mark in arms.marks.items()
    ]
    return Picture(
        "Tokens per second, relative to the target alone",
        "batch size",
        [str(record["batch"]) for record in records],
        series,
        " ".join(_speedup_words(record, arms) for record in records)
        + " In brackets: 95 % intervals, where there were groups enough.",
    )


def _speedup_words(record: Report, arms: Arms) -> str:
    """A batch size in words: speed-ups with their intervals."""
    cells = [_cell(record, name) for name in arms.marks]
    parts = []
    for cell in cells[1:]:
        interval = cell["speedup_interval"]
        within = f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else "no interval"
        parts.append(f"{cell['speedup_measured']:.2f}× by {cell['arm']} ({within})")
    text = f"At batch {record['batch']}: {', '.join(parts)}"
    if all(abs(cell["speedup_measured"] - 1.0) <= _NO_DIFFERENCE for cell in cells[1:]):
        text += "; neither differs from the target alone by more than 5 %"
    return text + "."


def latency(report: Report, arms: Arms) -> Picture | None:
    """Median latency at each rate; None for a report without a sweep."""
    records = report["sweep"]
    if not records:
        return None
    labels = [_AT_ONCE if r["rate"] == "inf" else f"{r['rate']:g}" for r in records]
    series = []
    for name, mark in arms.marks.items():
        times = [_cell(record, name)["end_to_end_ms"] for record in records]
        series.append(Series(name, mark, [each and each["p50"] / 1e3 for each in times]))
    return Picture(
        "Median latency of a request (log scale)",
        "requests per second",
        labels,
        series,
        _latency_words(report, arms, labels, series),
        unit=" s",
        is_bars=False,
        is_log=True,
    )


def _latency_words(report: Report, arms: Arms, labels: list[str], series: list[Series]) -> str:
    """The ends of the curves, where the engine fell behind, and the report's own verdict."""
    sentences = [
        "Under load a request also waits for its turn, and dearer steps let the queue grow sooner."
        " Latency counts from when a request was due to its last token."
    ]
    for place in (0, -1):
        times = [
            f"{value:.3g} s for {each.name}"
            for each in series
            if (value := each.values[place]) is not None
        ]
        at = labels[place]
        at = "with all sent at once" if at == _AT_ONCE else f"at {at} requests per second"
        sentences.append(f"Median {at}: {', '.join(times)}.")
    for name in arms.marks:
        cells = [_cell(record, name) for record in report["sweep"]]
        late = [
            label
            for label, each in zip(labels, cells, strict=True)
            if each["saturated"] and label != _AT_ONCE
        ]
        if late:
            sentences.append(f"With {name} the engine fell behind at {', '.join(late)}.")
    verdicts = [
        sentence.removesuffix(".")
        for sentence in report["why"]["words"]
        if "requests per second" in sentence
        and sentence.startswith((f"{arms.fixed} ", f"{arms.auto} "))
    ]
    if verdicts:
        sentences.append(
            f"By the median over the requests of their latency over that of the same"
            f" request with the target alone, {'; '.join(verdicts)}."
        )
    return " ".join(sentences)


PICTURES: dict[str, Callable[[Report, Arms], Picture | None]] = {
    "forwards": forwards,
    "break-even": break_even,
    "speed-up": speedups,
    "latency": latency,
}


def _by_rows(values: dict[int, str]) -> str:
    """Values by number of rows, in words."""
    parts = [f"{value} with {rows}" for rows, value in values.items()]
    if parts:
        parts[0] += " row" if next(iter(values)) == 1 else " rows"
    return ", ".join(parts)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _cell(record: Report, arm: str) -> Report:
    return next(cell for cell in record["arms"] if cell["arm"] == arm)
