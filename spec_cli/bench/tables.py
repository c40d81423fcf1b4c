"""The report as tables, in Markdown and as comma-separated values."""

import csv
import io
import shlex
from dataclasses import dataclass
from typing import Any

from spec_cli.bench.arms import BASE
from spec_cli.core.byte_size import format_bytes


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a title.

    Attributes:
        title: What is in it.
        columns: Names.
        rows: As many cells as columns, each.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


BATCH_COLUMNS = (
    *("arm", "k", "tok/s", "speed-up", "accepted", "tok/step", "TTFT s", "TPOT ms"),
    *("memory", "same text"),
)
RATE_COLUMNS = (
    *("rate/s", "arm", "achieved", "TTFT ms", "TPOT ms", "ITL ms", "latency s p50/p90/p99"),
    *("vs target", "tok/s", "goodput", "queue ms", "k", "paused", "failed"),
)


def batch_table(record: dict[str, Any]) -> Table:
    """One batch size: cli.md, section 2.7."""
    return Table(
        f"batch {record['batch']}",
        BATCH_COLUMNS,
        [_batch_row(cell) for cell in record["arms"]],
    )


def _batch_row(cell: dict[str, Any]) -> tuple[str, ...]:
    counts = cell["speculative_decoding"]
    spread = cell["tokens_per_second_sd"]
    speed = f"{cell['tokens_per_second']:.1f}"
    interval = cell["speedup_interval"]
    speedup = "-" if cell["speedup_measured"] is None else f"{cell['speedup_measured']:.2f}x"
    if interval is not None:
        speedup += f" ({interval[0]:.2f}-{interval[1]:.2f})"
    first, each = cell["time_to_first_token_ms"], cell["time_per_output_token_ms"]
    text = cell.get("same_text")
    return (
        cell["arm"],
        _length(cell),
        speed if spread is None else f"{speed} ± {spread:.1f}",
        speedup,
        _accepted(counts),
        "-"
        if counts["tokens_per_target_pass"] is None
        else f"{counts['tokens_per_target_pass']:.2f}",
        "-" if first is None else f"{first['mean'] / 1e3:.2f}",
        "-" if each is None else f"{each['mean']:.1f}",
        _memory(cell["memory"]),
        "-" if text is None else text,
    )


def _length(cell: dict[str, Any]) -> str:
    """The draft length asked for; of `auto` also the mean of those chosen."""
    asked = cell["num_draft_tokens"]
    if asked is None:
        return "-"
    chosen = cell["mean_num_draft_tokens"]
    return f"auto ({chosen:.1f})" if asked == "auto" and chosen is not None else str(asked)


def _accepted(counts: dict[str, Any]) -> str:
    if counts["draft_acceptance_rate"] is None:
        return "-"
    return (
        f"{counts['draft_acceptance_rate']:.0%} "
        f"({counts['num_accepted_draft_tokens']}/{counts['num_draft_tokens']})"
    )


def _memory(memory: dict[str, int | None]) -> str:
    total = sum(memory.get(name) or 0 for name in ("weight_bytes", "kv_bytes", "working_bytes"))
    return format_bytes(total)


def rate_table(report: dict[str, Any]) -> Table | None:
    """All request rates; None where none was run."""
    rows = [
        _rate_row(record["rate"], cell) for record in report["sweep"] for cell in record["arms"]
    ]
    # Of a server some things cannot be known.
    known = [i for i in range(len(RATE_COLUMNS)) if any(row[i] != "-" for row in rows)]
    columns = tuple(RATE_COLUMNS[i] for i in known)
    cut = [tuple(row[i] for i in known) for row in rows]
    return Table("load sweep", columns, cut) if rows else None


def _rate_row(rate: float | str, cell: dict[str, Any]) -> tuple[str, ...]:
    achieved = "-" if cell["achieved_rate"] is None else f"{cell['achieved_rate']:.2f}"
    whole = cell["end_to_end_ms"]
    ratio = cell.get("median_latency_ratio")
    num_failed = sum(cell["failures"].values())
    counts = cell["mean_num_draft_tokens"]
    paused = cell["paused_share"]
    return (
        rate if isinstance(rate, str) else f"{rate:g}",
        cell["arm"],
        achieved + (" saturated" if cell["saturated"] else ""),
        _median(cell["time_to_first_token_ms"]),
        _median(cell["time_per_output_token_ms"], 1),
        _median(cell["inter_token_latency_ms"], 1),
        "-"
        if whole is None
        else "/".join(f"{whole[name] / 1e3:.2f}" for name in ("p50", "p90", "p99")),
        "-" if ratio is None else f"{ratio:.2f}x",
        f"{cell['tokens_per_second']:.1f}",
        f"{cell['goodput']:.2f}/s ({cell['slo_attained']:.0%})",
        _median(cell["queue_time_ms"]),
        "-" if counts is None or cell["num_draft_tokens"] is None else f"{counts:.1f}",
        "-" if paused is None else f"{paused:.0%}",
        str(num_failed),
    )


