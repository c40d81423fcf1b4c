"""Draws the pictures of the documentation from recorded events, with the program's own code.

    python docs/images/draw.py record   # runs the default model and writes *.events.jsonl
    python docs/images/draw.py          # draws *.svg from them

A test draws them again and compares, so that a picture shows what the program shows.
"""

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from spec_cli.core import events as kinds
from spec_cli.core.events import Event, StepFinished, TextDelta
from spec_cli.core.params import SamplingParams
from spec_cli.core.stats import RequestStats
from spec_cli.ui.footer import FooterFacts, footer
from spec_cli.ui.spans import Span, SpanReader, rich_text
from spec_cli.ui.stats_line import LineFacts, stats_line
from spec_cli.ui.view_state import ViewState
from spec_cli.ui.why import explain

HERE = Path(__file__).parent
PROMPT = "Write quicksort in Python, then explain it, quoting the code line by line."
FACTS = FooterFacts(8192, 300)
_NESTED: dict[str, Any] = {
    "stats": RequestStats,
    "times": kinds.StepTimes,
    "state": kinds.SpeculationState,
}
_LISTS: dict[str, Any] = {"tokens": kinds.EmittedToken, "rows": kinds.RowStep}


def record(path: Path) -> None:
    """Run the default model and write what it tells."""
    from spec_cli import LLM

    params = SamplingParams(temperature=0.0, max_tokens=FACTS.max_tokens)
    with LLM() as llm:
        llm.generate("Warm up.", params)
        prompt = llm.render([{"role": "user", "content": PROMPT}])
        found = list(llm.events(prompt, params))
    lines = [json.dumps({"kind": type(event).__name__, **asdict(event)}) for event in found]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def load(path: Path) -> list[Event | TextDelta]:
    """Read recorded events."""
    return [_event(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _event(values: dict[str, Any]) -> Any:
    kind = getattr(kinds, values.pop("kind"))
    for name, value in values.items():
        if name in _NESTED:
            values[name] = _NESTED[name](**{k: _tuple(v) for k, v in value.items()})
        elif name in _LISTS:
            items = [{k: _tuple(v) for k, v in item.items()} for item in value]
            values[name] = tuple(_LISTS[name](**item) for item in items)
        else:
            values[name] = _tuple(value)
    return kind(**values)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def live_picture(found: list[Event | TextDelta], num_events: int) -> str:
    """The live console in the middle of an answer."""
    console = _console(100)
    view, spans = _play(found[:num_events])
    _print_prompt(console, "$ ", f'spec-cli generate "{PROMPT}"')
    console.print(_wrapped(spans))
    for line in footer(view, FACTS, 101, 40):
        console.print(line)
    return console.export_svg(title="spec-cli generate", unique_id="live")


def chat_picture(found: list[Event | TextDelta]) -> str:
    """A turn of a chat, its figures, and /why."""
    console = _console(100)
    view, spans = _play(found)
    stats = view.total
    _print_prompt(console, ">>> ", PROMPT)
    console.print(_wrapped(spans))
    facts = LineFacts(
        state=view.state,
        finish_reason=next(iter(view.rows.values())).finish_reason or "stop",
        max_tokens=FACTS.max_tokens,
        num_draft_tokens="auto",
        drafter="lookup",
    )
    console.print(stats_line(stats, facts, width=100), style="dim", soft_wrap=True)
    _print_prompt(console, ">>> ", "/why")
    for line in explain(stats, view.state, "lookup"):
        console.print(line)
    return console.export_svg(title="spec-cli chat", unique_id="chat")


def _play(found: list[Event | TextDelta]) -> tuple[ViewState, list[Span]]:
    view, reader = ViewState(), SpanReader()
    spans: list[Span] = []
    for event in found:
        view.read(event)
        if isinstance(event, TextDelta):
            spans += reader.read(event)
    return view, spans


def _wrapped(spans: list[Span]) -> Text:
    """Text as a terminal wraps it."""
    text = rich_text(spans, "accepted")
    text.no_wrap, text.overflow = False, "fold"
    return text


def _print_prompt(console: Console, mark: str, text: str) -> None:
    console.print(Text(mark, "dim").append(text, "not dim bold"))


def _console(width: int) -> Console:
    """A console that only records."""
    return Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False
    )


def pictures() -> Iterator[tuple[Path, str]]:
    """Each picture and its file."""
    found = load(HERE / "task.events.jsonl")
    steps = [index for index, event in enumerate(found) if isinstance(event, StepFinished)]
    yield HERE / "live.svg", live_picture(found, steps[len(steps) * 2 // 3] + 1)
    yield HERE / "chat.svg", chat_picture(found)


def main() -> None:
    """Record or draw."""
    if sys.argv[1:] == ["record"]:
        record(HERE / "task.events.jsonl")
        return
    for path, picture in pictures():
        path.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
