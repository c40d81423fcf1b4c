"""`compare --check`: equal tokens, near-ties and mismatches."""

import copy
from dataclasses import replace

import pytest
import torch

from spec_cli.bench.arms import Arm, RequestFactory, Servable
from spec_cli.bench.harness import Session, run_group
from spec_cli.bench.proof import (
    Judge,
    difference_record,
    differences,
    first_difference,
    prompt_chunks,
    recorded_blocks,
    replay,
    verdict_of,
)
from spec_cli.bench.timeline import Timeline
from spec_cli.core.params import SamplingParams
from spec_cli.engine.engine import Engine
from spec_cli.engine.parts import EngineParts
from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.policy.base import FixedPolicy
from spec_cli.proposers.ngram import NgramProposer
from tests import tiny
from tests.fakes import FakeClock, FakeRunner, NoStops

BASE, SPEC = Arm("target only", "off", None), Arm("ngram k=4", "ngram", 4)
PROMPTS = [(5, 6, 7, 5, 6, 7, 5, 6), (9, 8, 9, 8, 9)]


def compare(runner, params, indices=(0,)):
    """What both arms did with the same prompts, and a judge."""
    engines: dict[str, Servable] = {}
    for arm in (BASE, SPEC):
        proposer = None if arm.is_base else NgramProposer(1, 3)
        policy = FixedPolicy(0 if arm.is_base else 4)
        parts = EngineParts(runner, proposer, policy, NoStops(), MemoryBudget(1 << 40), FakeClock())
        engines[arm.name] = Engine(parts)
    factory = RequestFactory.of(PROMPTS, params)
    session = Session(engines, factory, FakeClock(), lambda seconds: None)
    base, group = (run_group(session, arm, list(indices), 0) for arm in (BASE, SPEC))
    assert not session.failures
    assert base is not None
    assert group is not None
    return base, group, Judge(runner, factory.make, is_exact=False)


def tiny_runner(dtype=torch.float32):
    """A small random model; a copy, for a change of format stays in the shared one."""
    model = copy.deepcopy(tiny.slotted("llama")).to(dtype)
    return ModelRunner(model, context_length=tiny.CONTEXT, budget=MemoryBudget(1 << 40))


GREEDY = SamplingParams(temperature=0.0, max_tokens=40, seed=0)


@pytest.mark.parametrize("params", [GREEDY, replace(GREEDY, temperature=1.0, top_p=0.9, seed=3)])
def test_equal_in_fp32(params):
    """Greedy and coupled sampling: no difference, whatever the batch."""
    base, group, _ = compare(tiny_runner(), params, indices=(0, 1))

    assert any(row.draft_token_ids for step in group.steps for row in step.rows)
    assert differences([(group, base)]) == []
    assert verdict_of([]) == "yes"


def forge(group, position, token_id):
    """Pretend that an arm emitted another token."""
    timeline = group.timelines[0]
    token_ids = list(timeline.token_ids)
    token_ids[position] = token_id
    forged = Timeline(timeline.index, 0.0, 0.0, token_ids=token_ids, request_id=timeline.request_id)
    return replace(group, timelines=[forged, *group.timelines[1:]])


def test_forced_mismatch_tells_position_ids_and_gap():
    """L-04 (c): nothing is called identical that is not."""
    base, group, judge = compare(tiny_runner(), GREEDY)
    right = base.timelines[0].token_ids[7]
    wrong = (right + 1) % 32
    forged = forge(group, 7, wrong)

    (found,) = differences([(forged, base)])
    judged = judge.judge(found, forged, base)
    record = difference_record(judged)

    assert record["identical"] is False
    assert (record["position"], record["token_id_target"], record["token_id_arm"]) == (
        7,
        right,
        wrong,
    )
    logits = replay_plain(judge.runner, [*PROMPTS[0], *base.timelines[0].token_ids[:7]])
    assert record["gap"] == pytest.approx(float(logits[right] - logits[wrong]), abs=1e-4)
    assert record["verdict"] == "mismatch"
    assert verdict_of([judged]) == "MISMATCH @7"


