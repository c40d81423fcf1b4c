"""When requests arrive: fixed before anything runs, and the same for every arm.

Arrivals are a Poisson process, the usual model of many independent users (open loop: nobody waits
for an answer to someone else's request before sending their own).
"""

import math
import random
from dataclasses import dataclass

from spec_cli.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class ArrivalPlan:
    """Absolute send times, in seconds after the start.

    Attributes:
        rate: Requests per second asked for; `inf` sends all at once.
        times_s: One per request, ascending.
    """

    rate: float
    times_s: tuple[float, ...]

    @property
    def planned_rate(self) -> float | None:
        """Requests per second of this very draw, or None where it has no length.

        A short Poisson plan may be off the rate asked for by `1 / sqrt(n)`; what is achieved is
        held against this figure, so that chance is not taken for saturation.
        """
        return mean_rate(list(self.times_s))


def mean_rate(times_s: list[float]) -> float | None:
    """Events per second between the first and the last; None where there is no time between."""
    if len(times_s) < 2 or max(times_s) <= min(times_s):
        return None
    return (len(times_s) - 1) / (max(times_s) - min(times_s))


def check_rate(rate: float) -> float:
    """The rate, if it can be sent at.

    Raises:
        UsageError: It is zero, negative or no number.
    """
    if math.isnan(rate) or rate <= 0.0:
        raise UsageError(f"rate must be above 0, or inf; got {rate:g}.", hint="--rate 0.5,1,2,inf")
    return rate


def plan_arrivals(rate: float, num_requests: int, *, seed: int, horizon_s: float) -> ArrivalPlan:
    """Draw a plan.

    Args:
        rate: Mean requests per second, above 0; `inf` puts all at the start.
        num_requests: Most requests; at least 1.
        seed: The same seed gives the same plan. Plans of different rates are scaled copies of one
            draw, so that rates differ in speed and in nothing else.
        horizon_s: Requests that would come later than this are left out; one always comes.

    Raises:
        UsageError: The rate or the number is out of range.
    """
    check_rate(rate)
    if num_requests < 1:
        raise UsageError(f"num_requests must be at least 1, got {num_requests}.")
    if math.isinf(rate):
        return ArrivalPlan(rate, (0.0,) * num_requests)
    draw = random.Random(seed)
    times: list[float] = []
    now = 0.0
    for _ in range(num_requests):
        now += draw.expovariate(1.0) / rate
        if times and now > horizon_s:
            break
        times.append(now)
    return ArrivalPlan(rate, tuple(times))
