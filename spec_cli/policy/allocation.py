"""Which draft tokens a step could verify, best first, and what each number of them brings.

Goodput is that of SmartSpec (Liu et al. 2024, arXiv 2406.14066, section 4): expected emitted
tokens of the batch over the seconds of the step,

    (rows + sum of S_r(i) over the draft tokens chosen) / (T_target + T_draft),

with measured survival instead of its geometric law. A row's survival never rises along the draft,
so taking tokens in order of survival keeps drafts whole, as in vLLM's adaptive verification; the
best prefix of that order is the allocation. Unlike a search that stops at the first fall, every
prefix is looked at: measured costs have knees.
"""

from dataclasses import dataclass, field

from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.policy.base import RowOutlook
from spec_cli.policy.cost import CostModel

PAYBACK_STEPS = 64
"""Steps over which a draft model's catch-up must pay: an answer is rarely shorter."""
_LEAST_SURVIVAL = 0.01


@dataclass(slots=True)
class Allocation:
    """Goodput by number of draft tokens; entry m takes the first m of `order`.

    Attributes:
        num_rows: Decoding rows.
        order: Row index of each further draft token.
        gains: Goodput over that of no drafts; entry 0 is 1.
        hopeful: The same where sizes hardly measured get the benefit of the doubt.
        prices: Expected step seconds over those of no drafts.
    """

    num_rows: int
    order: list[int] = field(default_factory=list)
    gains: list[float] = field(default_factory=lambda: [1.0])
    hopeful: list[float] = field(default_factory=lambda: [1.0])
    prices: list[float] = field(default_factory=lambda: [1.0])

    def best(self, least: int, *, hopeful: bool = False) -> int:
        """The number of draft tokens, at least `least`, with the best goodput."""
        values = self.hopeful if hopeful else self.gains
        return max(range(min(least, len(values) - 1), len(values)), key=values.__getitem__)

    def lengths(self, num_draft_tokens: int) -> list[int]:
        """Draft lengths by row when that many are drafted."""
        result = [0] * self.num_rows
        for row in self.order[:num_draft_tokens]:
            result[row] += 1
        return result

    def break_even(self, num_draft_tokens: int) -> float:
        """Accepted part of that many draft tokens at which they pay exactly."""
        return (self.prices[num_draft_tokens] - 1.0) * self.num_rows / num_draft_tokens


def allocate(
    rows: tuple[RowOutlook, ...],
    num_prefill_tokens: int,
    max_draft_tokens: int,
    acceptance: AcceptanceModel,
    cost: CostModel,
) -> Allocation:
    """Order the draft tokens that the rows could have and price every prefix."""
    allocation = Allocation(len(rows))
    offers = [
        (index, acceptance.survival(
            row.source, row.request_id, row.match_length,
            min(row.max_draft_tokens, max_draft_tokens),
        ))
        for index, row in enumerate(rows)
        if row.max_draft_tokens > 0
    ]  # fmt: skip
    if not offers:
        return allocation
    num_offered = sum(len(survival) for _, survival in offers)
    context = sum(row.context_length for row in rows)
    first = len(rows) + num_prefill_tokens
    expected, hopeful = cost.target_seconds(len(rows), first, num_offered + 1, context)
    token_value = expected[0] / len(rows)
    candidates: list[tuple[float, int, int]] = []
    for index, survival in offers:
        row = rows[index]
        if row.num_lag_tokens > 2 and not _pays_back(row, survival, token_value, cost):
            continue
        candidates.extend((-s, i, index) for i, s in enumerate(survival) if s > _LEAST_SURVIVAL)
    if len(offers) > 1:
        candidates.sort()
    _price(allocation, rows, candidates, expected, hopeful, acceptance, cost)
    return allocation


def _catch_up_seconds(row: RowOutlook, cost: CostModel) -> float:
    """What a row's lag adds to a draft model's first pass, beyond the token every pass has."""
    return max(0, row.num_lag_tokens - 1) * cost.catch_up_s


def _pays_back(row: RowOutlook, survival: list[float], token_value: float, cost: CostModel) -> bool:
    """Whether drafting could earn a row's catch-up back in time, its own cost left aside."""
    return _catch_up_seconds(row, cost) < PAYBACK_STEPS * token_value * sum(survival)


def _price(
    allocation: Allocation,
    rows: tuple[RowOutlook, ...],
    candidates: list[tuple[float, int, int]],
    expected: list[float],
    hopeful: list[float],
    acceptance: AcceptanceModel,
    cost: CostModel,
) -> None:
    """Fill in yields and prices of every prefix of `candidates`."""
    plain = expected[0]
    emitted = hoped = float(len(rows))
    base = emitted / plain
    passes = draft_rows = row_passes = draft_context = 0
    lookup_rows = lookup_tokens = 0
    catch_up = draft_seconds = lookup_seconds = 0.0
    for count, (survival, position, index) in enumerate(candidates, start=1):
        row = rows[index]
        if row.source == "draft":
            if position == 0:
                draft_rows += 1
                # An investment, not a price of this step: spread over the steps it serves.
                catch_up += _catch_up_seconds(row, cost) / PAYBACK_STEPS
            passes = max(passes, position + 1)
            row_passes += 1
            draft_context += row.context_length
            draft_seconds = catch_up + cost.draft_seconds(
                draft_rows, passes, row_passes, draft_context
            )
        else:
            lookup_rows += position == 0
            lookup_tokens += 1
            lookup_seconds = cost.lookup_seconds(lookup_rows, lookup_tokens)
        emitted -= survival
        hoped -= survival * (1.0 + acceptance.doubt(row.source, row.match_length)[position])
        drafting = draft_seconds + lookup_seconds
        seconds = expected[count] + drafting
        allocation.order.append(index)
        allocation.gains.append(emitted / seconds / base)
        allocation.hopeful.append(hoped / (hopeful[count] + drafting) / base)
        allocation.prices.append(seconds / plain)
