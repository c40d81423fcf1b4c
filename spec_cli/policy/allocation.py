"""Which draft tokens a step could verify, best first, and what each number of them brings.

Goodput is that of SmartSpec (Liu et al. 2024, arXiv 2406.14066, section 4): expected emitted
tokens of the batch over the seconds of the step,

    (rows + sum of S_r(i) over the draft tokens chosen) / (T_target + T_draft),

with measured survival instead of its geometric law. A row's survival never rises along the draft,
so taking tokens in order of survival keeps drafts whole, as in vLLM's adaptive verification. A
draft model's passes cost the same for one row as for many, nearly, so the order is walked once
for each cap on its draft length: given the cap, the seconds depend on how many tokens there are,
and the best prefix is the best allocation. Measured costs have knees; no fall ends the search
unless it is deep.
"""

from dataclasses import dataclass

from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.policy.base import RowOutlook
from spec_cli.policy.cost import CostModel

PAYBACK_STEPS = 64
"""Steps over which a draft model's catch-up must pay: an answer is rarely shorter."""
_LEAST_SURVIVAL = 0.02
_AFFORDABLE = 0.92
"""Part of the best expected goodput below which nothing is tried for what it might teach."""
_HOPELESS = 0.8

Candidate = tuple[float, int, int]
"""Minus the survival that orders it, position in the draft, row index."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to spend a step.

    Attributes:
        num_draft_tokens: Of all rows.
        cap: Longest draft of a draft model in it.
        gain: Expected goodput over that of no drafts.
        hopeful: The same where what was hardly measured gets the benefit of the doubt.
        price: Expected seconds over those of no drafts.
    """

    num_draft_tokens: int
    cap: int
    gain: float
    hopeful: float
    price: float


NO_DRAFTS = Option(0, 0, 1.0, 1.0, 1.0)


class Allocation:
    """What a step could draft.

    Args:
        rows: The decoding rows.
        candidates: Draft tokens in the order in which they are taken.
        options: Some prefix of those under some cap, the best among them.
    """

    def __init__(
        self, rows: tuple[RowOutlook, ...], candidates: list[Candidate], options: list[Option]
    ) -> None:
        self._rows = rows
        self._candidates = candidates
        self._options = options
        self.best = max(options, key=lambda option: option.gain, default=NO_DRAFTS)
        """The best way to draft anything at all, be its gain below 1; NO_DRAFTS without offers."""

    def most_hopeful(self, *, or_none: bool) -> Option:
        """The option with the best hopeful goodput among those that cost little to try."""
        best = self.best
        if or_none and best.gain < 1.0:
            best = NO_DRAFTS
        enough = _AFFORDABLE * best.gain
        for option in self._options:
            if option.hopeful > best.hopeful and option.gain >= enough:
                best = option
        return best

    def lengths(self, option: Option) -> tuple[int, ...]:
        """The draft lengths of an option, by row."""
        result = [0] * len(self._rows)
        left = option.num_draft_tokens
        for _, position, index in self._candidates:
            if not left:
                break
            if position < option.cap or self._rows[index].source != "draft":
                result[index] += 1
                left -= 1
        return tuple(result)

    def break_even(self) -> float:
        """Accepted part of the best option's draft tokens at which they would just pay."""
        return (self.best.price - 1.0) * len(self._rows) / max(1, self.best.num_draft_tokens)


def allocate(
    rows: tuple[RowOutlook, ...],
    num_prefill_tokens: int,
    max_draft_tokens: int,
    acceptance: AcceptanceModel,
    cost: CostModel,
) -> Allocation:
    """Order the draft tokens that the rows could have and price what could be done with them."""
    candidates: list[Candidate] = []
    survivals: list[list[float]] = []
    num_offered = sum(min(row.max_draft_tokens, max_draft_tokens) for row in rows)
    context = sum(row.context_length for row in rows)
    first = len(rows) + num_prefill_tokens
    times = cost.target_seconds(len(rows), first, num_offered + 1, context)
    token_value = times[0][0] / len(rows)
    for index, row in enumerate(rows):
        length = min(row.max_draft_tokens, max_draft_tokens)
        survival = acceptance.survival(row.source, row.request_id, row.match_length, length)
        survivals.append(survival)
        if row.num_lag_tokens > 2 and not _pays_back(row, survival, token_value, cost):
            continue
        favour = 1.0
        if len(rows) > 1:
            favour += acceptance.row_doubt(row.source, row.request_id)
        candidates.extend(
            (-s * favour, i, index) for i, s in enumerate(survival) if s > _LEAST_SURVIVAL
        )
    if not candidates:
        return Allocation(rows, [], [])
    candidates.sort()
    pricing = _Pricing(rows, candidates, survivals, times, acceptance, cost)
    return Allocation(rows, candidates, pricing.options())


