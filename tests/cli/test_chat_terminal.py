"""`spec-cli chat` in a real pseudo-terminal: answers are those of fresh runs, whatever happens."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest

from spec_cli import LLM, SamplingParams
from tests.cli.running import COMMAND, ROOT


class Chat:
    """A chat in a terminal, typed into line by line."""

    def __init__(self, *arguments: object, size: tuple[int, int] = (40, 200), **env: str) -> None:
        self.terminal = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], "chat", *map(str, arguments)],
            cwd=str(ROOT),
            env={**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", **env},
            encoding="utf-8",
            timeout=60,
            dimensions=size,
        )
        self.expect(">>>")

    def expect(self, pattern: str) -> str:
        """Wait for a text; returns what came before it."""
        self.terminal.expect(pattern)
        return str(self.terminal.before)

    def type(self, line: str, pattern: str = r"prompt \d") -> str:
        """Type a line and wait for what it brings: the figures of an answer, or a text."""
        self.terminal.send(line + "\r")
        return self.expect(pattern)

    def saved(self, path: Path) -> dict[str, Any]:
        """Save the conversation and read it."""
        self.type(f"/save {path}", r"saved \d+ turns")
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return record

    def leave(self) -> int | None:
        """Press Ctrl-D; returns the exit code."""
        self.expect(">>>")
        self.terminal.sendeof()
        return self.exit_code()

    def exit_code(self) -> int | None:
        """Wait for the end."""
        self.terminal.expect(pexpect.EOF)
        self.terminal.close()
        return int(self.terminal.exitstatus)


def check_answers(
    folder: Path, record: dict[str, Any], systems: list[str | None], max_tokens: int
) -> None:
    """Each finished answer is that of a fresh, unspeculated run on the messages before it."""
    messages: list[dict[str, str]] = []
    for turn, system in zip(record["turns"], systems, strict=True):
        head = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": turn["user"]})
        if turn["finish_reason"] != "interrupted":  # where it stopped is the user's doing
            params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
            with LLM(str(folder), spec="off") as llm:
                assert turn["text"] == llm.chat([*head, *messages], params)[0].text
        messages.append({"role": "assistant", "content": turn["text"]})


def test_a_conversation(endless, tmp_path):
    """Two turns, undo, regen, another system message, speculation off, Ctrl-D."""
    chat = Chat("-m", endless, "--temp", 0, "-n", 24, "--spec", "ngram")
    chat.type("Hello")
    chat.type("And you?")
    chat.type("/undo", "removed: And you")
    chat.type("Other")
    assert "at temperature 0" in chat.type("/regen")
    chat.type("/system Be long.", "counts from")
    assert "lost" in chat.type("More")
    chat.type("/spec off", "speculation is off")
    assert "off" in chat.type("Last")
    record = chat.saved(tmp_path / "chat.json")
    assert [turn["user"] for turn in record["turns"]] == ["Hello", "Other", "More", "Last"]
    check_answers(endless, record, [None, None, "Be long.", "Be long."], 24)
    assert chat.leave() == 0


def test_g01_interrupt(endless, tmp_path):
    """G-01: Ctrl-C stops the answer within a second and keeps it; the next turn builds on it."""
    chat = Chat("-m", endless, "--temp", 0, "-n", 50_000)
    chat.terminal.send("Hello\r")
    chat.expect("tok/s")
    started = time.monotonic()
    chat.terminal.sendintr()
    chat.expect("interrupted; what was written stays")
    assert time.monotonic() - started < 5.0
    chat.type("/set max_tokens 8", "max_tokens 8")
    chat.type("Next")
    record = chat.saved(tmp_path / "chat.json")
    assert [turn["finish_reason"] for turn in record["turns"]] == ["interrupted", "length"]
    assert record["turns"][0]["text"]
    check_answers(endless, record, [None, None], 8)
    chat.expect(">>>")
    chat.terminal.sendintr()
    chat.expect("Use Ctrl-D or /exit to leave")
    assert chat.leave() == 0


@pytest.mark.slow
def test_ctrl_c_twice_leaves(endless):
    """Twice within two seconds ends the program with 130."""
    chat = Chat("-m", endless, "--temp", 0, "-n", 50_000)
    chat.terminal.send("Hello\r")
    chat.expect("tok/s")
    chat.terminal.sendintr()
    time.sleep(0.3)
    chat.terminal.sendintr()
    assert chat.exit_code() == 130


@pytest.mark.slow
def test_bad_input_leaves_the_conversation_alone(model, tmp_path):
    """Whatever is wrong is told, and the conversation goes on."""
    broken, foreign = tmp_path / "broken.json", tmp_path / "foreign.json"
    broken.write_text('{"schema": "spec-cli-chat/1", "turns": [{}]}')
    foreign.write_text('{"messages": []}')
    state = tmp_path / "state"
    state.write_text("a file where a folder should be")
    chat = Chat("-m", model, "--temp", 0, "-n", 8, XDG_STATE_HOME=str(state))
    chat.type("/sytem x", "messages are not kept")
    chat.expect(r"no command /sytem")
    chat.expect(r"Try: /system")
    chat.type(f"/load {broken}", "broken conversation")
    chat.type(f"/load {foreign}", "no conversation saved")
    chat.type("/load nowhere", "cannot read")
    chat.type("/draft ./nope", r"draft model \./nope")
    chat.type("/set temperature hot", "must be a number")
    chat.type("/k 99", "between 1 and 32")
    chat.type("/undo", "nothing to undo")
    chat.type("//literal slash")
    chat.type('"""one\rtwo\r"""')
    record = chat.saved(tmp_path / "chat.json")
    assert [turn["user"] for turn in record["turns"]] == ["/literal slash", "one\ntwo"]
    check_answers(model, record, [None, None], 8)
    assert chat.leave() == 0


@pytest.mark.slow
@pytest.mark.parametrize("case", ["dumb", "narrow", "plain"])
def test_poor_terminals(model, case):
    """A dumb terminal and one of 20 columns still chat; a dumb one gets no escape codes."""
    options = {"dumb": {"TERM": "dumb"}, "narrow": {}, "plain": {}}[case]
    size = (24, 20) if case == "narrow" else (24, 80)
    more = ["--plain"] if case == "plain" else []
    chat = Chat("-m", model, "--temp", 0, "-n", 8, *more, size=size, **options)
    shown = chat.type("Hi", "tok")
    if case == "dumb":
        assert "\x1b" not in shown
    chat.terminal.send("/exit\r")
    assert chat.exit_code() == 0


def piped(message: bytes, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run a chat as a process whose input is a pipe."""
    return subprocess.run(
        [*COMMAND, "chat", *map(str, arguments)],
        input=message,
        capture_output=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )


def test_g02_piped_input(model):
    """G-02: what is piped in gets one answer, without escape codes, and the chat ends."""
    done = piped(b"hi\nthere\n", "-m", model, "--temp", 0, "-n", 16)
    assert done.returncode == 0, done.stderr
    params = SamplingParams(temperature=0.0, max_tokens=16)
    with LLM(str(model), spec="off") as llm:
        want = llm.chat([{"role": "user", "content": "hi\nthere"}], params)[0].text
    assert done.stdout.decode() == want + "\n"
    assert not re.search(rb"\x1b|\r", done.stderr)
    empty = piped(b"\n", "-m", model)
    assert empty.returncode == 2
    assert b"no message was piped in" in empty.stderr
