"""Commands that read and write files: conversations, Markdown, texts to attach."""

import json
import re
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from spec_cli.cli.chat_console import ChatConsole
from spec_cli.cli.private_file import write_private
from spec_cli.cli.prompts import read_text
from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams
from spec_cli.core.stats import RequestStats
from spec_cli.core.turn import Turn

SCHEMA = "spec-cli-chat/1"
_REASONS = ("stop", "length", "interrupted")


def session_path(name: str) -> Path:
    """The file of a conversation: by name in the data folder, or where a path says.

    Raises:
        UsageError: It is no name.
    """
    if "/" in name or name.endswith(".json"):
        return Path(name).expanduser()
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
        raise UsageError(f"{name!r} is no name for a conversation: letters, digits, - and _.")
    return user_data_path("spec-cli") / "sessions" / f"{name}.json"


def save(chat: ChatConsole, argument: str) -> None:
    """Save the conversation with its settings, seeds and figures."""
    path = session_path(argument or time.strftime("%Y-%m-%d-%H%M%S"))
    text = json.dumps(to_record(chat), ensure_ascii=False, indent=1) + "\n"
    _write(path, text)
    chat.say(f"saved {len(chat.session.turns):,} turns to {path}")


def load(chat: ChatConsole, argument: str) -> None:
    """Load a conversation in place of this one."""
    if not argument:
        folder = session_path("x").parent
        names = sorted(path.stem for path in folder.glob("*.json"))
        chat.say("saved: " + (", ".join(names) or f"none in {folder}"))
        return
    path = session_path(argument)
    record = _parse(path, read_text(path))
    try:
        turns = [_turn(each) for each in record["turns"]]
        params = SamplingParams(**record["params"])
        system, left_out = record["system"], record["num_left_out"]
        if not isinstance(system, str | None) or not isinstance(left_out, int):
            raise TypeError("system or num_left_out")
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is a broken conversation: {error}.") from error
    session = chat.session
    session.system, session.params, session.turns = system, params, turns
    session.num_left_out = min(max(0, left_out), len(turns))
    chat.deltas = []
    model = record.get("model")
    own = chat.llm.assembly.target.files.name
    chat.say(f"loaded {len(turns):,} turns" + ("" if model == own else f", written by {model}"))


def to_record(chat: ChatConsole) -> dict[str, Any]:
    """A conversation as it is saved."""
    session = chat.session
    run = chat.run_description()
    return {
        "schema": SCHEMA,
        "model": run.model["id"],
        "draft": run.draft,
        "settings": run.settings,
        "system": session.system,
        "params": asdict(session.params),
        "num_left_out": session.num_left_out,
        "turns": [
            {
                "user": turn.user,
                "text": turn.text,
                "finish_reason": turn.finish_reason,
                "seed": turn.seed,
                "stats": None if turn.stats is None else asdict(turn.stats),
            }
            for turn in session.turns
        ],
    }


def export(chat: ChatConsole, argument: str) -> None:
    """Write the conversation as Markdown."""
    if not argument:
        raise UsageError("/export needs a file.", hint="/export chat.md")
    path = Path(argument).expanduser()
    _write(path, to_markdown(chat))
    chat.say(f"wrote {path}")


def to_markdown(chat: ChatConsole) -> str:
    """The conversation as Markdown; what an answer holds is left as it is."""
    session = chat.session
    parts = [f"# Chat with {chat.llm.assembly.target.files.name}"]
    if session.system is not None:
        parts.append(f"## System\n\n{session.system}")
    for turn in session.turns:
        mark = "\n\n*(interrupted)*" if turn.finish_reason == "interrupted" else ""
        parts += [f"## User\n\n{turn.user}", f"## Assistant\n\n{turn.text}{mark}"]
    return "\n\n".join(parts) + "\n"


def read(chat: ChatConsole, argument: str) -> None:
    """Attach a text to the next message."""
    if not argument:
        raise UsageError("/read needs a file.", hint="/read notes.txt")
    path = Path(argument).expanduser()
    text = read_text(path)
    fence = "```"
    while fence in text:
        fence += "`"
    chat.attachments.append(f"{path.name}:\n{fence}\n{text.removesuffix(chr(10))}\n{fence}")
    num_tokens = len(chat.llm.assembly.tokenizer.encode(text))
    chat.say(f"{path.name} goes with the next message: {num_tokens:,} tokens")


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{path} is no saved conversation: {error}.") from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if not isinstance(record, dict) or schema != SCHEMA:
        raise UsageError(f"{path} is no conversation saved by this version: schema {schema!r}.")
    return record


def _turn(record: Any) -> Turn:
    user, text, reason = record["user"], record["text"], record["finish_reason"]
    if not isinstance(user, str) or not isinstance(text, str) or reason not in _REASONS:
        raise TypeError("a turn needs user, text and finish_reason")
    return Turn(
        user, text, finish_reason=reason, seed=int(record["seed"]), stats=_stats(record["stats"])
    )


def _stats(record: Any) -> RequestStats | None:
    if record is None:
        return None
    names = {each.name for each in fields(RequestStats)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record.items()
        if name in names
    }
    return RequestStats(**values)


def _write(path: Path, text: str) -> None:
    """Write a file for the user alone."""
    try:
        write_private(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}.") from error
