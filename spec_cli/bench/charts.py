"""The report's curves: described once, drawn as SVG for a page or as text for a terminal."""

from dataclasses import dataclass, replace
from typing import Any

from spec_cli.bench.arms import BASE

_COLORS = ("#444444", "#1f77b4", "#d95f02", "#2a9d4a", "#9467bd", "#c2185b", "#7a5c00", "#008b8b")


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines, or groups of bars, over named positions.

    Attributes:
        title: What is drawn, with its unit.
        axis: What the positions are.
        labels: Names of the positions, in order.
        series: Values of each line by its name; None where there is none.
        is_bars: Bars instead of lines.
        places: Where the positions lie on the axis, which then begins at 0, if not at equal
            distances.
        top: Where the values end, or None to fit them.
        colors: One per series, the same for an arm in every chart.
    """

    title: str
    axis: str
    labels: list[str]
    series: dict[str, list[float | None]]
    is_bars: bool = False
    places: list[float] | None = None
    top: float | None = None
    colors: tuple[str, ...] = _COLORS


def all_charts(report: dict[str, Any]) -> list[Chart]:
    """Every chart that the report has data for."""
    found = [
        *_rate_charts(report),
        _throughput(report),
        _speedups(report),
        _acceptance(report),
        _forwards(report),
        *_lengths_over_time(report),
    ]
    return [
        replace(chart, colors=_colors(chart, report))
        for chart in found
        if any(value is not None for values in chart.series.values() for value in values)
    ]


def _colors(chart: Chart, report: dict[str, Any]) -> tuple[str, ...]:
    names = [arm["arm"] for record in report["batches"][:1] for arm in record["arms"]]
    names += [name for name in chart.series if name not in names]
    return tuple(_COLORS[names.index(name) % len(_COLORS)] for name in chart.series)


def _rate_charts(report: dict[str, Any]) -> list[Chart]:
    charts = []
    for title, name, key in (
        ("Median end-to-end latency, s", "end_to_end_ms", "p50"),
        ("99th percentile of end-to-end latency, s", "end_to_end_ms", "p99"),
        ("Median time to first token, s", "time_to_first_token_ms", "p50"),
        ("Median time per output token, s", "time_per_output_token_ms", "p50"),
    ):
        series = _by_arm(
            report["sweep"],
            lambda cell, name=name, key=key: cell[name] and cell[name][key] / 1e3,
        )
        charts.append(Chart(title, "requests per second", _labels(report["sweep"], "rate"), series))
    return charts


def _throughput(report: dict[str, Any]) -> Chart:
    series = _by_arm(report["sweep"], lambda cell: cell["tokens_per_second"])
    labels = _labels(report["sweep"], "rate")
    return Chart("Tokens per second of all requests", "requests per second", labels, series)


def _speedups(report: dict[str, Any]) -> Chart:
    series = _by_arm(report["batches"], lambda cell: cell["speedup_measured"])
    labels = _labels(report["batches"], "batch")
    return Chart("Measured speed-up of decoding", "batch size", labels, series, is_bars=True)


def _acceptance(report: dict[str, Any]) -> Chart:
    """Per position of the draft, at the first batch size."""
    cells = report["batches"][0]["arms"] if report["batches"] else []
    rates = {
        cell["arm"]: cell["speculative_decoding"]["acceptance_rate_per_position"]
        for cell in cells
        if cell["arm"] != BASE
    }
    longest = max((len(each) for each in rates.values()), default=0)
    series: dict[str, list[float | None]] = {
        name: [*each, *[None] * (longest - len(each))] for name, each in rates.items() if each
    }
    labels = [str(position + 1) for position in range(longest)]
    title = "Drafts accepted up to and with a position, of those that reach it"
    return Chart(title, "position in the draft", labels, series, top=1.0)


def _forwards(report: dict[str, Any]) -> Chart:
    times = report["why"]["forwards"]
    batches = sorted({each["batch"] for each in times})
    by_shape = {(each["batch"], each["tokens_per_row"]): each["ms"] for each in times}
    widths = sorted({each["tokens_per_row"] for each in times})
    series: dict[str, list[float | None]] = {
        f"{width} token{'s' if width > 1 else ''} a row": [
            by_shape.get((batch, width)) for batch in batches
        ]
        for width in widths
    }
    return Chart("The target's forward, ms", "rows", [str(batch) for batch in batches], series)


def _lengths_over_time(report: dict[str, Any]) -> list[Chart]:
    """How many tokens `auto` drafts as time goes by, at each rate."""
    charts = []
    for record in report["sweep"]:
        runs = {
            cell["arm"]: cell["draft_length_over_time"]
            for cell in record["arms"]
            if cell["num_draft_tokens"] in ("auto", "schedule")
        }
        moments = sorted({moment for points in runs.values() for moment, _ in points})
        series: dict[str, list[float | None]] = {}
        for name, points in runs.items():
            at = dict(map(tuple, points))
            series[name] = [at.get(moment) for moment in moments]
        rate = record["rate"]
        load = "with all requests at once" if rate == "inf" else f"at {rate} requests/s"
        title = f"Draft length over time {load}"
        labels = [f"{moment:.1f}" for moment in moments]
        charts.append(Chart(title, "seconds", labels, series, places=moments))
    return charts


def _by_arm(records: list[dict[str, Any]], value: Any) -> dict[str, list[float | None]]:
    names = dict.fromkeys(cell["arm"] for record in records for cell in record["arms"])
    found: dict[str, list[float | None]] = {}
    for name in names:
        found[name] = []
        for record in records:
            cell = next((cell for cell in record["arms"] if cell["arm"] == name), None)
            found[name].append(None if cell is None else value(cell))
    return found


def _labels(records: list[dict[str, Any]], key: str) -> list[str]:
    return [str(record[key]).removesuffix(".0") for record in records]


def as_svg(chart: Chart) -> str:
    """The chart as an SVG element that loads nothing from elsewhere."""
    import pygal

    kind = pygal.XY if chart.places else pygal.Bar if chart.is_bars else pygal.Line
    options: dict[str, Any] = {"x_labels": chart.labels}
    if chart.places:
        options = {"xrange": (0.0, chart.places[-1])}
    if chart.top is not None:
        options["range"] = (0.0, chart.top)
    # One line has no legend: the title says whose it is.
    names = "" if len(chart.series) > 1 else f": {next(iter(chart.series))}"
    legend_height = 22 * (-(-len(chart.series) // 2) - 1)
    drawn = kind(
        style=_style(chart),
        js=[],
        width=760,
        height=364 + legend_height,
        title=f"{chart.title}{names}",
        x_title=chart.axis,
        **options,
        legend_at_bottom=True,
        legend_at_bottom_columns=2,
        margin_bottom=12 + legend_height,
        stroke_style={"width": 2.5},
        include_x_axis=True,
        dots_size=3 if len(chart.labels) <= 12 else 1,
        value_formatter=lambda value: f"{value:.3g}",
        no_prefix=False,
        disable_xml_declaration=True,
    )
    for name, values in chart.series.items():
        points = zip(chart.places, values, strict=True) if chart.places else values
        drawn.add(name, list(points))
    return str(drawn.render(is_unicode=True))


def _style(chart: Chart) -> Any:
    from pygal.style import Style

    return Style(
        background="transparent",
        plot_background="transparent",
        foreground="#333",
        foreground_strong="#111",
        foreground_subtle="#777",
        guide_stroke_color="#ddd",
        major_guide_stroke_color="#ccc",
        colors=chart.colors,
        font_family="system-ui, sans-serif",
        title_font_size=15,
        label_font_size=12,
        major_label_font_size=12,
        legend_font_size=12,
    )


def as_text(chart: Chart, width: int, height: int = 16, *, is_plain: bool = False) -> str:
    """The chart in characters.

    Args:
        chart: What to draw.
        width: Columns; at least 40.
        height: Lines.
        is_plain: ASCII only.
    """
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    markers = "ox+*#@%&"
    for number, (name, values) in enumerate(chart.series.items()):
        points = [(i, value) for i, value in enumerate(values) if value is not None]
        if points:
            places, heights = zip(*points, strict=True)
            plotext.plot(places, heights, label=name, marker=markers[number % len(markers)])
    plotext.xticks(list(range(len(chart.labels))), chart.labels)
    plotext.title(f"{chart.title}, by {chart.axis}")
    plotext.plotsize(max(40, width), height)
    text: str = plotext.uncolorize(plotext.build())
    if is_plain:
        frame = str.maketrans("┌┐└┘─│┤├┬┴┼", "++++-|+++++")
        text = text.translate(frame)
    return "\n".join(line.rstrip() for line in text.splitlines())
