"""A world without a model: known costs, known acceptance, and a clock that is a sum.

Goodput is computed from expectations, the true survival and the true seconds of what a policy
chose, never from the sampled outcome: chance enters only through what the policy gets to see.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch

from spec_cli.core.events import RowStep, SpeculationState, StepFinished, StepTimes
from spec_cli.core.proposal import DraftSource
from spec_cli.engine.calibration import Calibration
from spec_cli.engine.calibration_file import CalibrationFile, CalibrationKey
from spec_cli.models.base import Row, RowInput
from spec_cli.policy.base import Policy, RowOutlook
from spec_cli.policy.cost import CostModel
from spec_cli.policy.hindsight import verdicts
from spec_cli.proposers.draft_model import MAX_HINDSIGHT
from tests.fakes import FakeRunner

MAX_DRAFT_TOKENS = 8
_ON = SpeculationState("on")


@dataclass(frozen=True, slots=True)
class Costs:
    """True seconds: monotone in rows, tokens and context, with a knee and jumps.

    Attributes:
        step_s: Of a target step of one row and one token.
        token, row, context: What one more costs, in target steps.
        knee: Tokens from which each costs `steep` more.
        jump_every, jump: A kernel change each so many tokens, and what it adds.
        draft: One pass of the draft model for one row; `draft_row`, `lag`: for a further row, for
            a token to catch up on; `lookup`: guessing for a row from its text.
        noise: Standard deviation of a measured time; `outliers`: how often one is far too long.
    """

    step_s: float
    token: float
    row: float
    context: float
    knee: int
    steep: float
    jump_every: int
    jump: float
    draft: float
    draft_row: float
    lag: float
    lookup: float
    noise: float = 0.04
    outliers: float = 0.02

    def target(self, rows: int, tokens: int, context: int) -> float:
        """Seconds of a target step."""
        units = 1.0 + self.token * (tokens - 1) + self.row * (rows - 1) + self.context * context
        units += self.steep * max(0, tokens - self.knee)
        units += self.jump * ((tokens - 1) // self.jump_every)
        return self.step_s * units

    def drafting(self, lengths: Iterable[int]) -> float:
        """Seconds of the draft model's passes; a pass is never more than half a target step."""
        ordered = sorted(lengths)
        total = 0.0
        done = 0
        for below, length in enumerate(ordered):
            rows = len(ordered) - below
            total += (length - done) * min(0.5, self.draft + self.draft_row * (rows - 1))
            done = length
        return self.step_s * total

    def measured(self, seconds: float, rng: Random) -> float:
        """As a clock would read it: jitter, and now and then something else ran."""
        if self.noise:
            seconds *= max(0.5, 1.0 + rng.gauss(0.0, self.noise))
            if rng.random() < self.outliers:
                seconds *= rng.uniform(1.5, 3.0)
        return seconds


@dataclass(frozen=True, slots=True)
class Text:
    """How predictable a row's text is.

    Attributes:
        hazards: Chance that each draft position is accepted, given those before it; by match
            state, the only one being 0 for a draft model.
        matches: Lookup: (probability, match length) by state; the rest of the time no match.
    """

    hazards: tuple[tuple[float, ...], ...]
    matches: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    """Everything true about a run."""

    source: DraftSource
    costs: Costs
    texts: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """One step as it offers itself: outlooks, and the true survival behind them."""

    rows: tuple[RowOutlook, ...]
    survival: tuple[tuple[float, ...], ...]


def random_costs(rng: Random) -> Costs:
    """A bounded monotone surface."""
    return Costs(
        step_s=rng.uniform(0.004, 0.08),
        token=10 ** rng.uniform(-2.5, -0.7),
        row=rng.uniform(0.0, 0.05),
        context=rng.uniform(0.0, 1e-5),
        knee=rng.randint(2, 40),
        steep=rng.choice((0.0, rng.uniform(0.0, 0.2))),
        jump_every=rng.choice((4, 8)),
        jump=rng.choice((0.0, rng.uniform(0.0, 0.25))),
        draft=10 ** rng.uniform(-2.0, -0.31),
        draft_row=rng.uniform(0.0, 0.02),
        lag=rng.uniform(0.0, 0.004),
        lookup=rng.uniform(0.0, 0.01),
    )


def random_text(rng: Random, source: DraftSource) -> Text:
    """Acceptance that falls, stays or rises along the draft."""

    def hazards(first: float) -> tuple[float, ...]:
        slope = rng.uniform(-0.04, 0.03)
        return tuple(min(0.97, max(0.02, first + slope * i)) for i in range(MAX_DRAFT_TOKENS))

    if source == "draft":
        return Text((hazards(rng.uniform(0.05, 0.95)),))
    lengths = (1, 2, 5, 12)
    firsts = sorted(rng.uniform(0.05, 0.95) for _ in lengths)
    shares = [rng.uniform(0.05, 0.3) for _ in lengths]
    return Text(tuple(hazards(first) for first in firsts), tuple(zip(shares, lengths, strict=True)))


