"""A trace in the terminal, step by step."""

from collections.abc import Iterator

from rich.text import Text

from spec_cli.ui.footer import bar_of
from spec_cli.ui.spans import printable
from spec_cli.ui.trace import Trace, TraceAnswer, TraceStep, TraceToken

_ACCEPTED, _REJECTED = "green", "red strike"
_OWN, _UNJUDGED = "underline", "dim"
_BAR = 20


def trace_lines(trace: Trace, *, is_plain: bool = False) -> Iterator[Text]:
    """Lines of a trace: for each answer its steps, then its figures.

    Args:
        trace: The trace.
        is_plain: ASCII signs in place of looks: + accepted, x rejected, . not judged, = the
            target's own.
    """
    model = trace.start.get("model", {})
    yield Text(f"{model.get('id', '?')}, {len(trace.answers)} answers", "bold")
    if not is_plain:
        yield _legend()
    for answer in trace.answers:
        yield Text("")
        yield Text(f"==> {answer.index + 1} <==", "bold")
        by_step: dict[int, list[TraceToken]] = {}
        for token in answer.tokens:
            by_step.setdefault(token.step, []).append(token)
        if answer.tokens:
            yield _first(answer.tokens[0], is_plain=is_plain)
        for step in answer.steps:
            yield _step_line(trace, step, by_step.get(step.step, []), is_plain=is_plain)
        yield from _figures(answer, is_plain=is_plain)
    if not trace.is_complete:
        yield Text("The trace has no end: the run was broken off, or is still running.", "bold")


def _legend() -> Text:
    text = Text().append("accepted", _ACCEPTED)
    text.append("  ").append("rejected", _REJECTED).append("  ").append("not judged", _UNJUDGED)
    return text.append("  ").append("the target's own", _OWN)


def _first(token: TraceToken, *, is_plain: bool) -> Text:
    return Text("prompt           ").append_text(_piece(token.text, "=", _OWN, is_plain=is_plain))


def _step_line(trace: Trace, step: TraceStep, tokens: list[TraceToken], *, is_plain: bool) -> Text:
    mark = {"paused": " paused", "off": " off"}.get(step.mode, "")
    line = Text(f"{step.step:>5} {step.ms:>7.1f} ms ")
    for position, token_id in enumerate(step.draft_token_ids):
        if position < step.num_accepted:
            sign, style = "+", _ACCEPTED
        elif position < step.num_judged:
            sign, style = "x", _REJECTED
        else:
            sign, style = ".", _UNJUDGED
        text = trace.text_of(token_id)
        line.append_text(_piece(text, sign, style, is_plain=is_plain)).append(" ")
    for token in tokens:
        if token.source == "target":
            line.append_text(_piece(token.text, "=", _OWN, is_plain=is_plain))
    return line.append(mark, "dim")


def _piece(text: str, sign: str, style: str, *, is_plain: bool) -> Text:
    shown = printable(text).replace("\n", "\u23ce" if not is_plain else "\\n") or "\u2026"
    if is_plain:
        return Text(f"{sign}{shown}".encode("ascii", "backslashreplace").decode())
    return Text(shown, style)


def _figures(answer: TraceAnswer, *, is_plain: bool) -> Iterator[Text]:
    stats = answer.stats
    drafted, accepted = stats.num_draft_tokens, stats.num_accepted_draft_tokens
    share = (
        f"accepted {accepted / drafted:.0%} ({accepted:,}/{drafted:,})" if drafted else "no drafts"
    )
    per_pass = stats.tokens_per_target_pass
    rate = stats.tokens_per_second
    yield Text(
        f"{len(answer.tokens):,} tokens in {len(answer.steps):,} steps, {share}"
        + (f", {per_pass:.2f} tok/step" if per_pass else "")
        + (f", {rate:.1f} tok/s" if rate else "")
    )
    counts = stats.drafted_per_position
    for position, (value, count) in enumerate(
        zip(stats.acceptance_rate_per_position, counts, strict=True), 1
    ):
        line = Text(f"  position {position:<3}")
        line.append(f"{bar_of(value, _BAR, is_plain=is_plain):<{_BAR}}", _ACCEPTED)
        yield line.append(f" {value:.0%} of {count:,}")
