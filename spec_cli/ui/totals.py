"""Figures of several answers together."""

from itertools import zip_longest

from spec_cli.core.stats import RequestStats

_SUMMED = (
    *("num_prompt_tokens", "num_cached_tokens", "num_output_tokens", "num_target_passes"),
    *("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens", "num_paused_steps"),
)
_SHARED = ("propose_s", "forward_s", "verify_s", "other_s")


def total_stats(stats: list[RequestStats], wall_s: float) -> RequestStats:
    """Add up the figures of answers that ran in one batch.

    Counts are sums. Times are those of the longest answer, since the rows share their steps. A
    speed-up is not estimated: a draft-free pass has another time at each number of rows.

    Args:
        stats: Of each answer.
        wall_s: Seconds from the first token of any answer to the last of any.
    """
    if len(stats) == 1:
        return stats[0]
    return RequestStats(
        **{name: sum(getattr(each, name) for each in stats) for name in _SUMMED},
        **{name: max(getattr(each, name) for each in stats) for name in _SHARED},
        drafted_per_position=_add([each.drafted_per_position for each in stats]),
        acceptance_histogram=_add([each.acceptance_histogram for each in stats]),
        queue_s=max(each.queue_s for each in stats),
        prefill_s=max(each.prefill_s for each in stats),
        decode_s=wall_s,
        num_requests=sum(each.num_output_tokens > 0 for each in stats),
        draft_ended=next((each.draft_ended for each in stats if each.draft_ended), None),
    )


def _add(counts: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*counts, fillvalue=0))