def random_world(seed: int) -> World:
    """Three in four with a draft model, one to eight rows, alike or each its own text."""
    rng = Random(seed)
    source: DraftSource = "draft" if rng.random() < 0.75 else "ngram"
    num_rows = rng.choice((1, 1, 1, 1, 2, 2, 3, 4, 8))
    costs = random_costs(rng)
    text = random_text(rng, source)
    alike = rng.random() < 0.5
    texts = tuple(text if alike else random_text(rng, source) for _ in range(num_rows))
    return World(source, costs, texts)


class Simulation:
    """Plays a world to one policy, or prices what another would have done.

    Which lookup matches turn up in step n is a function of the seed and n alone, so every policy
    meets the same situations.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.step = 0
        self._seed = seed
        self._rng = Random(seed + 7919)
        self._lags = [200] * len(world.texts)
        self._missed = [0] * len(world.texts)

    def change(self, world: World) -> None:
        """Go on with other texts, another number of rows or other costs."""
        kept = self._lags[: len(world.texts)]
        self._lags = kept + [200] * (len(world.texts) - len(kept))
        self._missed = (self._missed + [0] * len(world.texts))[: len(world.texts)]
        self.world = world

    def situation(self) -> Situation:
        """What the coming step offers."""
        is_draft = self.world.source == "draft"
        rng = self._rng if is_draft else Random(self._seed * 100_003 + self.step)
        rows: list[RowOutlook] = []
        survival: list[tuple[float, ...]] = []
        for index, text in enumerate(self.world.texts):
            state, match_length = self._match(text, rng)
            offered = MAX_DRAFT_TOKENS if state is not None else 0
            lag = self._lags[index] if is_draft else 0
            rows.append(
                RowOutlook(
                    f"r{index}", self.world.source, offered, 300 + 2 * self.step, match_length, lag
                )
            )
            survival.append(() if state is None else _survival(text.hazards[state]))
        return Situation(tuple(rows), tuple(survival))

    def _match(self, text: Text, rng: Random) -> tuple[int | None, int]:
        if self.world.source == "draft":
            return 0, 0
        draw = rng.random()
        for state, (share, match_length) in enumerate(text.matches):
            draw -= share
            if draw < 0.0:
                return state, match_length
        return None, 0

    def value(self, situation: Situation, lengths: tuple[int, ...]) -> tuple[float, float]:
        """Expected tokens and true seconds of a step with those draft lengths."""
        tokens = float(len(lengths))
        for length, survival in zip(lengths, situation.survival, strict=True):
            tokens += sum(survival[:length])
        return tokens, sum(self._seconds(situation, lengths))

    def _seconds(self, situation: Situation, lengths: tuple[int, ...]) -> tuple[float, float]:
        context = sum(row.context_length for row in situation.rows)
        rows = len(lengths)
        target = self.world.costs.target(rows, rows + sum(lengths), context)
        return target, self._guessing(lengths)

    def play(
        self, policy: Policy, situation: Situation, lengths: tuple[int, ...]
    ) -> tuple[float, float]:
        """Run one step, tell the policy, and return its expected tokens and true seconds."""
        rng = self._rng
        steps: list[RowStep] = []
        lag = 0
        self._tell_hindsight(policy, situation, lengths)
        for index, (row, length) in enumerate(zip(situation.rows, lengths, strict=True)):
            accepted = _sample(situation.survival[index], length, rng)
            steps.append(
                RowStep(
                    row.request_id, row.source, (0,) * length, accepted, accepted + 1, length,
                    row.context_length,
                )
            )  # fmt: skip
            if length and row.source == "draft":
                lag += max(0, self._lags[index] - 1)
            self._missed[index] = 0 if length else self._missed[index] + 1
            self._lags[index] = (
                (2 if accepted == length else 1) if length else (self._lags[index] + 1)
            )
            if not length and row.max_draft_tokens and row.source != "draft":
                guess = _sample(situation.survival[index], MAX_DRAFT_TOKENS, rng)
                policy.observe_shadow(
                    row.source, row.request_id, row.match_length,
                    min(guess + 1, MAX_DRAFT_TOKENS), guess,
                )  # fmt: skip
        target, drafting = self._seconds(situation, lengths)
        catch_up = self.world.costs.step_s * self.world.costs.lag * lag
        costs = self.world.costs
        times = StepTimes(
            costs.measured(drafting + catch_up, rng), costs.measured(target, rng), 0.0, 0.0
        )
        policy.observe(StepFinished(self.step, 0.0, tuple(steps), 0, times, _ON))
        self.step += 1
        tokens, seconds = self.value(situation, lengths)
        return tokens, seconds + catch_up

    def _tell_hindsight(
        self, policy: Policy, situation: Situation, lengths: tuple[int, ...]
    ) -> None:
        """What a draft model that catches up would have drafted of the tokens it missed."""
        left = MAX_HINDSIGHT
        for index, (row, length) in enumerate(zip(situation.rows, lengths, strict=True)):
            if row.source != "draft" or not length or row.num_lag_tokens <= 2:
                continue
            hazards = self.world.texts[index].hazards[0]
            marks: list[bool | None] = []
            position = 0
            for _ in range(min(self._missed[index], left)):
                is_drafted = position < MAX_DRAFT_TOKENS
                is_right = is_drafted and self._rng.random() < hazards[position]
                marks.append(is_right if is_drafted else None)
                position = position + 1 if is_right else 0
            left -= len(marks)
            for verdict in verdicts(marks, MAX_DRAFT_TOKENS):
                policy.observe_shadow("draft", row.request_id, 0, *verdict)

    def best(self, situation: Situation) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The lengths with the best goodput of the step, and the best of those that draft.

        For every cap on the draft length the tokens are taken in order of survival: exact, since
        with the cap given a step's seconds depend on how many there are (a draft model's pass
        costs a little more with each row, which moves nothing that a test could see).
        """
        rows = len(situation.rows)
        context = sum(row.context_length for row in situation.rows)
        costs = self.world.costs
        is_draft = self.world.source == "draft"
        none = (0,) * rows
        best, best_lengths = 0.0, none
        for cap in range(1, MAX_DRAFT_TOKENS + 1) if is_draft else (MAX_DRAFT_TOKENS,):
            order = sorted(
                (-s, i, r)
                for r, survival in enumerate(situation.survival)
                for i, s in enumerate(survival[:cap])
            )
            lengths = [0] * rows
            tokens = float(rows)
            for count, (minus_s, _, row) in enumerate(order, start=1):
                tokens -= minus_s
                lengths[row] += 1
                seconds = costs.target(rows, rows + count, context) + self._guessing(lengths)
                if tokens > best * seconds:
                    best, best_lengths = tokens / seconds, tuple(lengths)
        if best < rows / costs.target(rows, rows, context):
            return none, best_lengths
        return best_lengths, best_lengths

    def _guessing(self, lengths: Iterable[int]) -> float:
        """Seconds of whoever drafts, catch-up aside."""
        costs = self.world.costs
        if self.world.source == "draft":
            return costs.drafting(lengths)
        return costs.step_s * costs.lookup * sum(length > 0 for length in lengths)


