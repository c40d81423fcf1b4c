"""All figures, as they are printed."""

from spec_cli.core.stats import RequestStats
from spec_cli.ui.stats_full import stats_full

STATS = RequestStats(
    num_prompt_tokens=36,
    num_output_tokens=20,
    num_target_passes=10,
    num_spec_steps=8,
    num_draft_tokens=12,
    num_accepted_draft_tokens=9,
    drafted_per_position=(8, 4),
    acceptance_histogram=(1, 5, 2),
    prefill_s=0.25,
    decode_s=1.0,
    propose_s=0.1,
    forward_s=0.8,
    verify_s=0.05,
    other_s=0.05,
    target_step_s=0.0891,
    num_draft_free_passes=2,
)


def test_every_figure_has_its_counts() -> None:
    """Positions, histogram, time split, lengths, seed and versions, each with what is behind it."""
    text = stats_full(STATS, {"torch": "2.13.0", "device": "cpu"}, [7], is_plain=True)

    assert text.splitlines() == [
        "  position 1         ##################    88% (7/8)",
        "  position 2         ##########            50% (2/4)",
        "  0 accepted         ##                      1 of 8 steps",
        "  1 accepted         ############            5 of 8 steps",
        "  2 accepted         #####                   2 of 8 steps",
        "  draft              ##                    10% 0.100 s",
        "  verify             ################      80% 0.800 s",
        "  sample             #                      5% 0.050 s",
        "  other              #                      5% 0.050 s",
        "  acceptance length  2.12 incl. the target's own token",
        "  from draft         45% of the answer (9/20)",
        "  prefill            0.250 s",
        "  draft-free step    89.1 ms (median of 2)",
        "  seed               7",
        "  versions           torch 2.13.0 device cpu",
    ]


def test_nothing_drafted_has_no_bars() -> None:
    """Without drafts only times, seeds and versions are left."""
    text = stats_full(RequestStats(num_prompt_tokens=3), {}, list(range(20)))

    lines = text.splitlines()
    assert lines[0].split() == ["prefill", "0.000", "s"]
    assert lines[1].endswith("6, 7 and 12 more")
