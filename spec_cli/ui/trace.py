"""A saved trace: the tokens of each answer, and what each step drafted and kept."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spec_cli.core.errors import UsageError
from spec_cli.core.stats import RequestStats, StatsRecorder

_TIMES = ("t_draft_ms", "t_verify_ms", "t_sample_ms", "t_other_ms")
_SOURCES = ("draft", "ngram", "suffix", "target")


@dataclass(frozen=True, slots=True)
class TraceToken:
    """One token of an answer.

    Attributes:
        text: Empty for one whose characters are completed by a later token.
        source: Who guessed it, or `target`.
        position: Its index in the draft, or None.
        step: The step that brought it.
    """

    token_id: int
    text: str
    source: str
    position: int | None
    step: int


@dataclass(frozen=True, slots=True)
class TraceStep:
    """What one answer gained in a step.

    Attributes:
        step: Number of the step.
        draft_token_ids: Put to the target.
        num_judged: Draft tokens whose fate was decided.
        num_accepted: Draft tokens kept.
        num_emitted: Tokens gained.
        mode: Whether speculation was on, off or paused.
        ms: How long the step took.
        end_ms: When it ended, from the start of the run.
    """

    step: int
    draft_token_ids: tuple[int, ...]
    num_judged: int
    num_accepted: int
    num_emitted: int
    mode: str
    ms: float
    end_ms: float


@dataclass(slots=True)
class TraceAnswer:
    """One answer of a run.

    Attributes:
        index: Number of its prompt, from 0.
        tokens: In order.
        steps: Those in which it decoded.
    """

    index: int
    tokens: list[TraceToken] = field(default_factory=list)
    steps: list[TraceStep] = field(default_factory=list)

    @property
    def stats(self) -> RequestStats:
        """Its figures, by the definitions of the report."""
        recorder = StatsRecorder(0)
        for step in self.steps:
            recorder.record_pass(
                num_judged=step.num_judged,
                num_accepted=step.num_accepted,
                num_emitted=step.num_emitted,
            )
            recorder.num_paused_steps += step.mode == "paused"
        recorder.num_output_tokens = len(self.tokens)
        decode_ms = sum(step.ms for step in self.steps)
        return recorder.snapshot(queue_s=0.0, prefill_s=0.0, decode_s=decode_ms / 1e3)


@dataclass(slots=True)
class Trace:
    """A run.

    Attributes:
        start: What was known before the first token.
        answers: In the order of the prompts.
        texts: Texts of token ids, as far as they were emitted; rejected ones may be unknown.
        is_complete: Whether the run came to its end.
    """

    start: dict[str, Any]
    answers: list[TraceAnswer]
    texts: dict[int, str]
    is_complete: bool

    def text_of(self, token_id: int) -> str:
        """Text of a token, or its id where it was never emitted."""
        return self.texts.get(token_id) or f"#{token_id}"


def read_trace(lines: Iterable[str], name: str) -> Trace:
    """Read the records of `--trace` or `--output-format jsonl`.

    Args:
        lines: One record each.
        name: Of the file, for messages.

    Raises:
        UsageError: They are no trace; the message names the line.
    """
    trace = Trace({}, [], {}, is_complete=False)
    clock_ms, last_step = 0.0, -1
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            kind = record["event"]
            if kind == "start":
                trace.start = record
            elif kind == "token":
                _add_token(trace, record)
            elif kind == "step":
                ms = sum(float(record[name]) for name in _TIMES)
                if record["step"] != last_step:
                    last_step, clock_ms = int(record["step"]), clock_ms + ms
                _add_step(trace, record, ms, clock_ms)
            elif kind == "end":
                trace.is_complete = True
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"{name}, line {number} is no record of a trace: {error}.",
                hint="spec-cli generate --trace FILE writes one",
            ) from error
    if not trace.start:
        raise UsageError(f"{name} is no trace: it has no start record.")
    return trace


def _answer(trace: Trace, index: int) -> TraceAnswer:
    if not 0 <= index < max(1, int(trace.start["num_prompts"])):
        raise ValueError(f"there is no prompt {index}")
    while len(trace.answers) <= index:
        trace.answers.append(TraceAnswer(len(trace.answers)))
    return trace.answers[index]


def _add_token(trace: Trace, record: dict[str, Any]) -> None:
    source, position = record["source"], record["pos"]
    if source not in _SOURCES or not isinstance(position, int | None):
        raise ValueError("source or pos")
    token = TraceToken(
        int(record["id"]), str(record["text"]), source, position, int(record["step"])
    )
    if token.text:
        trace.texts.setdefault(token.token_id, token.text)
    _answer(trace, record["index"]).tokens.append(token)


def _add_step(trace: Trace, record: dict[str, Any], ms: float, end_ms: float) -> None:
    if record["index"] is None:
        return  # prompts alone
    step = TraceStep(
        step=int(record["step"]),
        draft_token_ids=tuple(int(each) for each in record["draft_token_ids"]),
        num_judged=int(record["judged"]),
        num_accepted=int(record["accepted"]),
        num_emitted=int(record["emitted"]),
        mode=str(record["mode"]),
        ms=ms,
        end_ms=end_ms,
    )
    if not 0 <= step.num_accepted <= step.num_judged <= len(step.draft_token_ids):
        raise ValueError("accepted, judged and drafted contradict each other")
    _answer(trace, record["index"]).steps.append(step)
