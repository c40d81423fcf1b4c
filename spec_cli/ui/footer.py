"""The live lines below an answer: how fast, how well guessed, and whether drafting is on."""

from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from spec_cli.core.stats import RequestStats
from spec_cli.ui.view_state import RowView, StepMark, ViewState

_NARROW: Final = 60
_WIDE: Final = 100
_GAP = "   "
_EIGHTHS = "▏▎▍▌▋▊▉█"
_ANSI_GREEN, _ANSI_RED = "green", "red"


@dataclass(frozen=True, slots=True)
class FooterFacts:
    """What a footer tells beside the counts.

    Attributes:
        context_length: Most tokens of a row.
        max_tokens: Most tokens of an answer.
        num_requests: How many requests there are, begun or not.
        is_plain: Use ASCII only.
    """

    context_length: int
    max_tokens: int
    num_requests: int = 1
    is_plain: bool = False


def footer(
    view: ViewState, facts: FooterFacts, width: int, height: int, *, is_thinking: bool = False
) -> list[Text]:
    """The lines of the footer, all narrower than the screen.

    Args:
        view: The run so far.
        facts: The rest.
        width: Columns of the screen.
        height: Lines of the screen.
        is_thinking: Whether thoughts come that are not shown.
    """
    # The last column stays free: a character there may make a terminal wrap.
    room = width - 1
    rule = Text(("-" if facts.is_plain else "─") * room, "dim")
    if facts.num_requests > 1:
        lines = [rule, *_batch_lines(view, facts, width, height), _total_line(view, facts, width)]
    else:
        lines = [rule, *_single_lines(view, facts, width, is_thinking=is_thinking)]
    for line in lines:
        line.no_wrap, line.end = True, ""
        line.truncate(room, overflow="crop" if facts.is_plain else "ellipsis")
    return lines


def _single_lines(
    view: ViewState, facts: FooterFacts, width: int, *, is_thinking: bool
) -> list[Text]:
    row = next(iter(view.rows.values()), RowView(0))
    if row.first_s is None:
        return [Text(f" {_reading(view)}")]
    stats = row.stats
    context = f"ctx {row.num_context_tokens:,}/{facts.context_length:,}"
    state = _state(view)
    if is_thinking:
        state = f"thinking{_GAP}{state}"
    lines = [_figures(stats, context, state, width)]
    if width >= _WIDE and stats.num_spec_steps:
        lines.append(_bars_and_marks(row, stats, facts, width))
    return lines


def _figures(stats: RequestStats, context: str, state: str, width: int) -> Text:
    """Fields in their order on the screen, the least important left out until they fit."""
    rate = stats.tokens_per_second
    estimate = stats.speedup_est
    per_pass = stats.tokens_per_target_pass
    # Each with its rank: those of the highest rank go first.
    fields = [
        (0, f"{rate:,.1f} tok/s" if rate else f"{stats.num_output_tokens:,} tok"),
        (4, f"~{estimate:.2f}x est." if estimate else ""),
        (1, _accepted(stats)),
        (3, f"{per_pass:.2f} tok/step" if per_pass and stats.num_spec_steps else ""),
        (5, context),
        (2, state),
    ]
    fields = [field for field in fields if field[1]]
    most = 1 if width < _NARROW else 5
    for rank in range(5, -1, -1):
        kept = [text for own, text in fields if own <= min(rank, most)]
        line = " " + _GAP.join(kept)
        if cell_len(line) < width or rank == 0:
            return Text(line)
        if rank == 2 and cell_len(line) - cell_len(state) + 8 < width:  # a reason may be cut
            return Text(line)
    raise AssertionError("rank 0 always returns")


def _accepted(stats: RequestStats) -> str:
    drafted = stats.num_draft_tokens
    if not drafted:
        return ""
    accepted = stats.num_accepted_draft_tokens
    return f"accepted {accepted / drafted:.0%} {accepted:,}/{drafted:,}"


