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

from typing import NamedTuple

from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.policy.base import RowOutlook
from spec_cli.policy.cost import CostModel

PAYBACK_STEPS = 32
"""Steps over which a draft model's catch-up must pay, where the answer has as many left."""
_LEAST_SURVIVAL = 0.02
_AFFORDABLE = 0.94
"""Part of the best expected goodput below which nothing is tried for what it might teach."""
_HOPELESS = 0.8
_LEAST_PASS_S = 1e-12
"""Tells a draft model's row, whatever the fit says of it, from lookup."""

Candidate = tuple[float, int, int]
"""Minus the survival that orders it, position in the draft, row index."""


_Item = tuple[float, float, int, float, float]
"""Survival, hopeful survival, position, seconds in each pass (0 for lookup), seconds once."""


class Option(NamedTuple):
    """One way to spend a step.

    Attributes:
        gain: Expected goodput over that of no drafts.
        hopeful: The same where what was hardly measured gets the benefit of the doubt.
        num_draft_tokens: Of all rows.
        cap: Longest draft of a draft model in it.
        price: Expected seconds over those of no drafts.
    """

    gain: float
    hopeful: float
    num_draft_tokens: int
    cap: int
    price: float


NO_DRAFTS = Option(1.0, 1.0, 0, 0, 1.0)
_Figures = tuple[float, float, int, int, float]


class Allocation:
    """What a step could draft.

    Args:
        rows: The decoding rows.
        candidates: Draft tokens in the order in which they are taken.
        options: Some prefix of those under some cap: the fields of an `Option`.
    """

    def __init__(
        self, rows: tuple[RowOutlook, ...], candidates: list[Candidate], options: list[_Figures]
    ) -> None:
        self.rows = rows
        self._candidates = candidates
        self._options = options
        self.best = Option(*max(options, default=NO_DRAFTS))
        """The best way to draft anything at all, be its gain below 1; NO_DRAFTS without offers."""

    def most_hopeful(self, *, or_none: bool) -> Option:
        """The option with the best hopeful goodput among those that cost little to try."""
        best: _Figures = self.best
        if or_none and best[0] < 1.0:
            best = NO_DRAFTS
        enough = _AFFORDABLE * best[0]
        for option in self._options:
            if option[1] > best[1] and option[0] >= enough:
                best = option
        return Option(*best)

    def lengths(self, option: Option) -> tuple[int, ...]:
        """The draft lengths of an option, by row."""
        result = [0] * len(self.rows)
        left = option.num_draft_tokens
        for _, position, index in self._candidates:
            if not left:
                break
            if position < option.cap or self.rows[index].source != "draft":
                result[index] += 1
                left -= 1
        return tuple(result)

    def break_even(self) -> float:
        """Accepted part of the best option's draft tokens at which they would just pay."""
        return (self.best.price - 1.0) * len(self.rows) / max(1, self.best.num_draft_tokens)


def allocate(
    rows: tuple[RowOutlook, ...],
    max_draft_tokens: int,
    acceptance: AcceptanceModel,
    cost: CostModel,
) -> Allocation:
    """Order the draft tokens that the rows could have and price what could be done with them."""
    context = sum(row.context_length for row in rows)
    candidates: list[Candidate] = []
    survivals: list[list[float]] = []
    plain = 0.0
    for index, row in enumerate(rows):
        length = min(row.max_draft_tokens, max_draft_tokens)
        survival = acceptance.survival(row.source, row.request_id, row.match_length, length)
        survivals.append(survival)
        if row.num_lag_tokens > 2:
            plain = plain or cost.target_seconds(len(rows), len(rows), 1, context)[0][0]
            if not _pays_back(row, survival, plain / len(rows), cost):
                continue
        favour = -1.0
        if len(rows) > 1:
            favour -= acceptance.row_doubt(row.source, row.request_id)
        for position, survived in enumerate(survival):
            if survived > _LEAST_SURVIVAL:
                candidates.append((favour * survived, position, index))
    if not candidates:
        return Allocation(rows, [], [])
    candidates.sort()
    times = cost.target_seconds(len(rows), len(rows), len(candidates) + 1, context)
    pricing = _Pricing(rows, candidates, survivals, times, acceptance, cost)
    return Allocation(rows, candidates, pricing.options())


