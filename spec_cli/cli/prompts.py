"""Where prompts come from: arguments, files and standard input."""

import json
import os
import select
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spec_cli.cli.options import option
from spec_cli.core.errors import UsageError

_PROMPT = "Prompt"
_STDIN = "-"
_PATIENCE_S = 2.0
_JSON_LINES = frozenset({".json", ".jsonl", ".ndjson"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """Prompts beside those given as arguments."""

    prompt: Annotated[
        list[str] | None,
        option("-p", "--prompt", metavar="TEXT", panel=_PROMPT, help="A prompt; repeatable."),
    ] = None
    file: Annotated[
        list[Path] | None,
        option("-f", "--file", metavar="FILE", panel=_PROMPT, help="A prompt's file; repeatable."),
    ] = None
    prompts: Annotated[
        Path | None,
        option(
            "--prompts",
            metavar="FILE",
            panel=_PROMPT,
            help="Many prompts: JSON lines with a field prompt (.jsonl), or one a line.",
        ),
    ] = None
    raw: Annotated[
        bool, option("--raw", panel=_PROMPT, help="Continue the text: no chat template.")
    ] = False

    def collect(self, arguments: list[str]) -> list[str]:
        """All prompts in order: arguments, --prompt, --file, --prompts.

        What is piped in is put before each of them, with a blank line between, or is the only
        prompt; `-` stands for it instead. The last line break of a file is no part of a prompt,
        unless --raw.

        Raises:
            UsageError: There is no prompt, or a file cannot be read.
        """
        texts = [*arguments, *(self.prompt or [])]
        is_asked = _STDIN in texts or Path(_STDIN) in [*(self.file or []), self.prompts]
        piped = self._trim(read_stdin(is_asked=is_asked))
        prompts = [piped if text == _STDIN else text for text in texts]
        prompts += [
            piped if str(path) == _STDIN else self._trim(read_text(path))
            for path in self.file or []
        ]
        if self.prompts is not None:
            is_stdin = str(self.prompts) == _STDIN
            content = piped if is_stdin else read_text(self.prompts)
            prompts += split_prompts(content, self.prompts)
        if piped and not is_asked:
            prompts = [f"{piped}\n\n{prompt}" for prompt in prompts] or [piped]
        if not prompts:
            raise UsageError("no prompt was given.", hint=_examples())
        return prompts

    def _trim(self, text: str) -> str:
        return text if self.raw else text.removesuffix("\n").removesuffix("\r")


def read_text(path: Path) -> str:
    """Text of a file in UTF-8.

    Raises:
        UsageError: It cannot be read; the message names it.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: byte {error.start} is wrong.") from error


def read_stdin(*, is_asked: bool) -> str:
    """What is piped in, or nothing; a terminal is read only if asked for.

    Raises:
        UsageError: It is not UTF-8.
    """
    if sys.stdin is None or sys.stdin.closed or (sys.stdin.isatty() and not is_asked):
        return ""
    _tell_if_waiting()
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 text: byte {error.start}.") from error
    except OSError:
        # Closed or not readable, such as the terminal of a process in the background.
        return ""


def _tell_if_waiting() -> None:
    """Say that a pipe is waited for, if nothing comes for a while."""
    try:
        number = sys.stdin.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
        if is_pipe and not select.select([number], [], [], _PATIENCE_S)[0]:
            typer.echo(
                "Waiting for text on standard input (</dev/null if there is none).", err=True
            )
    except (OSError, ValueError):
        return


def split_prompts(content: str, path: Path) -> list[str]:
    """Prompts of a file: JSON lines if its name or, on standard input, its text says so.

    Any other file holds one prompt a line; empty lines are skipped.

    Raises:
        UsageError: A line is not as it should be; the message names it.
    """
    lines = [(number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{path} holds no prompt.")
    is_json = (
        content.lstrip().startswith("{") if str(path) == _STDIN else path.suffix in _JSON_LINES
    )
    if not is_json:
        return [line.removesuffix("\r") for _, line in lines]
    prompts = []
    for number, line in lines:
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number} is not valid JSON: {error}.") from error
        prompt = record.get("prompt") if isinstance(record, dict) else record
        if not isinstance(prompt, str):
            raise UsageError(f'{path}, line {number} needs a field "prompt" with a text.')
        prompts.append(prompt)
    return prompts


def _examples() -> str:
    return (
        'spec-cli generate "Why is the sky blue?"\n'
        'cat notes.txt | spec-cli generate "Summarise this."\n'
        "spec-cli generate --file prompt.txt"
    )
