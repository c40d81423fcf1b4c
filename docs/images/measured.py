"""Draws the pictures of `how-it-works.md` from a report of `spec-cli compare -o json`.

    python docs/images/measured.py                                  # of the newest report
    python docs/images/measured.py docs/benchmarks/NAME/report.json # of this one

Each picture is an SVG for a light and one for a dark page, and its caption stands between two
comments in the text. A picture that the report has no data for leaves nothing there. A test makes
all of it again from the report that the text names.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from curves import PICTURES, Report, chosen_arms
from plotting import THEMES, Picture, as_svg

HERE = Path(__file__).parent
DOCS = HERE.parent
PAGE = DOCS / "how-it-works.md"

_CITED = re.compile(r"\((benchmarks/[^)]+/report\.json)\)")
_BLOCK = re.compile(r"(?<=<!-- measured: )([\w-]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def newest_report() -> Path:
    """The comparison of docs/benchmarks that was made last."""
    paths = DOCS.glob("benchmarks/*/report.json")
    return max(paths, key=lambda path: _read(path)["created"])


def cited_report() -> Path:
    """The report that the text names beneath its pictures."""
    found = _CITED.search(PAGE.read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"{PAGE.name} names no report: run docs/images/measured.py.")
    return DOCS / found[1]


def made(path: Path, page: str) -> Iterator[tuple[Path, str | None]]:
    """Each file and what belongs into it: the pictures, then the text around their captions.

    Args:
        path: The report, in a folder of docs/benchmarks.
        page: The text as it is.

    Yields:
        None as the content of a picture that there is no data for.
    """
    report = _read(path)
    arms = chosen_arms(report)
    pictures = {name: make(report, arms) for name, make in PICTURES.items()}
    for name, picture in pictures.items():
        for theme in THEMES:
            drawn = as_svg(picture, theme, name) if picture else None
            yield _file(name, theme), drawn
    source = _source(report, path)
    texts = {name: picture and _block(name, picture, source) for name, picture in pictures.items()}
    yield PAGE, _BLOCK.sub(lambda found: found[1] + found[2] + (texts[found[1]] or ""), page)


def _read(path: Path) -> Report:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _file(name: str, theme: str) -> Path:
    return HERE / f"{name}-{theme}.svg"


def _block(name: str, picture: Picture, source: str) -> str:
    """A picture for both themes in Markdown, with its caption."""
    light, dark = (_file(name, theme).relative_to(DOCS).as_posix() for theme in ("light", "dark"))
    return (
        "<picture>\n"
        f'  <source media="(prefers-color-scheme: dark)" srcset="{dark}">\n'
        f'  <img src="{light}" alt="{picture.title}, by {picture.axis}">\n'
        f"</picture>\n\n{picture.caption}\n\n{source}\n"
    )


def _source(report: Report, path: Path) -> str:
    """Where the figures are from."""
    model, env = report["model"], report["env"]
    return (
        f"<sub>Measured with {model['id']} in {model['dtype']} on {env['processor']}"
        f" ([report]({path.relative_to(DOCS).as_posix()})) by\n"
        f"`{shlex.join(report['command_line'])}`</sub>"
    )


def main() -> None:
    """Draw the pictures and write their captions into the text."""
    path = Path(sys.argv[1]).resolve() if sys.argv[1:] else newest_report()
    for file, content in made(path, PAGE.read_text(encoding="utf-8")):
        if content is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
