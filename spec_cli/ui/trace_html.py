"""A trace as one page that needs nothing but itself."""

from html import escape

from spec_cli.ui.trace import Trace, TraceAnswer, TraceStep, TraceToken

_WIDTH, _HEIGHT = 960, 160
_MOST_SHADES = 8
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --mute: #667; --rule: #d8dbe0;
  --draft: 26 127 55; --ngram: 9 105 218; --bad: #cf222e; --own: #57606a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --mute: #8b949e;
  --rule: #30363d; --draft: 63 185 80; --ngram: 88 166 255; --bad: #f85149; --own: #8b949e; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
h3 { font-size: .9rem; color: var(--mute); margin: 1.5rem 0 .4rem; }
.answer { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext;
  font: 14px/1.8 ui-monospace, monospace; border: 1px solid var(--rule); border-radius: 6px;
  padding: .8rem; }
.answer span { border-radius: 3px; }
.t { border-bottom: 2px dotted var(--own); }
.d { background: rgb(var(--draft) / var(--shade)); }
.n { background: rgb(var(--ngram) / var(--shade)); }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
.bar { display: inline-block; height: .8rem; background: rgb(var(--draft)); border-radius: 2px;
  vertical-align: middle; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--mute); font-size: 11px; }
.accepted { fill: rgb(var(--draft)); } .rejected { fill: var(--bad); } .own { fill: var(--own); }
.line { fill: none; stroke: rgb(var(--draft)); stroke-width: 2; }
.plain { fill: none; stroke: var(--own); stroke-width: 1; stroke-dasharray: 4 4; }
.key { color: var(--mute); font-size: .85rem; } .key span { padding: 0 .4rem; }
.key .x { color: var(--bad); text-decoration: line-through; }
"""


def trace_page(trace: Trace) -> str:
    """The page: tokens coloured by origin, a time line, acceptance, tokens over time."""
    start = trace.start
    model = str(start.get("model", {}).get("id", "?"))
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(model)}: trace</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Without it a browser asks the server, or the disk, for an icon.
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head><body>',
        f"<h1>Speculation trace: {escape(model)}</h1>",
        _settings(trace),
        '<p class="key"><span class="d" style="--shade:.3">accepted from the draft model</span> '
        '<span class="n" style="--shade:.3">accepted from lookup</span> '
        '<span class="t">the target\'s own</span> paler: deeper in the draft</p>',
    ]
    for answer in trace.answers:
        parts += _answer(trace, answer, has_title=len(trace.answers) > 1)
    if not trace.is_complete:
        parts.append("<p>The trace has no end: the run was broken off.</p>")
    return "\n".join([*parts, "</body></html>", ""])


def _settings(trace: Trace) -> str:
    start = trace.start
    draft = start.get("draft")
    rows = {
        "draft": "none" if not draft else draft.get("id") or draft.get("kind"),
        "run": start.get("id"),
        **{
            name: start.get("settings", {}).get(name)
            for name in ("num_draft_tokens", "verify", "temperature", "seed", "max_tokens")
        },
    }
    cells = "".join(
        f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value is not None
    )
    return f"<table>{cells}</table>"


def _answer(trace: Trace, answer: TraceAnswer, *, has_title: bool) -> list[str]:
    stats = answer.stats
    drafted, accepted = stats.num_draft_tokens, stats.num_accepted_draft_tokens
    figures = [f"{len(answer.tokens):,} tokens in {len(answer.steps):,} steps"]
    if drafted:
        figures.append(f"accepted {accepted / drafted:.0%} ({accepted:,}/{drafted:,})")
    if stats.tokens_per_target_pass:
        figures.append(f"{stats.tokens_per_target_pass:.2f} tokens per step")
    if stats.tokens_per_second:
        figures.append(f"{stats.tokens_per_second:.1f} tokens per second")
    return [
        f"<h2>Answer {answer.index + 1}</h2>" if has_title else "<h2>Answer</h2>",
        f"<p>{escape(', '.join(figures))}</p>",
        f'<div class="answer">{"".join(_token(token) for token in answer.tokens)}</div>',
        "<h3>Steps: width is time; accepted, rejected and the target's own tokens</h3>",
        _time_line(trace, answer),
        "<h3>Acceptance by position in the draft</h3>",
        _positions(answer),
        "<h3>Tokens over time; dashed: one token per step</h3>",
        _cumulative(answer),
    ]


def _token(token: TraceToken) -> str:
    if not token.text:
        return ""
    where = "" if token.position is None else f", position {token.position + 1}"
    title = escape(f"{token.source}{where}, step {token.step}, id {token.token_id}", quote=True)
    kind = {"draft": "d", "target": "t"}.get(token.source, "n")
    shade = ""
    if token.position is not None:
        depth = min(token.position, _MOST_SHADES)
        shade = f' style="--shade:{0.45 - 0.04 * depth:.2f}"'
    return f'<span class="{kind}"{shade} title="{title}">{escape(token.text)}</span>'


def _time_line(trace: Trace, answer: TraceAnswer) -> str:
    """A column for each step, tokens stacked, as wide as the step was long."""
    steps = answer.steps
    total_ms = sum(step.ms for step in steps) or 1.0
    most = max((len(step.draft_token_ids) + 1 for step in steps), default=1)
    unit = _HEIGHT / most
    x, marks = 0.0, []
    for step in steps:
        width = step.ms / total_ms * _WIDTH
        y = float(_HEIGHT)
        for kind, count in _stack(step):
            y -= unit * count
            if count:
                marks.append(
                    f'<rect class="{kind}" x="{x:.2f}" y="{y:.1f}" '
                    f'width="{max(0.5, width - 0.5):.2f}" height="{unit * count:.1f}"/>'
                )
        marks.append(
            f'<rect x="{x:.2f}" y="0" width="{width:.2f}" height="{_HEIGHT}" fill-opacity="0">'
            f"<title>{escape(_step_title(trace, step))}</title></rect>"
        )
        x += width
    return _svg("".join(marks), "Steps")


def _stack(step: TraceStep) -> list[tuple[str, int]]:
    return [
        ("accepted", step.num_accepted),
        ("own", step.num_emitted - step.num_accepted),
        ("rejected", step.num_judged - step.num_accepted),
    ]


def _step_title(trace: Trace, step: TraceStep) -> str:
    drafted = " ".join(repr(trace.text_of(each)) for each in step.draft_token_ids) or "none"
    return (
        f"step {step.step}: {step.ms:.1f} ms, {step.num_accepted} of {step.num_judged} accepted, "
        f"{step.mode}; drafted: {drafted}"
    )


def _positions(answer: TraceAnswer) -> str:
    stats = answer.stats
    pairs = zip(stats.acceptance_rate_per_position, stats.drafted_per_position, strict=True)
    rows = "".join(
        f"<tr><th>{position}</th><td style='width:20rem'><span class='bar' "
        f"style='width:{rate * 100:.1f}%'></span></td><td>{rate:.0%} of {count:,}</td></tr>"
        for position, (rate, count) in enumerate(pairs, 1)
    )
    return f"<table>{rows}</table>" if rows else "<p>Nothing was drafted.</p>"


def _cumulative(answer: TraceAnswer) -> str:
    steps = answer.steps
    if not steps:
        return "<p>One step only.</p>"
    begin_ms = steps[0].end_ms - steps[0].ms
    total_ms = (steps[-1].end_ms - begin_ms) or 1.0
    total = max(1, sum(step.num_emitted for step in steps))
    count, points, plain = 0, ["0,160"], ["0,160"]
    for number, step in enumerate(steps, 1):
        count += step.num_emitted
        x = (step.end_ms - begin_ms) / total_ms * _WIDTH
        points.append(f"{x:.1f},{_HEIGHT - count / total * _HEIGHT:.1f}")
        plain.append(f"{x:.1f},{_HEIGHT - number / total * _HEIGHT:.1f}")
    return _svg(
        f'<polyline class="plain" points="{" ".join(plain)}"/>'
        f'<polyline class="line" points="{" ".join(points)}"/>'
        f'<text x="4" y="12">{total:,} tokens</text>'
        f'<text x="{_WIDTH - 4}" y="{_HEIGHT - 6}" text-anchor="end">{total_ms / 1e3:.2f} s</text>',
        "Tokens over time",
    )


def _svg(content: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="none">{content}</svg>'
    )
