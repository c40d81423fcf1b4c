"""What a step takes: seconds of a target step and of drafting, learnt from measured steps.

Each is a `TimeSurface` (surface.py): TurboSpec's linear model (Liu et al. 2024, arXiv 2406.14066,
section 4) under a table of measured cells.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from spec_cli.core.events import StepFinished
from spec_cli.policy.surface import CostPrior, TimeSurface

_OPTIMISM = 0.45
_UNIT = (1.0, 1.0, 1.0, 0.0)
_DRAFT_LINE_WEIGHT = 6.0
"""Passes are alike, so the line says more of them than of the target's kernels."""
_SMALL_LAG = 3
"""Tokens a row may lag for its step still to tell what a pass costs."""
_TARGET_PRIOR = CostPrior(0.02, 0.0008, 0.0002)
_DRAFT_PRIOR = CostPrior(0.002, 0.0001, 0.0001)
_LOOKUP_ROW_S = 5e-5
_LOOKUP_RATE = 0.2


@dataclass(frozen=True, slots=True)
class CostSample:
    """One measured forward.

    Attributes:
        kind: Whose forward: the target's whole step, or one pass of the draft model.
        num_rows: Rows in it.
        num_tokens: Packed tokens of all rows.
        context_length: Committed tokens, summed over the rows.
        seconds: What it took.
    """

    kind: Literal["target", "draft"]
    num_rows: int
    num_tokens: int
    context_length: int
    seconds: float


