"""The pictures of the documentation show what the program shows."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def draw() -> Any:
    """The module that draws them."""
    spec = importlib.util.spec_from_file_location("draw", IMAGES / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("index", [0, 1])
def test_picture_is_what_the_program_draws(index):
    """Drawn again from the recorded events, a picture is the stored one."""
    path, picture = list(draw().pictures())[index]
    assert picture == path.read_text(encoding="utf-8"), f"run docs/images/draw.py for {path.name}"
