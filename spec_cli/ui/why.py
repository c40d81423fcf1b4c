"""Why an answer was as fast as it was: measured figures, and what they advise."""

from spec_cli.core.events import SpeculationState
from spec_cli.core.stats import RequestStats

_FEW_STEPS = 8
_RARE = 0.2


def explain(stats: RequestStats, state: SpeculationState, drafter: str) -> list[str]:
    """Sentences about an answer.

    Args:
        stats: Of the answer.
        state: Speculation at its end.
        drafter: Who guessed, in a word or two.
    """
    lines = []
    if state.mode != "on" or state.reason:
        word = {"on": "on", "off": "off", "paused": "paused at the end"}[state.mode]
        lines.append(f"Speculation was {word}" + (f": {state.reason}." if state.reason else "."))
    if stats.draft_ended:
        lines.append(f"Drafting ended early: {stats.draft_ended}.")
    if not stats.num_target_passes:
        return [*lines, "The answer came from the prompt's own pass: there was nothing to draft."]
    if not stats.num_spec_steps:
        return [*lines, *_nothing_drafted(stats, state)]
    lines += [_acceptance(stats, drafter), *_positions(stats), *_times(stats)]
    return [*lines, *_advice(stats)]


def _nothing_drafted(stats: RequestStats, state: SpeculationState) -> list[str]:
    passes = f"{stats.num_target_passes:,} target passes gave a token each"
    if state.mode == "off":
        return [f"{passes}. /spec ngram or /draft ID switches speculation on."]
    return [f"{passes}: nothing was drafted, as no part of the text repeated or it did not pay."]


def _acceptance(stats: RequestStats, drafter: str) -> str:
    accepted, drafted = stats.num_accepted_draft_tokens, stats.num_draft_tokens
    passes = stats.num_target_passes
    per_pass = stats.tokens_per_target_pass or 0.0
    return (
        f"{drafter} drafted in {stats.num_spec_steps:,} of {passes:,} target passes; "
        f"{accepted:,} of {drafted:,} tokens were accepted ({accepted / drafted:.0%}), "
        f"so a pass gave {per_pass:.2f} tokens."
    )


def _positions(stats: RequestStats) -> list[str]:
    rates = stats.acceptance_rate_per_position
    shown = [
        f"{position}: {rate:.0%} of {count:,}"
        for position, (rate, count) in enumerate(
            zip(rates, stats.drafted_per_position, strict=True), 1
        )
    ]
    return ["Accepted by position in the draft: " + ", ".join(shown) + "."]


def _times(stats: RequestStats) -> list[str]:
    passes = stats.num_target_passes
    total = stats.propose_s + stats.forward_s + stats.verify_s + stats.other_s
    if total <= 0.0:
        return []
    parts = (
        ("drafting", stats.propose_s),
        ("the target's pass", stats.forward_s),
        ("choosing tokens", stats.verify_s),
        ("the rest", stats.other_s),
    )
    split = ", ".join(f"{name} {seconds / passes * 1e3:.1f}" for name, seconds in parts)
    lines = [f"A step took {total / passes * 1e3:.1f} ms: {split}."]
    plain_s = stats.target_step_s
    per_pass = stats.tokens_per_target_pass
    if plain_s and per_pass:
        cost = total / passes / plain_s
        lines.append(
            f"A step without a draft took {plain_s * 1e3:.1f} ms (median of "
            f"{stats.num_draft_free_passes:,}), so a step cost {cost:.2f} of those and gave "
            f"{per_pass:.2f} tokens: about {per_pass / cost:.2f}x est."
        )
    return lines


def _advice(stats: RequestStats) -> list[str]:
    rates = stats.acceptance_rate_per_position
    counts = stats.drafted_per_position
    if stats.num_spec_steps < _FEW_STEPS:
        return ["That is too few steps for advice; /compare measures."]
    useful = sum(
        rate >= _RARE for rate, count in zip(rates, counts, strict=True) if count >= _FEW_STEPS
    )
    if useful == 0:
        return ["Even first tokens are rarely accepted: try /spec off, or a closer draft model."]
    if useful < sum(count >= _FEW_STEPS for count in counts):
        return [
            f"Tokens after position {useful} are accepted less than {_RARE:.0%} of the time: "
            f"/k {useful} wastes less, and /compare measures whether it is faster."
        ]
    return ["All positions are accepted often enough; a longer draft (/k N) may bring more."]
