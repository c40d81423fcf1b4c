"""Counts of speculation summed over requests, with the figures that a request has too."""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from spec_cli.core.events import StepFinished
from spec_cli.core.stats import RequestStats


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over requests; every rate is a ratio of sums, never a mean of rates.

    Attributes:
        num_requests: How many.
        num_output_tokens: Tokens generated.
        num_target_passes: Target forwards in which a row decoded, summed over rows.
        num_spec_steps: Those that judged at least one draft token.
        num_draft_tokens: Draft tokens judged.
        num_accepted_draft_tokens: Draft tokens kept.
        num_paused_steps: Row passes in which the policy had paused drafting.
        drafted_per_position: Spec steps whose draft had more than i tokens.
        acceptance_histogram: Entry j counts the spec steps with exactly j accepted.
    """

    num_requests: int
    num_output_tokens: int
    num_target_passes: int
    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    num_paused_steps: int
    drafted_per_position: tuple[int, ...]
    acceptance_histogram: tuple[int, ...]

    @classmethod
    def of(cls, stats: list[RequestStats]) -> "Totals":
        """The sums."""
        return cls(
            num_requests=len(stats),
            num_output_tokens=sum(each.num_output_tokens for each in stats),
            num_target_passes=sum(each.num_target_passes for each in stats),
            num_spec_steps=sum(each.num_spec_steps for each in stats),
            num_draft_tokens=sum(each.num_draft_tokens for each in stats),
            num_accepted_draft_tokens=sum(each.num_accepted_draft_tokens for each in stats),
            num_paused_steps=sum(each.num_paused_steps for each in stats),
            drafted_per_position=_add([each.drafted_per_position for each in stats]),
            acceptance_histogram=_add([each.acceptance_histogram for each in stats]),
        )

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / judged draft tokens; None without drafts."""
        return _ratio(self.num_accepted_draft_tokens, self.num_draft_tokens)

    @property
    def tokens_per_target_pass(self) -> float | None:
        """Tokens emitted in decode / target forwards of the rows in decode.

        The first token of each request comes from its prefill.
        """
        started = max(0, self.num_output_tokens - self.num_requests)
        return _ratio(started, self.num_target_passes)

    def record(self) -> dict[str, Any]:
        """The counts and figures under the names of the JSON report."""
        accepted = self.num_accepted_draft_tokens
        steps = self.num_spec_steps
        survivors = [
            sum(self.acceptance_histogram[i + 1 :]) for i in range(len(self.drafted_per_position))
        ]
        return {
            "num_requests": self.num_requests,
            "num_output_tokens": self.num_output_tokens,
            "num_target_passes": self.num_target_passes,
            "num_spec_steps": steps,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_draft_tokens": accepted,
            "paused_steps": self.num_paused_steps,
            "draft_acceptance_rate": self.draft_acceptance_rate,
            "mean_acceptance_length": 1.0 + accepted / steps if steps else None,
            "tokens_per_target_pass": self.tokens_per_target_pass,
            "draft_share": _ratio(accepted, self.num_output_tokens),
            "acceptance_rate_per_position": [
                kept / drafted
                for kept, drafted in zip(survivors, self.drafted_per_position, strict=True)
            ],
            "acceptance_histogram": list(self.acceptance_histogram),
        }


def mean_draft_length(steps: list[StepFinished]) -> float | None:
    """Draft tokens put to the target per row and decoding step, draft-free ones included."""
    rows = [row for step in steps for row in step.rows]
    return _ratio(sum(len(row.draft_token_ids) for row in rows), len(rows))


def paused_share(steps: list[StepFinished]) -> float | None:
    """Part of the decoding steps in which the policy had paused drafting."""
    decoding = [step for step in steps if step.rows]
    return _ratio(sum(step.state.mode == "paused" for step in decoding), len(decoding))


def time_split_ms(steps: list[StepFinished]) -> dict[str, float]:
    """Where the time of the steps went."""
    return {
        "draft": 1e3 * sum(step.times.propose_s for step in steps),
        "verify": 1e3 * sum(step.times.forward_s for step in steps),
        "sample": 1e3 * sum(step.times.verify_s for step in steps),
        "other": 1e3 * sum(step.times.other_s for step in steps),
    }


def _add(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*rows, fillvalue=0)))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
