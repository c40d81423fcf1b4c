"""The live console, played from recorded events on a terminal in memory."""

import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from spec_cli.core.events import SpeculationState, TextDelta
from spec_cli.ui.flow import row_filler
from spec_cli.ui.footer import FooterFacts, bar_of
from spec_cli.ui.live import LiveOptions, LiveView, Pacer, can_be_live
from tests.ui.recorded import CODE, interleaved, run
from tests.ui.screens import EventClock, Terminal, show

SNAPSHOTS = Path(__file__).parent / "snapshots"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TEXT = "".join(CODE)
PARAGRAPH = tuple(f"word{i} " for i in range(120))


def compare(name: str, terminal: Terminal) -> None:
    """Compare a screen with its snapshot; UPDATE_SNAPSHOTS=1 writes it anew."""
    signs = {"green": "g", "cyan": "c", "red": "r"}
    lines = []
    for y, text in enumerate(terminal.screen.display):
        cells = [terminal.screen.buffer[y][x] for x in range(terminal.screen.columns)]
        looks = ["u" if c.underscore else "b" if c.bold else signs.get(c.fg, " ") for c in cells]
        lines += [text.rstrip(), "".join(looks).rstrip()]
    screen = "\n".join(lines).rstrip() + "\n"
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(screen, encoding="utf-8")
    assert screen == path.read_text(encoding="utf-8"), f"{name}:\n{screen}"


@pytest.mark.parametrize("color", [True, False], ids=["color", "mono"])
@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_snapshot(width, color):
    """The screen in the middle of an answer, at each width, with colours and without."""
    terminal = Terminal(width, color=color)
    show(run(), terminal, until_step=9)
    compare(f"live-{width}-{'color' if color else 'mono'}", terminal)


@pytest.mark.parametrize("width", [60, 120])
def test_batch_snapshot(width):
    """Several sequences: one row each, and a total; answers in the order of the prompts."""
    terminal = Terminal(width, height=30)
    runs = [run(request_id=f"request-{i}", index=i, pattern=((4, i),)) for i in range(3)]
    facts = FooterFacts(8192, 60, num_requests=3)
    options = LiveOptions(titles=("one", "two", "three"))
    show(interleaved(*runs), terminal, until_step=11, facts=facts, options=options)
    compare(f"batch-{width}", terminal)


def test_plain_is_ascii():
    """--plain draws with ASCII only."""
    terminal = Terminal(120, color=False)
    show(run(), terminal, facts=FooterFacts(8192, 512, is_plain=True), until_step=9)
    compare("plain-120", terminal)
    assert "".join(terminal.lines()).isascii()


@pytest.mark.parametrize("width", [60, 120])
def test_replay_gives_the_same_screens(width):
    """An event list replayed gives the same bytes."""
    written = []
    for _ in range(2):
        terminal = Terminal(width)
        show(run(), terminal)
        written.append(terminal.written.getvalue())
    assert written[0] == written[1]


@pytest.mark.parametrize("pieces", [CODE, PARAGRAPH], ids=["code", "paragraph"])
@pytest.mark.parametrize("width", [20, 61, 80, 120])
def test_only_the_answer_is_left(pieces, width):
    """At the end the screen holds the answer, wrapped by the terminal, and nothing else."""
    terminal = Terminal(width, height=10)
    show(run(pieces), terminal)
    plain = Terminal(width, height=10)
    plain.write("".join(pieces) + "\n")
    assert terminal.lines() == plain.lines()