def _state(view: ViewState) -> str:
    mode, reason = view.state.mode, view.state.reason
    if mode == "on":
        return "drafting"
    word = "speculation off" if mode == "off" else "drafting paused"
    return f"{word}: {reason}" if reason else word


def _reading(view: ViewState) -> str:
    total = view.num_prompt_tokens_to_read
    if not total:
        return "starting"
    return f"reading the prompt: {min(view.num_prefilled, total):,}/{total:,} tokens"


def _bars_and_marks(row: RowView, stats: RequestStats, facts: FooterFacts, width: int) -> Text:
    """Acceptance per position on the left, the last steps on the right."""
    rates = stats.acceptance_rate_per_position
    size = 8 if len(rates) <= 4 else 3
    line = Text(" pos")
    half = width * 6 // 10
    for position, rate in enumerate(rates):
        bar = bar_of(rate, size, is_plain=facts.is_plain)
        field = f" {position + 1} {bar:<{size}} {rate * 100:.0f}  "
        if cell_len(line.plain) + len(field) > half:
            break
        line.append(f" {position + 1} ", "dim")
        line.append(f"{bar:<{size}}", _ANSI_GREEN)
        line.append(f" {rate * 100:.0f} ")
    line.append("  last", "dim")
    marks = [_mark(mark, is_plain=facts.is_plain) for mark in row.marks]
    room = width - cell_len(line.plain) - 2
    shown: list[Text] = []
    for mark in reversed(marks):
        room -= len(mark.plain) + 1
        if room < 0:
            break
        shown.insert(0, mark)
    for mark in shown:
        line.append(" ").append_text(mark)
    return line


def bar_of(share: float, size: int, *, is_plain: bool) -> str:
    """A bar of up to `size` cells."""
    if is_plain:
        return "#" * round(share * size)
    eighths = round(share * size * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest - 1] if rest else "")


def _mark(mark: StepMark, *, is_plain: bool) -> Text:
    """One step: a sign for each draft token."""
    yes, no, unseen, plain_step = "+x.-" if is_plain else "✓✗·–"
    if not mark.num_draft_tokens:
        return Text(plain_step, "dim")
    text = Text(yes * mark.num_accepted, _ANSI_GREEN)
    left = mark.num_draft_tokens - mark.num_accepted
    if left and mark.is_judged:
        text.append(no, _ANSI_RED)
        left -= 1
    text.append(unseen * left, "dim")
    return text


def _batch_lines(view: ViewState, facts: FooterFacts, width: int, height: int) -> list[Text]:
    """One line per request that has begun; those that run where not all fit."""
    rows = list(view.rows.values())
    most = max(1, height // 2 - 3)
    if len(rows) > most:
        running = [row for row in rows if row.finish_reason is None]
        rows = (running + [row for row in rows if row.finish_reason is not None])[:most]
        rows.sort(key=lambda row: row.index)
    return [_batch_line(row, facts, width) for row in rows]


def _batch_line(row: RowView, facts: FooterFacts, width: int) -> Text:
    stats = row.stats
    bar = bar_of(min(1.0, stats.num_output_tokens / facts.max_tokens), 8, is_plain=facts.is_plain)
    end = {None: "", "stop": "done", "length": "done: length"}.get(row.finish_reason, "interrupted")
    per_pass = stats.tokens_per_target_pass
    fields = [
        f"#{row.index + 1:<3}{bar:<8} {stats.num_output_tokens:>5,} tok",
        _accepted(stats) if width >= _NARROW else _accepted(stats).rpartition(" ")[0],
        f"{per_pass:.2f} tok/step" if per_pass and width >= _NARROW else "",
        end,
    ]
    return Text(" " + "  ".join(field for field in fields if field))


def _total_line(view: ViewState, facts: FooterFacts, width: int) -> Text:
    num_done = sum(row.finish_reason is not None for row in view.rows.values())
    if all(row.first_s is None for row in view.rows.values()):
        return Text(f" {_reading(view)}")
    done = f"{num_done}/{facts.num_requests} done"
    return _figures(view.total, done, _state(view), width)
