"""`spec-cli generate` in a terminal and under signals: real processes."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pexpect
import pytest

from tests.cli.running import COMMAND, ROOT, run, terminal

ENDLESS = ("-n", "90000", "--ignore-eos")
ANSWERED_S = 5
"""A guard against hanging, many times what it takes."""


def wait_for_tokens(trace: Path) -> None:
    """Return when a run has written its first few tokens."""
    deadline = time.monotonic() + 40
    while not trace.is_file() or trace.read_text().count('"event": "token"') < 3:
        assert time.monotonic() < deadline, "no token came"
        time.sleep(0.05)


def test_interrupt_keeps_the_answer(endless: Path, tmp_path: Path) -> None:
    """G-01: Ctrl-C in an answer ends it with what was written, the figures and exit code 130."""
    trace = tmp_path / "trace.jsonl"
    child = terminal("generate", "-m", endless, "Hello", *ENDLESS, "--plain", "--trace", trace)
    wait_for_tokens(trace)

    child.sendintr()
    child.expect(pexpect.EOF, timeout=ANSWERED_S)

    assert child.wait() == 130
    last = child.before.strip().splitlines()[-1]
    assert " tok/s" in last
    assert "interrupted" in last
    assert "Traceback" not in child.before


@pytest.mark.slow
def test_interrupt_writes_the_report(endless: Path, tmp_path: Path) -> None:
    """With --json an interrupted answer is still reported, with finish_reason interrupted."""
    trace = tmp_path / "trace.jsonl"
    command = ["generate", "-m", str(endless), "Hello", *ENDLESS, "--json", "--trace", str(trace)]
    process = subprocess.Popen(
        [*COMMAND, *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_tokens(trace)

    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=ANSWERED_S)

    assert process.returncode == 130
    choice = json.loads(output)["choices"][0]
    assert choice["finish_reason"] == "interrupted"
    assert len(choice["token_ids"]) == choice["usage"]["completion_tokens"]


def test_interrupt_in_prefill(endless: Path) -> None:
    """Ctrl-C is answered while a long prompt is read: prompts come in chunks."""
    child = terminal("generate", "-m", endless, "--raw", "-f", "-", "--ignore-eos", "-c", 90_000)
    for _ in range(60):
        child.sendline("word " * 200)
    child.sendeof()
    child.expect("up to 512 tokens")

    child.sendintr()
    child.expect(pexpect.EOF, timeout=ANSWERED_S)

    assert child.wait() == 130


def test_interrupt_while_loading(model: Path) -> None:
    """G-01: Ctrl-C before the first token is exit code 130, without a traceback."""
    child = terminal("generate", "-m", model, "Hello")
    child.expect("Starting")

    child.sendintr()
    child.expect(pexpect.EOF, timeout=ANSWERED_S)

    assert child.wait() == 130
    assert "Traceback" not in child.before


@pytest.mark.slow
def test_reader_that_leaves_ends_it_quietly(endless: Path) -> None:
    """A closed pipe ends the run without a word."""
    command = [*COMMAND, "generate", "-m", str(endless), "Hello", *ENDLESS]
    process = subprocess.Popen(
        [*command, "-q"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(3)
    process.stdout.close()

    assert process.wait(timeout=30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["config", "show"]])
def test_reader_that_left_before_the_first_word(arguments: list[str]) -> None:
    """A page that nobody reads to its end, as with `| head -1`, is no failure."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stdout:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, b"")


def test_no_prompt_in_a_terminal_never_waits() -> None:
    """On a terminal without a prompt: says what to do, exit code 2."""
    child = terminal("generate")
    child.expect(pexpect.EOF, timeout=30)

    assert child.wait() == 2
    assert "no prompt" in child.before


@pytest.mark.slow
def test_terminal_that_lacks_characters(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stdout that is not UTF-8 shows a substitute instead of ending the answer."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")

    done = run("generate", "-m", model, "Hello", "-n", 40, "--temp", 1, "--seed", 5, "--stats")

    assert done.returncode == 0
    assert b"?" in done.stdout + done.stderr


@pytest.mark.slow
def test_no_color_is_heeded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-02: with NO_COLOR nothing has a colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    child = terminal("generate", "-m", model, "Hello", "-n", 3, "--plain")
    child.expect(pexpect.EOF)

    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", child.before)
