"""Draws lines and bars as SVG, for a light and for a dark page, the same on every run."""

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any
from xml.etree import ElementTree

import pygal
from pygal.style import Style

_SVG = "http://www.w3.org/2000/svg"
_VALUE_CSS = "inline:.text-overlay text { transform: translateY(-4px); }"
"""Lifts the values off their bars."""
_MOST_TICKS = 6
_STEPS = [digit * 10.0**exponent for exponent in range(-3, 7) for digit in (1, 2, 5)]


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a page; `marks` holds those of the lines and bars by what they stand for."""

    paper: str
    text: str
    grid: str
    marks: dict[str, str]


THEMES = {
    "light": Theme(
        "#ffffff",
        "#1f2328",
        "#c8ced5",
        {"base": "#6e7781", "fixed": "#c2570c", "auto": "#0969da", "right": "#8250df"},
    ),
    "dark": Theme(
        "#0d1117",
        "#e6edf3",
        "#3d444d",
        {"base": "#9198a1", "fixed": "#f0883e", "auto": "#58a6ff", "right": "#ab7df8"},
    ),
}


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one kind of bar; `mark` names its colour."""

    name: str
    mark: str
    values: list[float | None]


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn, and what is written beneath it; bars have their values written on them."""

    title: str
    axis: str
    labels: list[str]
    series: list[Series]
    caption: str
    unit: str = "×"
    is_bars: bool = True
    is_log: bool = False


def as_svg(picture: Picture, theme: str, name: str) -> str:
    """The picture as a document of its own, without scripts, dates or random names.

    Args:
        picture: What to draw.
        theme: A key of `THEMES`.
        name: Tells its style sheet from those of other pictures on a page.
    """
    kind = pygal.Bar if picture.is_bars else pygal.Line
    drawn = kind(**_options(picture, THEMES[theme]))
    drawn.uuid = f"{name}-{theme}"
    for series in picture.series:
        drawn.add(series.name, series.values)
    return _cleaned(drawn.render(is_unicode=True))


def _options(picture: Picture, theme: Theme) -> dict[str, Any]:
    style = Style(
        background=theme.paper,
        plot_background=theme.paper,
        foreground=theme.text,
        foreground_strong=theme.text,
        foreground_subtle=theme.grid,
        guide_stroke_color=theme.grid,
        major_guide_stroke_color=theme.grid,
        colors=tuple(theme.marks[series.mark] for series in picture.series),
        value_colors=(theme.text,) * len(picture.series),
        font_family="system-ui, sans-serif",
        opacity="1",
        stroke_opacity="1",
        stroke_width="2.5",
        title_font_size=16,
        label_font_size=13,
        major_label_font_size=13,
        legend_font_size=13,
        value_font_size=13,
    )
    return {
        "style": style,
        "js": [],
        "css": ["file://style.css", "file://graph.css", _VALUE_CSS],
        "explicit_size": True,
        "width": 760,
        "height": 380,
        "title": picture.title,
        "x_title": picture.axis,
        "x_labels": picture.labels,
        "legend_at_bottom": True,
        "legend_at_bottom_columns": len(picture.series),
        "print_values": picture.is_bars,
        "print_values_position": "top",
        "formatter": lambda value: "" if value is None else f"{value:.2f}{picture.unit}",
        "y_labels": [
            {"value": tick, "label": f"{tick:g}{picture.unit}"} for tick in _ticks(picture)
        ],
        "show_y_guides": not picture.is_bars,  # a bar's value stands on it
        "logarithmic": picture.is_log,
        "margin_right": 40,
        "dots_size": 4,
        "disable_xml_declaration": True,
    }


def _ticks(picture: Picture) -> list[float]:
    """Round numbers from below the values, or from 0, to above them."""
    values = [value for each in picture.series for value in each.values if value is not None]
    low, high = min(values), max(values)
    if picture.is_log:
        exponents = range(floor(log10(low)), ceil(log10(high)) + 1)
        steps = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
        first = max(index for index, step in enumerate(steps) if step <= low)
        last = min(index for index, step in enumerate(steps) if step >= high)
        return steps[first : last + 1]
    low, high = min(low, 0.0), max(high, 0.0)
    step = next(step for step in _STEPS if (high - low) / step <= _MOST_TICKS)
    return [step * number for number in range(floor(low / step), ceil(high / step) + 1)]


def _cleaned(drawn: str) -> str:
    """The document without its scripts; comments, one of them the day, are not even read."""
    root = ElementTree.fromstring(drawn)
    for parent in list(root.iter()):
        for script in parent.findall(f"{{{_SVG}}}script"):
            parent.remove(script)
    ElementTree.register_namespace("", _SVG)
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode") + "\n"
