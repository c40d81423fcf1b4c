"""Limits on latency that a request must keep to count as served well."""

import math
from dataclasses import dataclass

from spec_cli.bench.timeline import Timeline
from spec_cli.core.errors import UsageError

_QUANTITIES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Limits in milliseconds, by `ttft`, `tpot` and `e2e`; none is kept by all that complete."""

    limits_ms: dict[str, float]

    def is_met(self, timeline: Timeline) -> bool:
        """Whether a request completed within every limit."""
        if not timeline.is_complete:
            return False
        found = {
            "ttft": timeline.time_to_first_token_s,
            "tpot": timeline.time_per_output_token_s,
            "e2e": timeline.end_to_end_s,
        }
        return all((found[name] or 0.0) * 1e3 <= limit for name, limit in self.limits_ms.items())


def parse_slo(text: str | None) -> ServiceLevel:
    """Limits such as `ttft:500,tpot:100`.

    Raises:
        UsageError: A name is unknown or a limit no positive number.
    """
    limits: dict[str, float] = {}
    for part in (text or "").replace(" ", ",").split(","):
        if not part:
            continue
        name, _, value = part.partition(":")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if name not in _QUANTITIES or not 0.0 < limit < math.inf:
            raise UsageError(
                f"slo takes limits in milliseconds for {', '.join(_QUANTITIES)}; got {part!r}.",
                hint="--slo ttft:500,tpot:100",
            )
        limits[name] = limit
    return ServiceLevel(limits)
