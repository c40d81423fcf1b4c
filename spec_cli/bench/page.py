"""The report as one self-contained HTML page: no network, no scripts of others."""

import html
import json
import shlex
from datetime import UTC, datetime
from typing import Any

from spec_cli.bench.charts import all_charts, as_svg
from spec_cli.bench.tables import Table, all_tables, notices

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #1d1d1f; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.5rem; border-bottom: 1px solid #ddd; text-align: right; }
td { white-space: nowrap; }
th { border-bottom: 2px solid #999; vertical-align: bottom; } .text { text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid #e3e3e3; border-radius: 6px; padding: 0.5rem; }
pre { background: #f4f4f4; padding: 0.7rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.note { background: #fff6e0; padding: 0.5rem 0.8rem; border-left: 4px solid #d99a00; }
@media (max-width: 40rem) { .charts { grid-template-columns: 1fr; } }
"""


def page(report: dict[str, Any]) -> str:
    """The whole page, with the raw report inside for whoever wants to compute further."""
    title = f"spec-cli compare: {report['model']['id']}"
    charts = [f"<figure>{as_svg(chart)}</figure>" for chart in all_charts(report)]
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        *(f'<p class="note">{html.escape(note)}</p>' for note in notices(report)),
        _words(report),
        "<h2>Curves</h2>",
        f'<div class="charts">{"".join(charts)}</div>',
        *(_table(table) for table in all_tables(report)),
        _environment(report),
    ]
    # An end tag inside the data would end the element.
    data = json.dumps(report, ensure_ascii=False).replace("</", "<\\/")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + f'\n<script type="application/json" id="report">{data}</script></body></html>\n'
    )


def _words(report: dict[str, Any]) -> str:
    words = report["why"]["words"]
    if not words:
        return ""
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in words)
    return f"<h2>Why</h2><ul>{items}</ul>"


def _table(table: Table) -> str:
    classes = [' class="text"' if name in ("arm", "same text") else "" for name in table.columns]
    head = "".join(
        f"<th{style}>{html.escape(name)}</th>"
        for name, style in zip(table.columns, classes, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{style}>{html.escape(cell)}</td>" for cell, style in zip(row, classes, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    heading = html.escape(table.title[0].upper() + table.title[1:])
    return (
        f'<h2>{heading}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _environment(report: dict[str, Any]) -> str:
    created = datetime.fromtimestamp(report["created"], UTC)
    facts = {
        "created": f"{created:%Y-%m-%d %H:%M} UTC",
        "target": _model_words(report["model"]),
        "draft": _model_words(report["draft"]) if report.get("draft") else "none",
        **report["env"],
        "settings": json.dumps(report["settings"], ensure_ascii=False),
    }
    rows = "".join(
        f'<tr><td class="text">{html.escape(name)}</td>'
        f'<td class="text" style="white-space: normal">{html.escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    command = html.escape(shlex.join(report["command_line"]))
    return f"<h2>Environment</h2><pre>{command}</pre><table><tbody>{rows}</tbody></table>"


def _model_words(model: dict[str, Any]) -> str:
    names = ("id", "kind", "source", "revision", "sha256", "dtype", "weights", "device")
    return ", ".join(f"{name} {model[name]}" for name in names if model.get(name))
