"""Runs an engine to its end and keeps what it said, checking its invariants at every step."""

from dataclasses import dataclass, field
from typing import Any

from spec_cli.core.events import (
    EmittedToken,
    Event,
    RequestFinished,
    RequestStarted,
    StepFinished,
    TokensEmitted,
)
from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request
from spec_cli.core.stats import RequestStats
from spec_cli.engine.engine import Engine
from spec_cli.engine.parts import EngineParts
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.policy.base import FixedPolicy
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.hybrid import HybridProposer, Prices
from spec_cli.proposers.ngram import NgramProposer
from spec_cli.proposers.suffix import SuffixProposer
from tests import tiny
from tests.fakes import FakeClock, NoStops

PLENTY = 10**9
DRAFTS = ("ngram", "suffix", "hybrid", "random", "itself", "noisy")


@dataclass
class Answer:
    """What came of one request."""

    tokens: list[EmittedToken] = field(default_factory=list)
    started: RequestStarted | None = None
    finished: RequestFinished | None = None

    @property
    def token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]

    @property
    def stats(self) -> RequestStats:
        assert self.finished is not None
        return self.finished.stats

    @property
    def reason(self) -> str:
        assert self.finished is not None
        return self.finished.reason


class Driver:
    """An engine and the answers so far."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: dict[str, Answer] = {}
        self.steps: list[StepFinished] = []
        self.events: list[Event] = []

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.answers[request.request_id] = Answer()
            self.engine.add(request)

    def abort(self, request_id: str) -> None:
        self._read(self.engine.abort(request_id))

    def step(self) -> list[Event]:
        events = self.engine.step()
        self._read(events)
        self._check_rows()
        return events

    def run(self, max_steps: int = 100_000) -> dict[str, Answer]:
        """Step until nothing is left to do."""
        for _ in range(max_steps):
            if not self.engine.has_work:
                return self.answers
            self.step()
        raise AssertionError(f"still at work after {max_steps} steps")

    def _read(self, events: list[Event]) -> None:
        self.events += events
        for event in events:
            if isinstance(event, StepFinished):
                self.steps.append(event)
                for row in event.rows:  # invariant 3
                    assert 1 <= row.num_emitted <= len(row.draft_token_ids) + 1
            elif isinstance(event, TokensEmitted):
                self.answers[event.request_id].tokens += event.tokens
            elif isinstance(event, RequestStarted):
                self.answers[event.request_id].started = event
            else:
                assert self.answers[event.request_id].finished is None
                self.answers[event.request_id].finished = event

    def _check_rows(self) -> None:
        for active in self.engine._scheduler.running:
            sequence, held = active.sequence, active.row.token_ids
            emitted = self.answers[sequence.request_id].token_ids
            assert sequence.output_token_ids == emitted  # invariant 1
            assert len(held) <= len(sequence.token_ids) - 1  # invariant 2
            assert held == sequence.token_ids[: len(held)]


def request(
    request_id: str,
    prompt: tuple[int, ...],
    max_tokens: int = 16,
    *,
    seed: int = 0,
    end: tuple[int, ...] = (),
    **params: Any,
) -> Request:
    """A request; greedy unless told otherwise."""
    params.setdefault("temperature", 0)
    sampling = SamplingParams(max_tokens=max_tokens, seed=seed, **params)
    return Request(request_id, prompt, sampling, seed, frozenset(end))


def drive(target: Any, proposer: Any = None, k: int = 0, **options: Any) -> Driver:
    """An engine with a fixed draft length.

    Args:
        target: A runner.
        proposer: Who guesses, or None.
        k: Draft tokens per row and step.
        options: Of `EngineParts` (policy, stop, budget, clock) and of `Engine`.
    """
    parts = EngineParts(
        target=target,
        proposer=proposer,
        policy=options.pop("policy", None) or FixedPolicy(k),
        stop=options.pop("stop", None) or NoStops(),
        budget=options.pop("budget", None) or MemoryBudget(PLENTY),
        clock=options.pop("clock", None) or FakeClock(),
    )
    return Driver(Engine(parts, **options))


def drive_tiny(family: str, draft: str | None, k: int, **options: Any) -> Driver:
    """An engine on a tiny model.

    Args:
        family: One of `tiny.FAMILIES`.
        draft: None, `ngram`, `suffix`, or a kind of draft model (see `tiny.slotted`);
            `hybrid` is `suffix` with `noisy`.
        k: Draft tokens per row and step.
        options: As in `drive`; `p_min` goes to the draft model.
    """
    budget = options.setdefault("budget", MemoryBudget(PLENTY))
    p_min = options.pop("p_min", 0.0)
    target = ModelRunner(tiny.slotted(family), context_length=tiny.CONTEXT, budget=budget)
    proposer: Any = None
    verify_mode = options.get("verify_mode", "coupled")
    is_isolated = verify_mode == "rejection"
    if draft == "ngram":
        proposer = NgramProposer()
    elif draft == "suffix":
        proposer = SuffixProposer(is_isolated=is_isolated)
    elif draft:
        runner = ModelRunner(
            tiny.slotted(family, "noisy" if draft == "hybrid" else draft),
            context_length=tiny.CONTEXT,
            budget=budget,
            vocab_size=target.vocab_size,
        )
        proposer = DraftModelProposer(
            runner, verify=verify_mode, num_token_ids=target.vocab_size, p_min=p_min
        )
    if draft == "hybrid":
        lookup = SuffixProposer(is_isolated=is_isolated)
        prices = Prices(draft_pass=0.2, verified_token=0.04)
        proposer = HybridProposer(lookup, proposer, lambda _: prices, is_isolated=is_isolated)
    return drive(target, proposer, k, **options)