def test_screen_is_never_higher_than_row_and_footer():
    """Rows that are done are written once: a redraw costs the same however long the answer."""
    terminal = Terminal(80)
    show(run(PARAGRAPH * 4), terminal)
    frames = terminal.written.getvalue().split("\x1b[?2026h")[1:]
    frames = frames[len(frames) // 2 : -1]
    assert max(len(ESCAPE.sub("", frame)) for frame in frames) < 8 * 80


def test_origin_has_a_second_cue():
    """Green and underline with colours; the underline alone under NO_COLOR."""
    for color, green in ((True, "green"), (False, "default")):
        terminal = Terminal(80, color=color)
        show(run(), terminal)
        assert terminal.look("quick") == (green, False, False, False)
        assert terminal.look("return") == ("default", False, True, False)
    lookup = Terminal(80)
    show(run(source="ngram"), lookup)
    assert lookup.look("quick")[0] == "cyan"


def test_positions_are_shaded():
    """--highlight position tells positions apart, bold and not, without colours too."""
    terminal = Terminal(80, color=False)
    show(run(), terminal, options=LiveOptions("position"))
    assert terminal.look("quick")[1]
    assert not terminal.look("sort")[1]


def test_no_highlight():
    """--highlight none leaves the text as it is; so does speculation that is off."""
    off = SpeculationState("off", "switched off")
    for events, options in (
        (run(), LiveOptions("none")),
        (run(pattern=((0, 0),), state=off), LiveOptions()),
    ):
        terminal = Terminal(80)
        show(events, terminal, options=options)
        assert terminal.look("quick") == ("default", False, False, False)
        assert terminal.look("return") == ("default", False, False, False)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    ("state", "words"),
    [
        (SpeculationState("on"), "drafting"),
        (SpeculationState("off", "no rollback"), "speculation off: no rollback"),
        (SpeculationState("paused", "too slow"), "drafting paused: too slow"),
    ],
    ids=["on", "off", "paused"],
)
def test_state_and_reason_are_told(width, state, words):
    """Whether drafting is on, off or paused is told, and why."""
    terminal = Terminal(width)
    pattern = ((0, 0),) if state.mode != "on" else ((4, 2),)
    show(run(pattern=pattern, state=state), terminal, until_step=6)
    assert words in "\n".join(terminal.lines())


def test_estimate_is_marked_and_waits_for_samples():
    """A speed-up is shown as an estimate, after two draft-free steps and 32 tokens."""
    early, late = Terminal(120), Terminal(120)
    show(run(), early, until_step=5)
    show(run(CODE * 3), late, until_step=20)
    assert "est." not in "\n".join(early.lines())
    assert re.search(r"~\d\.\d\dx est\.", "\n".join(late.lines()))


@pytest.mark.parametrize(
    "pieces",
    [
        ("日本", "語の", "文章", "が続く。") * 12,
        ("", "", "", "😀", " and ", "", "", "", "🇩🇪", " ok ") * 8,
        ("e", "\u0301", "a", "\u0308\u0323", "n", "\u0303", " ") * 20,
        ("שלום", " ", "עולם", " ", "مرحبا", " ", "بالعالم", " ") * 10,
        ("👩", "\u200d", "👧", " 👍🏽", "x ") * 20,
        ("col1\tcol2", "\tcol3\n") * 6,
    ],
    ids=["wide", "emoji", "combining", "rtl", "joiner", "tabs"],
)
@pytest.mark.parametrize("width", [20, 33, 80])
def test_any_script_across_token_borders(pieces, width):
    """The screen is what a terminal makes of the whole text, whatever the tokens."""
    terminal = Terminal(width, height=50)
    show(run(pieces), terminal)
    plain = Terminal(width, height=50)
    plain.write("".join(pieces).replace("\t", "    ") + "\n")
    assert terminal.lines() == plain.lines()


def test_model_cannot_control_the_terminal():
    """Control characters are shown, not obeyed."""
    terminal = Terminal(80)
    show(run(("x", "\x1b[2J", "\x07\x08", "\r\n", "\x9b31m", "y")), terminal)
    assert terminal.lines() == ["x␛[2J␇␈", "\ufffd31my"]


def test_resize():
    """After a resize the text goes on where it was, and the footer fits."""
    terminal = Terminal(120)
    clock_steps = list(run(CODE * 2))
    half = len(clock_steps) // 2

    def events():
        yield from clock_steps[:half]
        terminal.resize(50)
        yield from clock_steps[half:]

    show(events(), terminal)
    plain = Terminal(50)
    plain.write(TEXT * 2)
    assert terminal.lines() == plain.lines()


