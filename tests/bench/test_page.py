"""The HTML page in headless Chromium, and the curves."""

import re

import pytest

from spec_cli.bench.charts import Chart, all_charts, as_svg, as_text
from spec_cli.bench.page import page
from tests.bench.opened_page import CHROMIUM, browse, embedded_report
from tests.bench.sample_report import sample_report


def test_every_chart_has_its_data():
    """Curves against the rate, k over time, acceptance per position, forwards, speed-ups."""
    charts = {chart.title: chart for chart in all_charts(sample_report())}

    latency = charts["Median end-to-end latency, s"]
    assert latency.labels == ["1", "4", "inf"]
    assert latency.series["target only"] == [1.0, 2.0, 8.0]
    assert latency.series["ngram k=auto"] == [0.5, 1.0, 4.0]
    assert charts["Draft length over time at 1.0 requests/s"].series == {
        "ngram k=auto": [4.0, 2.0, 0.0]
    }
    position = "Drafts accepted up to and with a position, of those that reach it"
    assert charts[position].series == {"ngram k=auto": [0.9, 0.5]}
    assert charts["The target's forward, ms"].series == {
        "1 token a row": [14.0, 21.0],
        "5 tokens a row": [18.0, 51.0],
    }
    assert charts["Measured speed-up of decoding"].is_bars


def test_svg_draws_every_series():
    """One line and one legend entry for each, the title, no script from elsewhere."""
    for chart in all_charts(sample_report()):
        svg = as_svg(chart)
        assert "<script" not in svg or "src=" not in svg
        for name in chart.series:
            assert name in svg
        assert svg.count('class="series serie-') >= len(chart.series)


def test_one_line_is_named_in_the_title():
    """It has no legend."""
    one = Chart("Draft length", "seconds", ["1", "2"], {"suffix": [1.0, 2.0]}, places=[1.0, 2.0])
    two = Chart("Draft length", "seconds", ["1", "2"], {"a": [1.0, 2.0], "b": [2.0, 1.0]})

    assert "Draft length: suffix" in as_svg(one)
    assert "Draft length:" not in as_svg(two)


def test_curve_in_characters():
    """Within the width, no control characters, ASCII on demand."""
    chart = Chart("T", "x", ["1", "2", "3"], {"a": [1.0, 2.0, None], "b": [3.0, 1.0, 2.0]})

    text = as_text(chart, 60)
    plain = as_text(chart, 60, is_plain=True)

    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 60
    assert "a" in text
    assert plain.isascii()


def test_page_is_self_contained():
    """Nothing is loaded; what was measured is inside; text is escaped."""
    report = sample_report()
    report["model"]["id"] = "<b>&model"
    report["command_line"].append("</script><script>alert(1)")
    text = page(report)

    assert "<b>&model" not in text.split("<script")[0]
    assert embedded_report(text) == report
    assert "2026-09-21 14:13 UTC" in text


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page_in_chromium(tmp_path):
    """No console message, no request, every chart drawn."""
    path = tmp_path / "report.html"
    path.write_text(page(sample_report()), encoding="utf-8")

    shown = browse(path, tmp_path, "--dump-dom")

    assert "CONSOLE" not in shown.stderr
    assert not re.search(r"net::ERR|Failed to load", shown.stderr)
    assert shown.stdout.count("<svg") == len(all_charts(sample_report()))
    assert "<h2>Why</h2>" in shown.stdout