class CostModel:
    """Seconds of target steps and of drafting.

    Args:
        target: Coefficients to start from: of a target step.
        draft: ... of one pass of the draft model; without it, a tenth of the target's, whose
            measured times then set the scale.
        lookup_row_s: Seconds of guessing by lookup for one row.
    """

    def __init__(
        self,
        target: CostPrior = _TARGET_PRIOR,
        draft: CostPrior | None = None,
        lookup_row_s: float = _LOOKUP_ROW_S,
    ) -> None:
        self.target = TimeSurface(target, monotone=True)
        self._is_draft_relative = draft is None
        draft = draft or _DRAFT_PRIOR
        self.draft = TimeSurface(draft, line_weight=_DRAFT_LINE_WEIGHT)
        self.lookup_row_s = lookup_row_s
        self.catch_up_s = draft.per_token_s
        """Seconds for each token that a draft model must catch up on."""
        self._num_catch_ups = 0

    def calibrate(self, samples: Iterable[CostSample]) -> None:
        """Learn forwards that were measured on purpose, or read from a cache."""
        for sample in samples:
            tokens, rows = sample.num_tokens, sample.num_rows
            features = (1.0, float(tokens), float(rows), float(sample.context_length))
            if sample.kind == "target":
                self.target.observe(features, rows, tokens, sample.seconds)
            else:
                lag = tokens - rows
                self.observe_draft(rows, 1, rows, sample.context_length, lag, sample.seconds)

    def observe_target(self, rows: int, tokens: int, context: int, seconds: float) -> None:
        """Learn a target step of `tokens` packed tokens, prefill included."""
        features = (1.0, float(tokens), float(rows), float(context))
        before = self.target.seconds(_UNIT, 1, 1)
        self.target.observe(features, rows, tokens, seconds)
        if self._is_draft_relative and not self.draft.is_measured:
            scale = self.target.seconds(_UNIT, 1, 1) / before
            self.draft.scale_prior(_UNIT, self.draft.seconds(_UNIT, 1, 1) * scale)
            self.catch_up_s *= scale

    def observe_step(self, step: StepFinished, lags: Mapping[str, int]) -> None:
        """Split a step's seconds between the target and whoever drafted, and learn both.

        Args:
            step: The finished step.
            lags: By request, the tokens its draft model had to catch up on before it.
        """
        tokens = step.num_prefill_tokens
        context = lookup_rows = 0
        draft_rows = passes = lag = row_passes = draft_context = 0
        for row in step.rows:
            length = len(row.draft_token_ids)
            tokens += 1 + length
            context += row.context_length
            if not length:
                continue
            if row.source != "draft":
                lookup_rows += 1
                continue
            draft_rows += 1
            passes = max(passes, length)
            row_passes += length
            lag += max(0, lags.get(row.request_id, 0) - 1)
            draft_context += length * row.context_length
        target = step.times.forward_s + step.times.verify_s + step.times.other_s
        if not draft_rows and not lookup_rows:
            target += step.times.propose_s
        self.observe_target(len(step.rows), tokens, context, target)
        if draft_rows:
            drafting = step.times.propose_s - self.lookup_seconds(lookup_rows)
            self.observe_draft(draft_rows, passes, row_passes, draft_context, lag, drafting)
        elif lookup_rows:
            self.observe_lookup(lookup_rows, step.times.propose_s)

    def target_seconds(
        self, rows: int, first: int, count: int, context: int
    ) -> tuple[list[float], list[float]]:
        """Seconds of target steps of first, ..., first + count - 1 tokens, and hopeful ones.

        The hopeful time of a size hardly measured lies between the expected one and that of the
        nearest measured smaller size, which a monotone cost cannot undercut. It is what makes
        such a size worth one try (optimism under uncertainty; Auer et al. 2002, section 2).
        """
        surface = self.target
        fixed, per_token, per_row, per_context = surface.coefficients
        base = fixed + per_row * rows + per_context * context
        points = surface.curve(rows)
        index = 0
        left, left_ratio = 0.0, 1.0
        right, right_ratio, tried = points[0] if points else (0.0, 1.0, 0.0)
        slope = longest = 0.0
        known = 0.0  # expected seconds at the last measured size passed
        expected: list[float] = []
        hopeful: list[float] = []
        for tokens in range(first, first + count):
            while index < len(points) and right < tokens - 0.5:
                known = (base + per_token * right) * right_ratio
                left, left_ratio, slope = right, right_ratio, 0.0
                index += 1
                if index < len(points):
                    right, right_ratio, tried = points[index]
                    slope = (right_ratio - left_ratio) / (right - left)
                else:
                    tried = 0.0
            if index and right > tokens:
                ratio = left_ratio + slope * (tokens - left)
            else:
                ratio = right_ratio
            seconds = (base + per_token * tokens) * ratio
            if seconds > longest:
                longest = seconds
            expected.append(longest)
            if 0.0 < known < longest:
                spread = _OPTIMISM * (longest - known)
                if tried > 1.0 and right - tokens <= 0.1 * tokens:
                    spread /= sqrt(tried)
                hopeful.append(longest - spread)
            else:
                hopeful.append(longest)
        return expected, hopeful

    def draft_seconds(self, rows: int, passes: int, row_passes: int, context: int) -> float:
        """Seconds of the draft model's part of a step, catch-up aside.

        Args:
            rows: Rows it drafts for.
            passes: Its forwards: the longest draft.
            row_passes: Draft tokens of all rows.
            context: Committed tokens of the rows, summed over its passes.
        """
        tokens = float(row_passes)
        return self.draft.seconds((float(passes), tokens, tokens, float(context)), rows, passes)

    def observe_draft(
        self, rows: int, passes: int, row_passes: int, context: int, lag: int, seconds: float
    ) -> None:
        """Learn what drafting took; `lag` tokens beyond one a row were caught up on."""
        tokens = float(row_passes)
        features = (float(passes), tokens, tokens, float(context))
        if lag <= _SMALL_LAG * rows:
            self.draft.observe(features, rows, passes, seconds - lag * self.catch_up_s)
            return
        if not self.draft.is_measured:
            # Nothing tells passes from catch-up yet: split as the priors stand to each other.
            expected = self.draft_seconds(rows, passes, row_passes, context)
            scale = seconds / (expected + lag * self.catch_up_s)
            self.draft.scale_prior(features, expected * scale)
            self.catch_up_s *= scale
            return
        self._num_catch_ups += 1
        excess = seconds - self.draft_seconds(rows, passes, row_passes, context)
        rate = max(0.1, 1.0 / (1.0 + self._num_catch_ups))
        limit = 4.0 * self.catch_up_s + 1e-9
        self.catch_up_s += rate * (min(limit, max(0.0, excess / lag)) - self.catch_up_s)

    def lookup_seconds(self, rows: int) -> float:
        """Seconds of guessing by lookup for `rows` rows."""
        return self.lookup_row_s * rows

    def observe_lookup(self, rows: int, seconds: float) -> None:
        """Learn what lookup took; a pause of the interpreter may at most double the estimate."""
        known = self.lookup_row_s
        self.lookup_row_s += _LOOKUP_RATE * (min(2.0 * known, seconds / rows) - known)
