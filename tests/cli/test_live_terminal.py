"""`spec-cli generate` in a pseudo-terminal: what is left on the screen is the answer."""

import os
import re

import pexpect
import pyte
import pytest

from spec_cli.ui.spans import printable
from tests.cli.running import COMMAND, ROOT, invoke, invoke_json
from tests.ui.screens import Screen


def output(*arguments: object, **env: str) -> str:
    """Everything that a command writes to a terminal."""
    process = pexpect.spawn(
        COMMAND[0],
        [*COMMAND[1:], "generate", *map(str, arguments)],
        cwd=str(ROOT),
        env={**os.environ, **env},
        encoding="utf-8",
        timeout=60,
        dimensions=(60, 100),
    )
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 0
    return str(process.before)


def screen(written: str) -> list[str]:
    """What is left on the screen."""
    terminal = Screen(100, 60)
    stream = pyte.Stream(terminal)
    stream.feed(re.sub(r"\x1b\[\?2026[hl]", "", written))
    return [line.rstrip() for line in terminal.display]


@pytest.mark.parametrize(
    "looks",
    [
        [],
        ["--no-live"],
        pytest.param(["--plain"], marks=pytest.mark.slow),
        pytest.param(["--highlight", "position"], marks=pytest.mark.slow),
    ],
)
def test_answer_is_left(model, looks):
    """Whatever the looks, the answer stays and the footer goes."""
    arguments = ["-m", model, "one two one two", "-n", 60, "--spec", "ngram", "-k", 3]
    text = invoke_json("generate", *arguments)["choices"][0]["text"]
    written = output(*arguments, *looks, "--no-stats", "-q" if looks == ["--no-live"] else "-v")
    assert ("\x1b7" in written) == (looks != ["--no-live"])
    plain = screen(printable(text).replace("\n", "\r\n"))
    want = "\n".join(plain).rstrip()
    left = "\n".join(screen(written)).rstrip()
    assert left.endswith(want), left
    assert "ctx" not in left.removesuffix(want) or "ctx 256" in left


@pytest.mark.slow
def test_no_color_keeps_the_second_cue(model):
    """NO_COLOR: no colours, but still the underline of the target's own tokens."""
    written = output("-m", model, "Hello", "-n", 20, NO_COLOR="1")
    codes = set(re.findall(r"\x1b\[([0-9;]+)m", written))
    assert any("4" in code.split(";") for code in codes)
    assert not any(re.search(r"(^|;)(3\d|9\d)(;|$)", code) for code in codes)


@pytest.mark.slow
def test_several_answers_come_in_order(model):
    """A batch shows one row for each answer, and leaves all of them in order."""
    left = screen(output("-m", model, "Hello", "Good day", "-n", 12, "--no-stats"))
    titles = [line for line in left if line.startswith("==> ")]
    assert titles == ["==> 1: Hello <==", "==> 2: Good day <=="]
    assert not any("done" in line for line in left)


def test_looks_without_a_terminal(model):
    """A highlight waits for a terminal; thoughts that cannot be hidden are refused."""
    result = invoke("generate", "-m", model, "Hello", "-n", 2, "--highlight", "position")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    refused = invoke("generate", "-m", model, "Hello", "--hide-thinking")
    assert refused.exit_code == 2
    assert "--hide-thinking needs text on a terminal" in refused.output