def catch_up_seconds(row: RowOutlook, cost: CostModel) -> float:
    """What a row's lag adds to a draft model's first pass, beyond the token every pass has."""
    return max(0, row.num_lag_tokens - 1) * cost.catch_up_s


def _pays_back(row: RowOutlook, survival: list[float], token_value: float, cost: CostModel) -> bool:
    """Whether drafting could earn a row's catch-up back in time, its own cost left aside."""
    return catch_up_seconds(row, cost) < _payback_steps(row) * token_value * sum(survival)


def _payback_steps(row: RowOutlook) -> int:
    """Steps that a row's catch-up will serve: no more than its answer may still have."""
    if row.num_remaining_tokens is None:
        return PAYBACK_STEPS
    return min(PAYBACK_STEPS, max(1, row.num_remaining_tokens))


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
        self._draft = cost.draft
        per_pass, per_token, per_row, per_context = cost.draft.coefficients
        self._per_pass = per_pass
        doubts = [acceptance.doubt(row.source, row.match_length) for row in rows]
        # Catch-up is an investment, not a price of this step: spread over the steps it serves.
        once = [
            catch_up_seconds(row, cost) / _payback_steps(row)
            if row.source == "draft"
            else cost.lookup_row_s
            for row in rows
        ]
        each = [
            max(_LEAST_PASS_S, per_token + per_row + per_context * row.context_length)
            if row.source == "draft"
            else 0.0
            for row in rows
        ]
        self._ratios: dict[int, float] = {}
        self._items: list[_Item] = []
        longest = 0
        for _, position, index in candidates:
            survival = survivals[index][position]
            hoped = survival * (1.0 + doubts[index][position])
            extra = 0.0 if position else once[index]
            self._items.append((survival, hoped, position, each[index], extra))
            if position >= longest and rows[index].source == "draft":
                longest = position + 1
        # For one row the prefixes are the caps.
        self._caps = [longest]
        if longest and len(rows) > 1:
            has_lookup = any(not seconds for seconds in each)
            self._caps = list(range(0 if has_lookup else 1, longest + 1))

    def options(self) -> list[_Figures]:
        """Every prefix under every cap that reaches the cap, as far as there is hope."""
        result: list[_Figures] = []
        best = 0.0
        for cap in self._caps:
            reached = self._walk(cap, result)
            best = reached if reached > best else best
            if reached < _HOPELESS * best:
                break
        return result

    def _walk(self, cap: int, result: list[_Figures]) -> float:
        """Add the prefixes under one cap and return their best gain."""
        expected, hopeful, per_pass = self._expected, self._hopeful, self._per_pass
        plain = expected[0]
        scale = plain / self._num_rows
        emitted = hoped = float(self._num_rows)
        count = draft_rows = passes = 0
        linear = fixed = drafting = best = 0.0
        single = self._num_rows == 1
        ratio = 1.0
        ratios = self._ratios
        for survival, hoped_survival, position, each, extra in self._items:
            if each:
                if position >= cap:
                    continue
                if position == 0 or position >= passes:
                    draft_rows += position == 0
                    passes = position + 1 if position >= passes else passes
                    key = draft_rows * 64 + passes
                    ratio = ratios.get(key, 0.0)
                    if not ratio:
                        ratio = ratios[key] = self._draft.ratio(draft_rows, passes)
                linear += each
                drafting = ratio * (per_pass * passes + linear)
            fixed += extra
            count += 1
            emitted += survival
            hoped += hoped_survival
            if passes < cap and not single:
                continue  # the walk under the cap before has been here
            seconds = expected[count] + drafting + fixed
            gain = emitted / seconds * scale
            if gain > best:
                best = gain
            elif gain < _HOPELESS * best:
                break
            hope = hoped / (hopeful[count] + drafting + fixed) * scale
            result.append((gain, hope, count, passes, seconds / plain))
        return best
