"""With `-k auto` the tokens are those of the target alone."""

from random import Random

import pytest

from spec_cli.core.events import TokensEmitted
from spec_cli.core.sequence import Request
from spec_cli.engine.engine import Engine
from spec_cli.engine.parts import EngineParts
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.policy.base import FixedPolicy, Policy
from spec_cli.policy.goodput import MAX_AUTO_TOKENS, GoodputPolicy
from spec_cli.proposers.base import Proposer
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.hybrid import HybridProposer, Prices
from spec_cli.proposers.suffix import SuffixProposer
from tests import tiny
from tests.driving import PLENTY, request
from tests.fakes import FakeClock, NoStops


def runner(kind: str) -> ModelRunner:
    return ModelRunner(
        tiny.slotted("llama", kind), context_length=tiny.CONTEXT, budget=MemoryBudget(PLENTY)
    )


def proposer(way: str, draft: str) -> Proposer:
    model = DraftModelProposer(
        runner(draft), verify="coupled", num_token_ids=tiny.VOCAB, max_draft_tokens=8
    )
    return (
        HybridProposer(SuffixProposer(), model, lambda _: Prices(0.2, 0.05), max_draft_tokens=8)
        if way == "hybrid"
        else model
    )


def tokens(
    requests: list[Request], guess: Proposer | None, policy: Policy, max_rows: int, rng: Random
) -> dict[str, list[int]]:
    """Answers to requests that come one by one, some of them to an idle engine."""
    budget = MemoryBudget(PLENTY)
    parts = EngineParts(runner("target"), guess, policy, NoStops(), budget, FakeClock())
    engine = Engine(parts, max_rows=max_rows)
    waiting = list(requests)
    result: dict[str, list[int]] = {each.request_id: [] for each in requests}
    while waiting or engine.has_work:
        if waiting and (not engine.has_work or rng.random() < 0.1):
            engine.add(waiting.pop(0))
        for event in engine.step():
            if isinstance(event, TokensEmitted):
                result[event.request_id] += [token.token_id for token in event.tokens]
    return result


@pytest.mark.parametrize("way", ["draft", "hybrid"])
@pytest.mark.parametrize("seed", range(5))
def test_auto_changes_no_token(seed: int, way: str) -> None:
    """Rows come and go, drafting begins and pauses, probes fall anywhere: the text stays."""
    rng = Random(seed)
    requests = [
        request(
            str(i), tiny.prompt(rng.randrange(30)), rng.randint(1, 90),
            seed=i, temperature=rng.choice((0.0, 1.0)),
        )
        for i in range(rng.randint(3, 12))
    ]  # fmt: skip
    max_rows = rng.choice((1, 2, 4, 8))
    draft = rng.choice(("noisy", "random", "itself"))
    alone = tokens(requests, None, FixedPolicy(0, "for the test"), max_rows, rng)
    policy = GoodputPolicy(MAX_AUTO_TOKENS)
    assert tokens(requests, proposer(way, draft), policy, max_rows, rng) == alone
