"""What lookup would have proposed while nothing was drafted reaches the policy."""

from spec_cli.core.events import SpeculationState, StepFinished
from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request
from spec_cli.engine.engine import Engine
from spec_cli.engine.parts import EngineParts
from spec_cli.models.budget import MemoryBudget
from spec_cli.policy.base import RowOutlook
from spec_cli.proposers.ngram import NgramProposer
from tests.fakes import FakeClock, NoStops, ScriptedProposer, ScriptRunner


class Recorder:
    """A policy that drafts in one step at most and writes down what it is told of guesses."""

    state = SpeculationState("paused", "for the test")

    def __init__(self, drafts_at: int | None = None) -> None:
        self.shadows: list[tuple[str, int, int, int]] = []
        self._drafts_at = drafts_at
        self._num_steps = 0

    def choose(self, rows: tuple[RowOutlook, ...], num_prefill_tokens: int) -> tuple[int, ...]:
        """A draft of one token, when it is time for it."""
        del num_prefill_tokens
        self._num_steps += 1
        return (int(self._num_steps == self._drafts_at),) * len(rows)

    def observe(self, step: StepFinished) -> None:
        """Nothing is drafted."""

    def observe_shadow(self, source, request_id, match_length, num_judged, num_accepted) -> None:
        """Write it down."""
        del request_id
        self.shadows.append((source, match_length, num_judged, num_accepted))

    def forget(self, request_id: str) -> None:
        """Nothing to forget."""


def run(script: list[int], proposer, *, drafts_at: int | None = None) -> Recorder:
    """Run one request to its end."""
    policy = Recorder(drafts_at)
    target = ScriptRunner(script, num_prompt=1)
    engine = Engine(
        EngineParts(target, proposer, policy, NoStops(), MemoryBudget(1 << 20), FakeClock())
    )
    params = SamplingParams(temperature=0.0, max_tokens=len(script))
    engine.add(Request("a", (1,), params, 0, frozenset()))
    while engine.has_work:
        engine.step()
    return policy


def test_right_and_wrong_guesses_are_told():
    """A repeated text is guessed in full, a broken repetition up to its first wrong token."""
    policy = run([5, 6, 7, 8, 5, 6, 7, 8, 5, 9, 9, 9], NgramProposer())
    assert ("ngram", 1, 4, 4) in policy.shadows
    assert any(judged == accepted + 1 for _, _, judged, accepted in policy.shadows)


def test_a_draft_model_is_never_asked_in_the_shadow():
    """Only lookups are free: a draft model is not run for a guess nobody wants."""
    asked: list[int] = []

    def guess(token_ids: list[int], num_draft_tokens: int) -> list[int]:
        asked.append(num_draft_tokens)
        return token_ids[:num_draft_tokens]

    policy = run([5, 6, 5, 6, 5], ScriptedProposer(guess))
    assert not asked
    assert not policy.shadows


def test_what_a_draft_model_tells_when_it_is_asked_again_reaches_the_policy():
    """Its hindsight, cut into drafts as long as it would offer, and once only."""
    hindsight = (True, True, False, None, False, True)
    proposer = ScriptedProposer(lambda tokens, count: [0], hindsight=lambda tokens: hindsight)
    policy = run([5, 6, 7, 8, 9, 5, 6, 7, 8], proposer, drafts_at=4)
    assert policy.shadows == [("draft", 0, 3, 2), ("draft", 0, 1, 0), ("draft", 0, 1, 1)]
