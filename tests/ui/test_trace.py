"""Saved traces: read back, shown in the terminal, and as a page in a real browser."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from spec_cli.cli.records import Records
from spec_cli.core.errors import UsageError
from spec_cli.core.events import RequestFinished
from spec_cli.ui.trace import Trace, read_trace
from spec_cli.ui.trace_html import trace_page
from spec_cli.ui.trace_screen import trace_lines
from tests.ui.recorded import CODE, interleaved, run

START = {
    "event": "start",
    "model": {"id": "a <model> & more"},
    "draft": {"kind": "draft_model", "id": "small"},
    "settings": {"num_draft_tokens": 4},
    "num_prompts": 2,
}
PIECES = (*CODE, "日本", "語", "😀", "</div><script>alert(1)</script>", "שלום", "e\u0301")
CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--window-size=1000,1600"),
)


def lines(*, has_end: bool = True) -> list[str]:
    """The lines of a trace of two answers."""
    records, found = Records(), [START]
    events = interleaved(run(PIECES), run(request_id="request-1", index=1, source="ngram"))
    for event in events:
        found += records.read(event)
    return [json.dumps(each) for each in found + ([{"event": "end"}] if has_end else [])]


@pytest.fixture
def trace() -> Trace:
    """A trace of two answers."""
    return read_trace(lines(), "t.jsonl")


def test_figures_are_those_of_the_run(trace):
    """Text and figures that are read back are those of the events."""
    stats = next(event.stats for event in run(PIECES) if isinstance(event, RequestFinished))
    answer = trace.answers[0]
    assert "".join(token.text for token in answer.tokens) == "".join(PIECES)
    assert answer.stats.acceptance_histogram == stats.acceptance_histogram
    assert answer.stats.drafted_per_position == stats.drafted_per_position
    assert answer.stats.num_output_tokens == stats.num_output_tokens
    assert trace.is_complete
    assert {token.source for token in trace.answers[1].tokens} == {"ngram", "target"}


def test_screen_tells_every_fate(trace):
    """Accepted, rejected and own tokens of each step, in ASCII too."""
    shown = [line.plain for line in trace_lines(trace)]
    assert any(re.match(r"    2    60\.0 ms     if  len .*\(a$", line) for line in shown)
    stats = trace.answers[0].stats
    counts = f"({stats.num_accepted_draft_tokens}/{stats.num_draft_tokens})"
    assert any(counts in line for line in shown)
    plain = [line.plain for line in trace_lines(trace, is_plain=True)]
    assert any(re.search(r"\+    if \+ len x.* x.*=\(a$", line) for line in plain)
    assert all(line.isascii() for line in plain)


def test_broken_off_trace_is_shown_as_such():
    """A run that was killed leaves a trace that can be read."""
    trace = read_trace(lines(has_end=False)[:-3], "t.jsonl")
    assert "no end" in [line.plain for line in trace_lines(trace)][-1]
    assert "broken off" in trace_page(trace)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "[]",
        "{}",
        '{"event": "end"}',
        json.dumps(START) + '\n{"event": "token", "index": 5}',
        json.dumps(START) + '\n{"event": "token", "index": 0, "id": 1, "text": "a", "source": "x"}',
        json.dumps(START) + '\n{"event": "step", "step": 1}',
    ],
)
def test_what_is_no_trace_is_refused(text):
    """A foreign or damaged file is an error that names it."""
    with pytest.raises(UsageError, match=r"t\.jsonl"):
        read_trace(text.split("\n"), "t.jsonl")


def test_page_needs_nothing_but_itself(trace):
    """No script, no address, and nothing of the text is taken for markup."""
    page = trace_page(trace)
    assert not re.search(r"<script|https?:|src=|@import|url\(", page)
    assert "&lt;/div&gt;&lt;script&gt;alert(1)" in page
    assert "a &lt;model&gt; &amp; more" in page


@pytest.mark.slow
def test_page_in_a_browser(trace, tmp_path):
    """Headless Chromium shows the whole page: no console message, no request."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed; .ci/run installs it")
    page = tmp_path / "trace.html"
    page.write_text(trace_page(trace), encoding="utf-8")
    log = tmp_path / "net.json"
    done = subprocess.run(
        [
            browser,
            *CHROMIUM,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--log-net-log={log}",
            f"--screenshot={tmp_path / 'page.png'}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    assert "שלום" in done.stdout
    assert done.stdout.count("<svg") == 4
    # The browser itself looks for its maker's hosts at every start.
    asked = set(re.findall(r'"url":"([^"]+)"', log.read_text(encoding="utf-8")))
    assert not {url for url in asked if url.startswith("http") and "google" not in url}
    assert Path(tmp_path / "page.png").stat().st_size > 20_000
