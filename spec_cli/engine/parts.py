"""What an engine is made of."""

from collections.abc import Callable
from dataclasses import dataclass

from spec_cli.core.sequence import StopChecker
from spec_cli.models.base import Runner
from spec_cli.models.budget import MemoryBudget
from spec_cli.policy.base import Policy
from spec_cli.proposers.base import Proposer


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an engine is made of.

    Attributes:
        target: The model whose distribution the output follows.
        proposer: Who guesses; None runs the target alone.
        policy: How much to guess.
        stop: Looks for stop strings.
        budget: Memory shared by the caches of target and proposer.
        clock: Seconds, monotonic.
    """

    target: Runner
    proposer: Proposer | None
    policy: Policy
    stop: StopChecker
    budget: MemoryBudget
    clock: Callable[[], float]


@dataclass(slots=True)
class StepTimer:
    """Splits a step's time at the calls of `lap`."""

    clock: Callable[[], float]
    started_s: float = 0.0
    last_s: float = 0.0

    def __post_init__(self) -> None:
        self.started_s = self.last_s = self.clock()

    def lap(self) -> float:
        """Seconds since the last call."""
        now = self.clock()
        seconds, self.last_s = now - self.last_s, now
        return seconds
