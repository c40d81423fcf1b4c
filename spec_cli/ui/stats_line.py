"""The line of figures after an answer."""

from dataclasses import dataclass

from spec_cli.core.byte_size import format_bytes
from spec_cli.core.events import SpeculationState
from spec_cli.core.sequence import FinishReason
from spec_cli.core.stats import RequestStats

_OFF_HINT = "-d ID or --spec ngram"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFacts:
    """What the line tells beside the figures of the request.

    Attributes:
        state: Speculation at the end.
        finish_reason: Why the answer ended.
        max_tokens: Most tokens that were asked for.
        num_draft_tokens: `auto` or the fixed draft length.
        drafter: Who guesses, in a word or two.
        peak_bytes: Most memory the process has used, or None.
        num_answers: How many answers the figures add up.
    """

    state: SpeculationState
    finish_reason: FinishReason
    max_tokens: int
    num_draft_tokens: int | str
    drafter: str
    peak_bytes: int | None = None
    num_answers: int = 1


def stats_line(
    stats: RequestStats, facts: LineFacts, *, width: int | None = None, is_plain: bool = False
) -> str:
    """Figures of one answer, or of several together, in one line.

    Args:
        stats: Of the answer.
        facts: The rest.
        width: Columns at hand; fields are dropped from the right until the line fits. Speed,
            speculation and a note on why the answer ended stay.
        is_plain: Use ASCII only.
    """
    essential = [*_amount(stats, facts), _speculation(stats, facts)]
    optional = _details(stats, facts)
    end = _end(stats, facts)
    separator = " | " if is_plain else " · "
    while True:
        line = separator.join([*essential, *optional, *end])
        if is_plain:
            line = line.replace("×", "x")
        if width is None or len(line) <= width or not optional:
            return line
        optional.pop()


def percent(part: int, whole: int) -> str:
    """A share with the counts behind it."""
    return f"{part / whole:.0%} ({part:,}/{whole:,})" if whole else f"({part:,}/{whole:,})"


def _amount(stats: RequestStats, facts: LineFacts) -> list[str]:
    answers = [f"{facts.num_answers} answers"] if facts.num_answers > 1 else []
    amount = [*answers, f"{stats.num_output_tokens:,} tok"]
    rate = stats.tokens_per_second
    if rate is None:
        return amount
    estimate = stats.speedup_est
    return [*amount, f"{rate:,.1f} tok/s" + (f" (~{estimate:.2f}x est.)" if estimate else "")]


def _speculation(stats: RequestStats, facts: LineFacts) -> str:
    state = facts.state
    reason = (state.reason or "").replace(" %", "%")
    if state.mode == "off":
        # Switched off, the way back is known; otherwise the reason is the whole story.
        return f"speculation off ({reason})" if reason else f"speculation off ({_OFF_HINT})"
    if state.mode == "paused":
        share = percent(stats.num_paused_steps, stats.num_target_passes)
        return f"drafting paused {share} of steps: {reason}"
    if not stats.num_draft_tokens:
        return "drafting on: nothing drafted"
    accepted = percent(stats.num_accepted_draft_tokens, stats.num_draft_tokens)
    return f"drafting on: accepted {accepted}"


def _details(stats: RequestStats, facts: LineFacts) -> list[str]:
    """From the most to the least useful."""
    details = []
    if facts.state.mode == "on" and stats.num_paused_steps:
        details.append(f"paused {percent(stats.num_paused_steps, stats.num_target_passes)}")
    if facts.state.mode == "paused" and stats.num_draft_tokens:
        accepted = percent(stats.num_accepted_draft_tokens, stats.num_draft_tokens)
        details.append(f"accepted {accepted}")
    per_pass = stats.tokens_per_target_pass
    if facts.state.mode != "off" and per_pass is not None:
        details.append(f"{per_pass:.2f} tok/step (k={facts.num_draft_tokens})")
        details.append(facts.drafter)
    if stats.draft_ended:
        details.append(f"draft ended: {stats.draft_ended}")
    cached = f" +{stats.num_cached_tokens:,} cached" if stats.num_cached_tokens else ""
    details.append(f"prompt {stats.num_prompt_tokens - stats.num_cached_tokens:,}{cached}")
    if facts.num_answers == 1 and stats.num_output_tokens:
        details.append(f"TTFT {stats.time_to_first_token_s:.2f} s")
    if facts.peak_bytes is not None:
        details.append(format_bytes(facts.peak_bytes))
    return details


def _end(stats: RequestStats, facts: LineFacts) -> list[str]:
    if facts.finish_reason == "interrupted":
        return ["interrupted"]
    if facts.finish_reason == "stop":
        return []
    if facts.num_answers == 1 and stats.num_output_tokens < facts.max_tokens:
        return ["stopped at the end of the context (-c)"]
    return ["stopped at --max-tokens"]
