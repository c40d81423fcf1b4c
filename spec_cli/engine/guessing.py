"""From a configuration and loaded models to who guesses."""

from collections.abc import Callable

from spec_cli.core.config import MAX_DRAFT_TOKENS, EngineConfig
from spec_cli.engine.corpus import Corpus
from spec_cli.engine.loading import DraftModel, TargetModel
from spec_cli.policy.base import Policy
from spec_cli.policy.cost import CostModel
from spec_cli.policy.goodput import MAX_AUTO_TOKENS, GoodputPolicy
from spec_cli.proposers.base import Proposer
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.hybrid import HybridProposer, Prices
from spec_cli.proposers.ngram import NgramProposer
from spec_cli.proposers.suffix import SuffixProposer

_AUTO_DRAFT_TOKENS = 8
"""Longest draft that `auto` asks a draft model for: each further token is another of its passes."""
_TYPICAL_CONTEXT = 512
_REFRESH_STEPS = 16


def make_proposer(
    config: EngineConfig,
    target: TargetModel,
    draft: DraftModel | None,
    corpus: Corpus | None,
    policy: Policy,
) -> Proposer:
    """Build the proposer that a configuration asks for.

    Args:
        config: Its `proposer` is not `off`.
        target: The target.
        draft: The draft model, if the proposer uses one.
        corpus: Texts to look up in, if any.
        policy: Who chooses draft lengths; a goodput policy knows what steps cost.
    """
    if config.proposer == "ngram":
        low, high = config.ngram_sizes
        return NgramProposer(low, high)
    is_isolated = config.verify == "rejection"
    texts = corpus.texts if corpus is not None else ()
    lookup = SuffixProposer(texts, answers=target.answers, is_isolated=is_isolated)
    if draft is None:
        return lookup
    is_auto = isinstance(policy, GoodputPolicy)
    model = DraftModelProposer(
        draft.runner,
        max_draft_tokens=_AUTO_DRAFT_TOKENS if is_auto else MAX_DRAFT_TOKENS,
        verify=config.verify,
        num_token_ids=min(draft.pair.target_rows, draft.pair.draft_rows),
        never_propose=draft.pair.never_propose,
        p_min=config.draft_p_min or 0.0,
    )
    if config.proposer == "draft":
        return model
    length = config.num_draft_tokens
    return HybridProposer(
        lookup,
        model,
        _prices(config, target, draft, policy),
        max_draft_tokens=MAX_AUTO_TOKENS if length == "auto" else length,
        is_isolated=is_isolated,
    )


def _prices(
    config: EngineConfig, target: TargetModel, draft: DraftModel, policy: Policy
) -> Callable[[int], Prices]:
    """Prices as the policy measures them; under rejection, and without, as sizes suggest."""
    if isinstance(policy, GoodputPolicy) and config.verify == "coupled":
        return MeasuredPrices(policy.cost)
    # A step reads every weight once, so a pass of the draft model costs as its weights do.
    ratio = draft.loaded.num_bytes / max(1, target.loaded.num_bytes)
    return lambda num_rows: Prices(ratio, _verified_token_price(num_rows))


def _verified_token_price(num_rows: int) -> float:
    """4 % of a step for one row, 18 % of a row's share for eight (architecture.md, section 3)."""
    return 0.02 + 0.02 * num_rows


class MeasuredPrices:
    """Prices for each row when all rows draft, in shares of a draft-free step, as measured.

    Args:
        cost: Measured step times; its owner goes on learning.
    """

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._known: dict[int, tuple[int, Prices]] = {}  # by rows: steps measured by then

    def __call__(self, num_rows: int) -> Prices:
        """Prices with so many rows; computed anew every few steps."""
        num_samples = int(self._cost.target.num_samples)
        known = self._known.get(num_rows)
        if known is None or abs(num_samples - known[0]) >= _REFRESH_STEPS:
            known = self._known[num_rows] = num_samples, self._compute(num_rows)
        return known[1]

    def _compute(self, num_rows: int) -> Prices:
        num_tokens = 4 * num_rows
        context = _TYPICAL_CONTEXT * num_rows
        seconds, _ = self._cost.target_seconds(num_rows, num_rows, num_tokens + 1, context)
        plain = max(1e-9, seconds[0])
        drafting = self._cost.draft_seconds(num_rows, 1, num_rows, context)
        verifying = max(0.0, seconds[num_tokens] - plain) / 4
        return Prices(drafting / plain, verifying / plain)