def replay_plain(runner, tokens):
    """The target's logits after tokens, in one forward."""
    row = runner.acquire(tokens, len(tokens) + 1, 1)
    logits = runner.forward([RowInput(row, tokens[len(row.token_ids) :], 1)])
    runner.release(row)
    return logits[0]


def test_replay_follows_the_forwards_that_were_made():
    """In fp32, replaying an arm's blocks gives the logits its tokens were chosen from."""
    base, group, judge = compare(tiny_runner(), GREEDY)
    for arm in (base, group):
        timeline = arm.timelines[0]
        tokens = [*PROMPTS[0], *timeline.token_ids]
        for position in (0, 1, 13, 39):
            at = len(PROMPTS[0]) + position
            blocks, offset = recorded_blocks(arm, timeline.request_id, tokens, at)
            logits = replay(judge.runner, prompt_chunks(arm, list(PROMPTS[0])), blocks, 1)[offset]
            assert int(logits.argmax()) == tokens[at]


class RoundingRunner(FakeRunner):
    """Two tokens nearly tie, and a forward of several tokens rounds the other way."""

    def __init__(self, gap, rounding) -> None:
        super().__init__(vocab_size=16)
        self.gap, self.rounding = gap, rounding
        self.is_wide = False

    def next_logits(self, token_ids):
        """Token 5 leads by the gap in every third place, else the text repeats itself."""
        logits = torch.zeros(16)
        logits[5 + len(token_ids) % 3] = 10.0
        if len(token_ids) == 20:
            logits[11] = logits.max() - self.gap
            if self.is_wide:
                logits[11] += self.rounding
        return logits

    def forward(self, inputs):
        """Note whether this is a verify shape."""
        self.is_wide = any(1 < len(item.token_ids) <= 5 for item in inputs)
        return super().forward(inputs)


@pytest.mark.parametrize(
    ("gap", "rounding", "is_exact", "verdict"),
    [
        (0.01, 0.02, False, "near-tie"),
        (0.01, 0.02, True, "mismatch"),
    ],
)
def test_near_tie_is_measured(gap, rounding, is_exact, verdict):
    """The gap is within twice what the shapes differ by; in fp32 nothing is excused."""
    base, group, judge = compare(RoundingRunner(gap, rounding), GREEDY)
    judge = replace(judge, is_exact=is_exact)

    (found,) = differences([(group, base)])
    judged = judge.judge(found, group, base)

    assert judged.position == 20 - len(PROMPTS[0])
    assert judged.gap == pytest.approx(gap, abs=1e-5)
    assert judged.shape_difference == pytest.approx(rounding, abs=1e-5)
    assert judged.verdict == verdict


def test_wrong_token_beside_rounding_is_a_mismatch():
    """A difference of shapes does not excuse a token far below the best."""
    base, group, judge = compare(RoundingRunner(0.5, 0.01), GREEDY)
    forged = forge(group, 12, 1)

    (found,) = differences([(forged, base)])

    assert judge.judge(found, forged, base).verdict == "mismatch"


def test_near_ties_in_bf16_are_told_from_mismatches():
    """Whatever differs on a real model in bf16 is a near-tie, sampled or not."""
    runner = tiny_runner(torch.bfloat16)
    num_differences = 0
    for seed in range(4):
        params = replace(GREEDY, temperature=1.0, max_tokens=60, seed=seed)
        base, group, judge = compare(runner, params)
        for found in differences([(group, base)]):
            num_differences += 1
            assert judge.judge(found, group, base).verdict == "near-tie"
    assert num_differences <= 4


def test_unequal_lengths_are_a_difference():
    """An answer that ends early is not identical."""
    found = first_difference(
        Timeline(3, 0, 0, token_ids=[1, 2, 3]), Timeline(3, 0, 0, token_ids=[1, 2])
    )

    assert found is not None
    assert (found.position, found.token_ids, found.verdict) == (2, (3, -1), "mismatch")
    assert first_difference(Timeline(0, 0, 0), Timeline(0, 0, 0)) is None
