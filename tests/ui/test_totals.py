"""Figures of several answers together."""

from spec_cli.core.stats import RequestStats
from spec_cli.ui.totals import total_stats


def row(tokens: int, passes: int, histogram: tuple[int, ...]) -> RequestStats:
    """Figures of one answer."""
    accepted = sum(j * count for j, count in enumerate(histogram))
    return RequestStats(
        num_prompt_tokens=10,
        num_output_tokens=tokens,
        num_target_passes=passes,
        num_spec_steps=sum(histogram),
        num_draft_tokens=2 * accepted,
        num_accepted_draft_tokens=accepted,
        acceptance_histogram=histogram,
        drafted_per_position=tuple(sum(histogram) for _ in histogram[1:]),
        decode_s=2.0,
        target_step_s=0.1,
        num_draft_free_passes=9,
    )


def test_rates_are_sums_of_both_counts() -> None:
    """Tokens per pass of a batch is no product of its rows: one row alone would show the same."""
    alike = row(41, 20, (0, 20))
    several = total_stats([alike] * 8, 2.0)

    assert several.tokens_per_target_pass == alike.tokens_per_target_pass == 2.0
    assert several.tokens_per_second == 160.0
    assert several.draft_acceptance_rate == alike.draft_acceptance_rate
    assert several.acceptance_rate_per_position == alike.acceptance_rate_per_position


def test_unequal_rows() -> None:
    """Histograms of unequal length add up position by position, and no speed-up is guessed."""
    several = total_stats([row(9, 4, (1, 2)), row(40, 10, (1, 2, 3))], 3.0)

    assert several.acceptance_histogram == (2, 4, 3)
    assert several.drafted_per_position == (9, 6)
    assert several.speedup_est is None


def test_answer_without_a_token_has_no_first() -> None:
    """A request that was interrupted in the queue takes nothing off the others' speed."""
    several = total_stats([row(9, 8, ()), RequestStats(num_prompt_tokens=3)], 2.0)

    assert several.tokens_per_second == 4.0


def test_one_answer_is_itself() -> None:
    """The total of one is that one, its estimate included."""
    alone = row(41, 20, (0, 20))

    assert total_stats([alone], 5.0) is alone
