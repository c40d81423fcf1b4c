"""How it works: the pictures show what the report says, and the names in the text exist."""

import importlib
import json
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-it-works.md"
NAME = re.compile(r"([\w./]+\.py)(?:: ([\w.]+))?")


@pytest.fixture
def measured(monkeypatch) -> Any:
    """The module that draws them."""
    monkeypatch.syspath_prepend(DOCS / "images")
    return importlib.import_module("measured")


def with_sweep(report: dict[str, Any], fixed: str, auto: str) -> dict[str, Any]:
    """The report as if it had a sweep: with `auto` no request came back at the last rate."""
    latencies: tuple[dict[str, float | None], ...] = (
        {"target only": 2600.0, fixed: 1500.0, auto: 1400.0},
        {"target only": 13000.0, fixed: 9000.0, auto: 8000.0},
        {"target only": 65000.0, fixed: 54000.0, auto: None},
    )
    sweep = [
        {
            "rate": rate,
            "arms": [
                {"arm": name, "end_to_end_ms": p50 and {"p50": p50}, "saturated": rate != 0.5}
                for name, p50 in by_arm.items()
            ],
        }
        for rate, by_arm in zip((0.5, 4.0, "inf"), latencies, strict=True)
    ]
    words = [f"{fixed} stops paying at 3.2 requests per second."]
    return report | {"sweep": sweep, "why": report["why"] | {"words": words}}


def test_pictures_and_captions_are_made_of_the_report(measured):
    """Made again of the report that the text names, every picture and caption is the stored one."""
    for file, content in measured.made(measured.cited_report(), PAGE.read_text(encoding="utf-8")):
        stored = file.read_text(encoding="utf-8") if file.exists() else None
        assert stored == content, f"run docs/images/measured.py for {file.name}"


def test_every_place_in_the_text_has_its_picture(measured):
    """The text has one place for each picture, and no other."""
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall("<!-- measured: (.+) -->", text) == list(measured.PICTURES)


def test_sweep_gives_curves_and_says_who_fell_behind(measured):
    """A report with a sweep has a fourth picture, whose caption carries the sweep's figures."""
    report = json.loads(measured.cited_report().read_text(encoding="utf-8"))
    arms = measured.chosen_arms(report)
    swept = with_sweep(report, arms.fixed, arms.auto)
    picture = measured.PICTURES["latency"](swept, arms)

    drawn = measured.as_svg(picture, "dark", "latency")
    assert drawn == measured.as_svg(picture, "dark", "latency")
    for text in ("all at once", arms.auto, "1 s", "100 s"):
        assert f">{text}</" in drawn
    assert "Median at 0.5 requests per second: 2.6 s for target only, 1.5 s" in picture.caption
    assert f"once: 65 s for target only, 54 s for {arms.fixed}." in picture.caption
    assert f"With {arms.fixed} the engine fell behind at 4." in picture.caption
    assert f"{arms.fixed} stops paying at 3.2 requests per second." in picture.caption
    assert measured.PICTURES["latency"](report | {"sweep": []}, arms) is None


def test_pictures_run_nothing_and_hold_no_day(measured):
    """GitHub shows them as images: a script would be dead weight, a date a difference."""
    for file, content in measured.made(measured.cited_report(), ""):
        if file.suffix == ".svg" and content is not None:
            assert "<script" not in content
            assert "Generated" not in content


@pytest.mark.parametrize("found", NAME.findall(PAGE.read_text(encoding="utf-8")), ids=": ".join)
def test_text_names_what_exists(found):
    """Every file named in the text is in the package, and every function in its file."""
    path, name = found
    module = importlib.import_module("spec_cli." + path.removesuffix(".py").replace("/", "."))
    if name:
        assert callable(attrgetter(name)(module))