@cache
def _survival(hazards: tuple[float, ...]) -> tuple[float, ...]:
    survived = 1.0
    result = []
    for hazard in hazards:
        survived *= hazard
        result.append(survived)
    return tuple(result)


def _sample(survival: tuple[float, ...], length: int, rng: Random) -> int:
    draw = rng.random()
    return sum(draw < s for s in survival[:length])


class _PricedRunner(FakeRunner):
    """A forward takes what the world says, as a clock would read it, and computes nothing."""

    def __init__(self, costs: Costs, *, is_draft: bool, rng: Random, clock: list[float]) -> None:
        super().__init__(vocab_size=8)
        self._costs = costs
        self._is_draft = is_draft
        self._rng = rng
        self._clock = clock

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        """Time passes."""
        rows, tokens = len(inputs), sum(len(item.token_ids) for item in inputs)
        if self._is_draft:
            seconds = self._costs.drafting([1] * rows)
            seconds += self._costs.step_s * self._costs.lag * (tokens - rows)
        else:
            seconds = self._costs.target(rows, tokens, 0)
        self._clock[0] += self._costs.measured(seconds, self._rng)
        return torch.empty(0, self.vocab_size)

    def truncate(self, row: Row, length: int) -> None:
        """Nothing is kept."""


def calibrated(world: World, seed: int) -> CostModel:
    """What two seconds of timing tell of a world, as before a first answer."""
    rng, clock = Random(seed + 99), [0.0]
    target = _PricedRunner(world.costs, is_draft=False, rng=rng, clock=clock)
    draft = _PricedRunner(world.costs, is_draft=True, rng=rng, clock=clock)
    cost = CostModel()
    with TemporaryDirectory() as folder:
        calibration = Calibration(
            target,
            draft if world.source == "draft" else None,
            file=CalibrationFile(CalibrationKey((), is_exact=False, versions=()), Path(folder)),
            clock=lambda: clock[0],
            first_forward_s=2.0 * world.costs.step_s,
        )
        cost.calibrate(calibration.measure(len(world.texts)))
    return cost
