"""All figures of an answer, for `--stats-full`."""

from collections.abc import Mapping

from spec_cli.core.stats import RequestStats

_BAR_WIDTH = 20
_MANY_SEEDS = 8


def stats_full(
    stats: RequestStats, env: Mapping[str, str], seeds: list[int], *, is_plain: bool = False
) -> str:
    """Acceptance by position, histogram, time split, seeds and versions, a figure a line.

    Args:
        stats: Of one answer, or several added up.
        env: Names and versions.
        seeds: Those in use.
        is_plain: Use ASCII only.
    """
    bar = "#" if is_plain else "▇"
    sections = [
        *_positions(stats, bar),
        *_histogram(stats, bar),
        *_times(stats, bar),
        *_figures(stats),
        ("seed" if len(seeds) == 1 else "seeds", _seeds(seeds)),
        ("versions", " ".join(f"{name} {value}" for name, value in env.items())),
    ]
    width = max(len(title) for title, _ in sections)
    return "\n".join(f"  {title:<{width}}  {text}".rstrip() for title, text in sections)


def _positions(stats: RequestStats, bar: str) -> list[tuple[str, str]]:
    """Share accepted at each draft position, of the drafts that reached so far."""
    rows = []
    for position, rate in enumerate(stats.acceptance_rate_per_position):
        drafted = stats.drafted_per_position[position]
        counts = f"({round(rate * drafted):,}/{drafted:,})"
        rows.append((f"position {position + 1}", f"{_bar(rate, bar)} {rate:>4.0%} {counts}"))
    return rows


def _histogram(stats: RequestStats, bar: str) -> list[tuple[str, str]]:
    """How many steps accepted exactly so many tokens."""
    steps = stats.num_spec_steps
    return [
        (f"{accepted} accepted", f"{_bar(count / steps, bar)} {count:>4,} of {steps:,} steps")
        for accepted, count in enumerate(stats.acceptance_histogram)
    ]


def _times(stats: RequestStats, bar: str) -> list[tuple[str, str]]:
    """Where the seconds of decoding went."""
    parts = {
        "draft": stats.propose_s,
        "verify": stats.forward_s,
        "sample": stats.verify_s,
        "other": stats.other_s,
    }
    total = sum(parts.values())
    if total <= 0.0:
        return []
    return [
        (name, f"{_bar(seconds / total, bar)} {seconds / total:>4.0%} {seconds:.3f} s")
        for name, seconds in parts.items()
    ]


def _figures(stats: RequestStats) -> list[tuple[str, str]]:
    rows = []
    length = stats.mean_acceptance_length
    if length is not None:
        rows.append(("acceptance length", f"{length:.2f} incl. the target's own token"))
    share = stats.draft_share
    if share is not None and stats.num_draft_tokens:
        counts = f"({stats.num_accepted_draft_tokens:,}/{stats.num_output_tokens:,})"
        rows.append(("from draft", f"{share:.0%} of the answer {counts}"))
    rows.append(("prefill", f"{stats.prefill_s:.3f} s"))
    if stats.queue_s >= 1e-3:
        rows.append(("queue", f"{stats.queue_s:.3f} s"))
    if stats.target_step_s is not None:
        passes = f"median of {stats.num_draft_free_passes:,}"
        rows.append(("draft-free step", f"{stats.target_step_s * 1e3:.1f} ms ({passes})"))
    return rows


def _bar(share: float, mark: str) -> str:
    return (mark * round(share * _BAR_WIDTH)).ljust(_BAR_WIDTH)


def _seeds(seeds: list[int]) -> str:
    more = f" and {len(seeds) - _MANY_SEEDS} more" if len(seeds) > _MANY_SEEDS else ""
    return ", ".join(str(seed) for seed in seeds[:_MANY_SEEDS]) + more