def _catch_up_seconds(row: RowOutlook, cost: CostModel) -> float:
    """What a row's lag adds to a draft model's first pass, beyond the token every pass has."""
    return max(0, row.num_lag_tokens - 1) * cost.catch_up_s


def _pays_back(row: RowOutlook, survival: list[float], token_value: float, cost: CostModel) -> bool:
    """Whether drafting could earn a row's catch-up back in time, its own cost left aside."""
    return _catch_up_seconds(row, cost) < PAYBACK_STEPS * token_value * sum(survival)


class _Pricing:
    """Goodput of the prefixes of the candidates, cap by cap."""

    def __init__(
        self,
        rows: tuple[RowOutlook, ...],
        candidates: list[Candidate],
        survivals: list[list[float]],
        times: tuple[list[float], list[float]],
        acceptance: AcceptanceModel,
        cost: CostModel,
    ) -> None:
        self._num_rows = len(rows)
        self._expected, self._hopeful = times
        self._cost = cost
        doubts = [acceptance.doubt(row.source, row.match_length) for row in rows]
        is_draft = [row.source == "draft" for row in rows]
        # An investment, not a price of this step: spread over the steps it serves.
        lags = [_catch_up_seconds(row, cost) / PAYBACK_STEPS for row in rows]
        self._items = [
            (
                survivals[index][position],
                1.0 + doubts[index][position],
                position,
                is_draft[index],
                lags[index],
                rows[index].context_length,
            )
            for _, position, index in candidates
        ]
        longest = max((item[2] + 1 for item in self._items if item[3]), default=0)
        # For one row the prefixes are the caps.
        self._caps = range(1, longest + 1) if longest and len(rows) > 1 else [longest]

    def options(self) -> list[Option]:
        """Every prefix under every cap that reaches the cap and is not hopeless."""
        result: list[Option] = []
        for cap in self._caps:
            self._walk(cap, result)
        return result

    def _walk(self, cap: int, result: list[Option]) -> None:
        expected, hopeful = self._expected, self._hopeful
        plain = expected[0]
        scale = plain / self._num_rows
        emitted = hoped = float(self._num_rows)
        count = draft_rows = row_passes = passes = context = lookup_rows = lookup_tokens = 0
        catch_up = drafting = looking = best = 0.0
        per_pass, per_token, per_row, per_context = self._cost.draft.coefficients
        ratio = 1.0
        for survival, favour, position, is_draft, lag, row_context in self._items:
            if is_draft:
                if position >= cap:
                    continue
                if position == 0 or position >= passes:
                    draft_rows += position == 0
                    catch_up += lag if position == 0 else 0.0
                    passes = max(passes, position + 1)
                    ratio = self._cost.draft.ratio(draft_rows, passes)
                row_passes += 1
                context += row_context
                seconds = per_pass * passes + (per_token + per_row) * row_passes
                drafting = catch_up + ratio * (seconds + per_context * context)
            else:
                lookup_rows += position == 0
                lookup_tokens += 1
                looking = self._cost.lookup_seconds(lookup_rows, lookup_tokens)
            count += 1
            emitted += survival
            hoped += survival * favour
            seconds = expected[count] + drafting + looking
            gain = emitted / seconds * scale
            if gain < _HOPELESS * best:
                return
            best = gain if gain > best else best
            hope = hoped / (hopeful[count] + drafting + looking) * scale
            result.append(Option(count, cap, gain, hope, seconds / plain))
