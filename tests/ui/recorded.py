"""Recorded event lists: what the screens of the tests are made of."""

from collections.abc import Iterator

from spec_cli.core.events import (
    EmittedToken,
    Event,
    RequestFinished,
    RequestStarted,
    RowStep,
    SpeculationState,
    StepFinished,
    StepTimes,
    TextDelta,
    TokensEmitted,
)
from spec_cli.core.proposal import DraftSource
from spec_cli.core.stats import StatsRecorder

ON = SpeculationState("on")
CODE = (
    "def", " quick", "sort", "(a", "):", "\n", "    if", " len", "(a", ")", " <=", " 1", ":", "\n",
    "        return", " a", "\n", "    pivot", " =", " a", "[", "len", "(a", ")", " //", " 2", "]",
    "\n", "    left", " =", " [x", " for", " x", " in", " a", " if", " x", " <", " pivot", "]",
    "\n",
)  # fmt: skip
PATTERN = ((4, 4), (4, 2), (4, 4), (4, 0), (0, 0), (4, 3), (4, 4), (0, 0), (4, 1), (4, 4), (4, 3))


def run(
    pieces: tuple[str, ...] = CODE,
    pattern: tuple[tuple[int, int], ...] = PATTERN,
    *,
    request_id: str = "request-0",
    index: int = 0,
    state: SpeculationState = ON,
    source: DraftSource = "draft",
    step_s: float = 0.06,
) -> Iterator[Event | TextDelta]:
    """The events of one request whose tokens are the pieces.

    Args:
        pieces: Text of each token; an empty one is completed by a later one.
        pattern: Draft tokens and accepted ones, step by step, over and over.
    """
    recorder = StatsRecorder(36, 0)
    now = 1.0
    yield RequestStarted(request_id, now, 36, 0)
    now += 0.2
    waiting: list[EmittedToken] = []
    held = 0

    def emit(tokens: tuple[EmittedToken, ...], step: int) -> Iterator[Event | TextDelta]:
        nonlocal held
        yield TokensEmitted(request_id, step, now, tokens)
        for token in tokens:
            held += 1
            text = pieces[token.token_id]
            if text:
                ids = tuple(range(token.token_id - held + 1, token.token_id + 1))
                held = 0
                yield TextDelta(
                    request_id, index, step, now, text, ids, token.source, token.draft_position
                )

    own = EmittedToken(0, "target", None)
    recorder.num_output_tokens = 1
    yield from emit((own,), 0)
    yield StepFinished(0, now, (), 36, StepTimes(0.0, 0.2, 0.0, 0.0), state)
    first, at, step = now, 1, 1
    while at < len(pieces):
        drafted, accepted = pattern[(step - 1) % len(pattern)]
        accepted = min(accepted, len(pieces) - at - 1)
        drafted = drafted if accepted < len(pieces) - at - 1 else min(drafted, accepted)
        waiting = [EmittedToken(at + i, source, i) for i in range(accepted)]
        waiting.append(EmittedToken(at + accepted, "target", None))
        now += step_s
        row = RowStep(
            request_id,
            source,
            _draft(at, drafted, accepted, len(pieces)),
            accepted,
            len(waiting),
            drafted,
            36 + at,
        )
        recorder.record_pass(num_judged=drafted, num_accepted=accepted, num_emitted=len(waiting))
        if not drafted:
            recorder.record_draft_free_step(0.03)
        yield from emit(tuple(waiting), step)
        at += len(waiting)
        if at >= len(pieces):
            stats = recorder.snapshot(queue_s=0.0, prefill_s=0.2, decode_s=now - first)
            yield RequestFinished(request_id, now, "stop", stats)
        seconds = 0.03 if not drafted else step_s
        yield StepFinished(step, now, (row,), 0, StepTimes(0.01, seconds - 0.01, 0.0, 0.0), state)
        step += 1


def _draft(at: int, drafted: int, accepted: int, num_pieces: int) -> tuple[int, ...]:
    """Draft tokens: the right ones, then some that are not."""
    wrong = ((at + accepted + 7 * i + 3) % num_pieces for i in range(drafted - accepted))
    return (*range(at, at + accepted), *wrong)


def interleaved(*runs: Iterator[Event | TextDelta]) -> Iterator[Event | TextDelta]:
    """Events of several requests, by turns."""
    running = list(runs)
    while running:
        for each in list(running):
            for event in each:
                yield event
                if isinstance(event, StepFinished):
                    break
            else:
                running.remove(each)