def test_thoughts_are_dim_italic_or_hidden():
    """Reasoning looks different, and can be left out; a tag may come in pieces."""
    pieces = ("<th", "ink>", "hmm", " so", "</think>", "\n\n", "Yes", ".", " 1", " <", " 2")
    shown, hidden = Terminal(80), Terminal(80)
    show(run(pieces), shown)
    show(run(pieces), hidden, options=LiveOptions(hides_thoughts=True))
    assert shown.lines() == ["<think>hmm so</think>", "", "Yes. 1 < 2"]
    assert shown.look("hmm")[3]
    assert not shown.look("Yes")[3]
    assert hidden.lines() == ["Yes. 1 < 2"]
    inside = Terminal(80)
    options = LiveOptions(hides_thoughts=True, is_thinking=True)
    show(run(("hm", "</think>", "Yes")), inside, options=options)
    assert inside.lines() == ["Yes"]


@pytest.mark.parametrize("num_requests", [1, 3])
def test_footer_counts_the_prompt_once_it_is_known(num_requests):
    """Nothing is counted to 0 of 0: the footer says that it starts, then how far it has read."""
    terminal, clock = Terminal(80), EventClock()
    view = LiveView(terminal.console, FooterFacts(8192, 512, num_requests), clock=clock)
    view.open()
    assert terminal.lines()[-1] == " starting"
    started = next(run())
    for clock.now_s in (1.0, 2.0):
        view.read(started)
    assert terminal.lines()[-1] == " reading the prompt: 0/36 tokens"
    assert "0/0" not in terminal.written.getvalue()
    view.close()


def test_footer_tells_hidden_thoughts():
    """While thoughts come that are not shown, the footer says so."""
    terminal = Terminal(100)
    events = run(("<think>", *PARAGRAPH))
    show(events, terminal, until_step=12, options=LiveOptions(hides_thoughts=True))
    assert "thinking" in "\n".join(terminal.lines())


def test_redraws_follow_their_cost():
    """At most ten a second, and at most 1.5 % of the time."""
    for cost in (0.0, 0.0005, 0.003, 0.02):
        clock = EventClock()
        pacer = Pacer(clock)
        spent, count = 0.0, 0

        def redraw(clock=clock, cost=cost):
            clock.now_s += cost

        while clock.now_s < 60.0:
            if pacer.is_due:
                pacer.timed(redraw)
                spent, count = spent + cost, count + 1
            clock.now_s += 0.004
        assert spent / clock.now_s <= 0.0151
        assert count <= 10 * clock.now_s + 1
        assert count >= 60 * min(9, 0.014 / max(cost, 1e-9)) * 0.9


def test_can_be_live(monkeypatch):
    """Not on a pipe, a dumb terminal or one that is too narrow."""
    assert can_be_live(Terminal(20).console)
    assert not can_be_live(Terminal(19).console)
    assert not can_be_live(Console(file=io.StringIO()))
    monkeypatch.setenv("TERM", "dumb")
    assert not can_be_live(Console(file=io.StringIO(), force_terminal=True, width=80))


def test_empty_answer_and_interrupt():
    """An answer without text leaves one line; one that broke off ends its line."""
    empty = Terminal(80)
    show(run(("",)), empty)
    assert empty.lines() == []
    broken = Terminal(80)
    events = [e for e in run() if not isinstance(e, TextDelta) or e.step < 5]
    show(events[:20], broken)
    assert broken.screen.cursor.x == 0
    assert broken.lines()[0] == "def quicksort(a):"


def test_row_filler():
    """The last character of a full row waits, with all that belongs to it."""
    lines = ["", "abc", "abcd", "abcde", "ab日", "abc日", "abcd日日", "abce\u0301"]
    assert [row_filler(line, 4) for line in lines] == [0, 0, 1, 0, 1, 0, 1, 2]


def test_bar():
    """A bar is as long as its share."""
    assert [bar_of(x, 2, is_plain=False) for x in (0.0, 0.25, 0.5, 1.0)] == ["", "▌", "█", "██"]
    assert bar_of(1.0, 3, is_plain=True) == "###"
