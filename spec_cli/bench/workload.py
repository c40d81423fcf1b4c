"""What is asked of the arms: built-in suites, files of prompts, ShareGPT and Spec-Bench files."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from spec_cli.core.errors import UsageError

SUITES = ("chat", "code", "summary", "qa", "translation", "math")
"""Names of the built-in suites: conversation, code editing, summarising a given text, answering
from a given text, translation, and sums in words."""

_SHAREGPT_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "system": "system"}


@dataclass(frozen=True, slots=True)
class WorkPrompt:
    """One prompt of a workload.

    Attributes:
        name: Where it is from, such as `chat/3` or `prompts.jsonl:7`.
        category: Its suite or task, or `file`.
        messages: A conversation that ends with the user; `(role, content)` pairs.
    """

    name: str
    category: str
    messages: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """What the user says last."""
        return self.messages[-1][1]

    def as_messages(self) -> list[dict[str, str]]:
        """The conversation as chat templates take it."""
        return [{"role": role, "content": content} for role, content in self.messages]


def plain_prompts(texts: list[str], name: str = "prompt") -> list[WorkPrompt]:
    """Texts as prompts."""
    return [
        WorkPrompt(f"{name}/{number}", "given", (("user", text),))
        for number, text in enumerate(texts, 1)
    ]


def load_suites(names: list[str]) -> list[WorkPrompt]:
    """The prompts of built-in suites, dealt out in turn: the first of each, the second of each.

    So a workload cut short keeps its mixture.

    Raises:
        UsageError: There is no suite of a name.
    """
    for name in names:
        if name not in SUITES:
            raise UsageError(f"suite {name!r} does not exist; there are {', '.join(SUITES)}.")
    suites = [_load_suite(name) for name in dict.fromkeys(names)]
    longest = max((len(suite) for suite in suites), default=0)
    return [suite[i] for i in range(longest) for suite in suites if i < len(suite)]


def _load_suite(name: str) -> list[WorkPrompt]:
    text = (files("spec_cli.bench") / "suites" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [
        WorkPrompt(f"{name}/{number}", name, (("user", json.loads(line)["prompt"]),))
        for number, line in enumerate(text.splitlines(), 1)
    ]


def load_file(path: Path) -> list[WorkPrompt]:
    """The prompts of a file, its format recognised from its content.

    Read as they are: JSON lines with `prompt` or `messages`; Spec-Bench and MT-bench
    `question.jsonl` (`turns`; the first turn is asked); ShareGPT, as one JSON list or JSON lines
    (`conversations`; what the user says before the first answer is asked, and conversations in
    which the user says nothing are left out, as in vLLM's reader). A `.txt` file holds one prompt a
    line.

    Raises:
        UsageError: The file cannot be read, is empty, or a line of it is malformed; the message
            names the line.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: byte {error.start} is wrong.") from error
    if path.suffix == ".txt":
        lines = [line for line in content.splitlines() if line.strip()]
        found = plain_prompts(lines, path.name)
    else:
        read = [_read(record, path.name, where) for where, record in _records(content, path)]
        found = [prompt for prompt in read if prompt is not None]
    if not found:
        raise UsageError(f"{path} holds no prompt.")
    return found


def _records(content: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Each record with the words that say where it is."""
    if content.lstrip().startswith("["):
        try:
            records = json.loads(content)
        except ValueError as error:
            line = getattr(error, "lineno", 1)
            raise UsageError(f"{path}, line {line} is not valid JSON: {error}.") from error
        yield from ((f"entry {number}", record) for number, record in enumerate(records, 1))
        return
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number} is not valid JSON: {error}.") from error


def _read(record: Any, file_name: str, where: str) -> WorkPrompt | None:
    """The prompt of a record; None for a conversation without a word of the user's."""
    name = f"{file_name}:{where.rpartition(' ')[2]}"
    if isinstance(record, dict):
        messages = _messages(record)
        if messages == ():
            return None
        if messages and all(content.strip() for _, content in messages):
            return WorkPrompt(name, str(record.get("category", "file")), messages)
    raise UsageError(
        f"{file_name}, {where} holds no prompt: it needs one of prompt, messages, turns and "
        "conversations, with a text for the user to ask."
    )


def _messages(record: dict[str, Any]) -> tuple[tuple[str, str], ...] | None:
    """What is asked; None where the record is malformed."""
    if isinstance(record.get("prompt"), str):
        return (("user", record["prompt"]),)
    turns = record.get("turns")
    if isinstance(turns, list) and turns and isinstance(turns[0], str):
        return (("user", turns[0]),)
    if isinstance(record.get("messages"), list):
        asked = _pairs(record["messages"], "role", "content")
        return tuple(asked) if asked and asked[-1][0] == "user" else None
    if isinstance(record.get("conversations"), list):
        said = _pairs(record["conversations"], "from", "value")
        return None if said is None else _before_answer(said)
    return None


def _pairs(messages: list[Any], role_key: str, content_key: str) -> list[tuple[str, str]] | None:
    pairs = []
    for message in messages:
        role = message.get(role_key) if isinstance(message, dict) else None
        content = message.get(content_key) if isinstance(message, dict) else None
        if not isinstance(role, str) or not isinstance(content, str):
            return None
        pairs.append((_SHAREGPT_ROLES.get(role, role), content))
    return pairs


def _before_answer(said: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """A ShareGPT conversation up to its first answer; some files begin with an answer."""
    while said and said[0][0] == "assistant":
        said = said[1:]
    end = next((i for i, (role, _) in enumerate(said) if role == "assistant"), len(said))
    asked = said[:end]
    return tuple(asked) if asked and asked[-1][0] == "user" else ()
