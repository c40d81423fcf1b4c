"""The line of figures, as it is printed."""

from dataclasses import replace

import pytest

from spec_cli.core.events import SpeculationState
from spec_cli.core.stats import RequestStats
from spec_cli.ui.stats_line import LineFacts, stats_line

ON = RequestStats(
    num_prompt_tokens=1240,
    num_cached_tokens=1204,
    num_output_tokens=178,
    num_target_passes=46,
    num_spec_steps=46,
    num_draft_tokens=184,
    num_accepted_draft_tokens=131,
    queue_s=0.01,
    prefill_s=0.2,
    decode_s=3.036,
    target_step_s=0.0298,
    num_draft_free_passes=5,
)
FACTS = LineFacts(
    state=SpeculationState("on"),
    finish_reason="stop",
    max_tokens=512,
    num_draft_tokens=4,
    drafter="draft 0.6B",
    peak_bytes=6_900_000_000,
)
OFF = replace(
    ON,
    num_cached_tokens=0,
    num_target_passes=177,
    num_spec_steps=0,
    num_draft_tokens=0,
    num_accepted_draft_tokens=0,
)
PAUSED = SpeculationState("paused", "accepted 12 % (22/184) < break-even 30 %")


def test_speculation_on() -> None:
    """Speed, estimate, acceptance with its counts, and the rest."""
    assert stats_line(ON, FACTS) == (
        "178 tok · 58.3 tok/s (~1.74x est.) · drafting on: accepted 71% (131/184)"
        " · 3.85 tok/step (k=4) · draft 0.6B · prompt 36 +1,204 cached · TTFT 0.21 s · 6.9 GB"
    )


def test_speculation_off() -> None:
    """The reason, and no figure of drafting."""
    facts = replace(FACTS, state=SpeculationState("off", "switched off by --spec off"))

    assert stats_line(OFF, facts) == (
        "178 tok · 58.3 tok/s · speculation off (switched off by --spec off) · prompt 1,240"
        " · TTFT 0.21 s · 6.9 GB"
    )


def test_drafting_paused() -> None:
    """The share of paused steps with its counts, and why."""
    stats = replace(ON, num_accepted_draft_tokens=22, num_paused_steps=28, num_cached_tokens=0)

    line = stats_line(stats, replace(FACTS, state=PAUSED))

    assert line == (
        "178 tok · 58.3 tok/s (~1.74x est.) · drafting paused 61% (28/46) of steps: accepted 12%"
        " (22/184) < break-even 30% · accepted 12% (22/184) · 3.85 tok/step (k=4) · draft 0.6B"
        " · prompt 1,240 · TTFT 0.21 s · 6.9 GB"
    )


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
def test_narrow_terminal_loses_fields_from_the_right(width: int) -> None:
    """A line never wraps while a field is left that can go; the first ones and the end stay."""
    facts = replace(FACTS, finish_reason="length", max_tokens=178)

    line = stats_line(ON, facts, width=width)

    essential = stats_line(ON, facts, width=0)
    assert len(line) <= max(width, len(essential))
    assert line.startswith("178 tok · 58.3 tok/s (~1.74x est.) · drafting on: accepted 71% (131/18")
    assert line.endswith(" · stopped at --max-tokens")


@pytest.mark.parametrize(
    ("reason", "max_tokens", "end"),
    [
        ("length", 178, " · stopped at --max-tokens"),
        ("length", 512, " · stopped at the end of the context (-c)"),
        ("interrupted", 512, " · interrupted"),
        ("stop", 512, " GB"),
    ],
)
def test_end_of_the_answer(reason, max_tokens: int, end: str) -> None:
    """Why an answer ended is told unless it was its own end."""
    facts = replace(FACTS, finish_reason=reason, max_tokens=max_tokens)

    assert stats_line(ON, facts).endswith(end)


def test_estimate_waits_for_enough() -> None:
    """No estimate before 2 draft-free passes and 32 tokens, none without drafts."""
    for few in (
        replace(ON, num_draft_free_passes=1),
        replace(ON, num_output_tokens=31),
        replace(ON, num_spec_steps=0),
    ):
        assert "est." not in stats_line(few, FACTS)


def test_nothing_drafted() -> None:
    """Speculation that found nothing to look up is on, and no percentage is made up."""
    assert "drafting on: nothing drafted · 1.00 tok/step" in stats_line(OFF, FACTS)


def test_single_token() -> None:
    """An answer of one token has no speed."""
    stats = RequestStats(num_prompt_tokens=3, num_output_tokens=1)

    assert stats_line(stats, replace(FACTS, peak_bytes=None)) == (
        "1 tok · drafting on: nothing drafted · prompt 3 · TTFT 0.00 s"
    )


def test_draft_that_ended_is_told() -> None:
    """D-04: why drafting ended is in the line."""
    stats = replace(ON, draft_ended="its context holds 16 tokens")

    assert " · draft ended: its context holds 16 tokens · " in stats_line(stats, FACTS)


def test_several_answers_and_ascii() -> None:
    """Several answers are counted; --plain has no other characters than ASCII."""
    line = stats_line(ON, replace(FACTS, num_answers=3), is_plain=True)

    assert line.startswith("3 answers | 178 tok | 58.3 tok/s")
    assert "TTFT" not in line
    assert line.isascii()