def _median(summary: dict[str, float] | None, digits: int = 0) -> str:
    return "-" if summary is None else f"{summary['p50']:.{digits}f}"


def split_table(report: dict[str, Any]) -> Table | None:
    """Where the time of decoding went, per token."""
    rows = []
    for record in report["batches"]:
        for cell in record["arms"]:
            split = cell["time_split_ms"]
            total = sum(split.values())
            if total:
                parts = tuple(f"{value / total:.0%}" for value in split.values())
                rows.append((str(record["batch"]), cell["arm"], *parts))
    columns = ("batch", "arm", "draft", "verify", "sample", "other")
    return Table("time of decoding", columns, rows) if rows else None


def all_tables(report: dict[str, Any]) -> list[Table]:
    """Every table of a report."""
    tables = [batch_table(record) for record in report["batches"]]
    tables += [
        Table(f"{part['title']}: {table.title}", table.columns, table.rows)
        for part in report.get("lengths", [])
        for table in map(batch_table, part["batches"])
    ]
    return [*tables, *filter(None, (rate_table(report), split_table(report)))]


def markdown(report: dict[str, Any]) -> str:
    """The report in Markdown."""
    parts = [f"# spec-cli compare: {report['model']['id']}", _environment(report)]
    for table in all_tables(report):
        parts.append(f"## {table.title[0].upper()}{table.title[1:]}")
        parts.append(_markdown_table(table))
    if report["why"]["words"]:
        parts.append("## Why")
        parts.append("\n".join(f"- {sentence}" for sentence in report["why"]["words"]))
    notes = notices(report)
    if notes:
        parts.append("## Notes")
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def notices(report: dict[str, Any]) -> list[str]:
    """What a reader must know: failures, an early end, differences of the text."""
    found = []
    if report["interrupted"]:
        found.append("Interrupted: only what was done by then is shown.")
    for arm, reason in report["failures"].items():
        found.append(f"{arm} failed and was not run to its end: {reason}")
    names = report.get("workload", {}).get("names", [])
    if any(len(record["planned_times_s"]) > len(names) for record in report["sweep"]) and names:
        what = "its only prompt" if len(names) == 1 else f"some of its {len(names)} prompts"
        found.append(
            f"The sweep asks {what} more than once: cached prefixes and lookup gain from that."
        )
    for record in report["sweep"]:
        for cell in record["arms"]:
            for reason, count in cell["failures"].items():
                what = "1 request" if count == 1 else f"{count} requests"
                found.append(
                    f"{record['rate']}/s, {cell['arm']}: {what} failed: {reason.rstrip('.')}."
                )
    for each in report["check"]["differences"]:
        line = (
            f"{each['arm']}, batch {each['batch']}, prompt {each['prompt_index']}: first "
            f"difference at generated token {each['position']}: target {each['token_id_target']}, "
            f"arm {each['token_id_arm']}"
        )
        if each["gap"] is not None:
            line += (
                f"; the target's gap between them is {each['gap']:.4g}, the shapes differ by up to "
                f"{each['shape_difference']:.4g}"
            )
        if each["verdict"]:
            line += f": {each['verdict']}"
        found.append(line + ".")
    return found


def environment(report: dict[str, Any]) -> str:
    """Models, versions and machine in a sentence."""
    model, draft = report["model"], report.get("draft")
    known = ", ".join(model[name] for name in ("source", "dtype", "device") if name in model)
    lines = [f"Target {model['id']} ({known})"]
    if draft is not None and draft.get("id"):
        lines.append(f"draft {draft['id']} ({draft['dtype']})")
    lines += [f"{name} {value}" for name, value in report["env"].items()]
    return "; ".join(lines) + "."


def _environment(report: dict[str, Any]) -> str:
    return f"{environment(report)}\n\n```\n{shlex.join(report['command_line'])}\n```"


def _markdown_table(table: Table) -> str:
    sides = ["---" if name in ("arm", "same text") else "---:" for name in table.columns]
    lines = [" | ".join(table.columns), " | ".join(sides)]
    lines += [" | ".join(row) for row in table.rows]
    return "\n".join(f"| {line} |" for line in lines)


def comma_separated(report: dict[str, Any]) -> str:
    """One line per load and arm, with plain numbers; nested figures get dotted names."""
    lines: list[dict[str, Any]] = []
    for kind, key, records in (
        ("batch", "batch", report["batches"]),
        ("rate", "rate", report["sweep"]),
    ):
        for record in records:
            load = {"kind": kind, "load": record[key]}
            lines += [load | _flat(cell) for cell in record["arms"]]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()


def _flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            found[prefix + name] = " ".join(map(str, value))
        else:
            found[prefix + name] = "" if value is None else value
    return found


def best_speedup(report: dict[str, Any]) -> dict[str, float]:
    """Measured speed-ups at the first batch size, by arm."""
    if not report["batches"]:
        return {}
    return {
        cell["arm"]: cell["speedup_measured"]
        for cell in report["batches"][0]["arms"]
        if cell["arm"] != BASE and cell["speedup_measured"] is not None
    }
