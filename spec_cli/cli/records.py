"""The events of a run as JSON lines: `--output-format jsonl` and `--trace`."""

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spec_cli.core.errors import SpecCliError, UsageError
from spec_cli.core.events import (
    EmittedToken,
    Event,
    RequestFinished,
    StepFinished,
    StepTimes,
    TextDelta,
    TokensEmitted,
)


@dataclass(slots=True)
class _Row:
    """Tokens of an answer whose text is not known yet."""

    index: int
    num_written: int = 0
    waiting: deque[tuple[EmittedToken, int]] = field(default_factory=deque)
    begun: str = ""
    """Text before its last token: a piece that ends inside a token."""
    last: EmittedToken | None = None


class Records:
    """Turns events into records, in their order.

    The texts of the token records of an answer, joined, are its text. A token that completes no
    character has an empty one, and its text is with the token that does.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def read(self, event: Event | TextDelta) -> list[dict[str, Any]]:
        """The records that an event completes."""
        if isinstance(event, StepFinished):
            return self._step(event)
        row = self._rows.setdefault(event.request_id, _Row(len(self._rows)))
        if isinstance(event, TokensEmitted):
            row.waiting.extend((token, event.step) for token in event.tokens)
            row.last = event.tokens[-1]
        elif isinstance(event, TextDelta):
            return _tokens(row, event)
        elif isinstance(event, RequestFinished):
            records = [_token(row, "") for _ in range(len(row.waiting))]
            if records and row.begun:
                records[-1]["text"] = row.begun
            return records
        return []

    def _step(self, event: StepFinished) -> list[dict[str, Any]]:
        times = _times(event.times)
        shared = {"event": "step", "step": event.step, "prefill_tokens": event.num_prefill_tokens}
        if not event.rows:
            return [{**shared, "index": None, **times}]
        records = []
        for row_step in event.rows:
            row = self._rows[row_step.request_id]
            is_own = row.last is not None and row.last.source == "target"
            records.append(
                {
                    **shared,
                    "index": row.index,
                    "source": row_step.source,
                    "draft_token_ids": list(row_step.draft_token_ids),
                    "judged": row_step.num_judged,
                    "accepted": row_step.num_accepted,
                    "emitted": row_step.num_emitted,
                    "emitted_id": row.last.token_id if is_own and row.last else None,
                    "context_length": row_step.context_length,
                    "mode": event.state.mode,
                    **times,
                }
            )
        return records


def _tokens(row: _Row, delta: TextDelta) -> list[dict[str, Any]]:
    """Records of the tokens that a piece of text completes, and of silent ones before them."""
    row.begun += delta.text
    if not delta.token_ids:
        return []
    records = []
    while [token.token_id for token, _ in row.waiting][: len(delta.token_ids)] != list(
        delta.token_ids
    ):
        records.append(_token(row, ""))
    records += [_token(row, "") for _ in delta.token_ids]
    records[-1]["text"], row.begun = row.begun, ""
    return records


def _token(row: _Row, text: str) -> dict[str, Any]:
    token, step = row.waiting.popleft()
    row.num_written += 1
    return {
        "event": "token",
        "index": row.index,
        "i": row.num_written - 1,
        "id": token.token_id,
        "text": text,
        "source": token.source,
        "pos": token.draft_position,
        "step": step,
    }


def _times(times: StepTimes) -> dict[str, float]:
    return {
        "t_draft_ms": round(times.propose_s * 1e3, 3),
        "t_verify_ms": round(times.forward_s * 1e3, 3),
        "t_sample_ms": round(times.verify_s * 1e3, 3),
        "t_other_ms": round(times.other_s * 1e3, 3),
    }


class RecordFile:
    """Where records go, one a line, each written at once."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def write(self, record: dict[str, Any]) -> None:
        """Write one record."""
        self._write(json.dumps(record, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def open_trace(path: Path) -> Iterator[RecordFile]:
    """Make or empty a file of records.

    Raises:
        UsageError: It cannot be opened.
        SpecCliError: It cannot be written to the end.
    """
    try:
        stream = path.open("w", encoding="utf-8", newline="\n", buffering=1)
    except OSError as error:
        raise UsageError(f"--trace: cannot write {path}: {error.strerror}.") from error

    def write(text: str) -> None:
        try:
            stream.write(text)
        except OSError as error:
            raise SpecCliError(f"cannot write {path}: {error.strerror}.") from error

    with stream:
        yield RecordFile(write)
