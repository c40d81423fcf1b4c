"""The plan of a comparison: full batches, other prompts for freed rows, sweeps that end in time."""

import math

import pytest

from spec_cli.bench.arms import RequestFactory, Servable, plan_arms
from spec_cli.bench.comparison import Comparison, Plan
from spec_cli.bench.figures import batch_figures
from spec_cli.bench.harness import Session, run_group
from spec_cli.bench.slo import parse_slo
from spec_cli.core.params import SamplingParams
from tests.bench.stub_engine import CostEngine, VirtualClock

BASE, SPEC = plan_arms(["ngram"], [4])
NUM_TOKENS = 33


def plan_of(**changes) -> Plan:
    """A plan of both arms."""
    fields = {
        "arms": [BASE, SPEC],
        "batches": [1],
        "rates": [],
        "repeats": 1,
        "warmup": 0,
        "num_prompts": 6,
        "num_available": 60,
        "num_requests": 32,
        "max_seconds": 60.0,
        "seed": 0,
        "slo": parse_slo(None),
    }
    return Plan(**{**fields, **changes})


def session_of(cost) -> Session:
    """Both arms at the same prices; of four draft tokens two are accepted."""
    clock = VirtualClock()
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, seed=5, ignore_eos=True)
    factory = RequestFactory.of([(1, 2, 3), (4, 5), (6,)], params)
    engines: dict[str, Servable] = {
        BASE.name: CostEngine(clock, cost),
        SPEC.name: CostEngine(clock, cost, k=4, accepted=(2,)),
    }
    return Session(engines, factory, clock, clock.sleep)


def test_a_batch_is_kept_full() -> None:
    """Five prompts on two rows: one begins where one ends, and no more than two at once."""
    session = session_of(lambda rows, tokens: 0.01)
    group = run_group(session, BASE, [0, 1, 2, 3, 4], 0, 2)
    assert group is not None
    assert [each.index for each in group.timelines] == [0, 1, 2, 3, 4]
    assert all(each.num_tokens == NUM_TOKENS for each in group.timelines)
    assert max(len(step.rows) for step in group.steps) == 2


def test_speed_is_that_of_full_batches() -> None:
    """The tail, in which rows fall idle, does not count: 2 rows take 2 tokens a step of 12 ms."""
    session = session_of(lambda rows, tokens: 0.010 + 0.001 * tokens)
    group = run_group(session, BASE, [0, 1, 2], 0, 2)
    assert group is not None
    assert {len(step.rows) for step in group.steps if step.rows} == {1, 2}
    assert {len(step.rows) for step in group.decode_steps} == {2}
    figures = batch_figures(BASE, [group], [group])
    assert figures["tokens_per_second"] == pytest.approx(2 / 0.012)


def test_rows_are_refilled_with_other_prompts_only() -> None:
    """No prompt is in a group twice, unless there are fewer of them than rows."""
    plan = plan_of(batches=[1, 4, 8])
    assert plan.groups_at(1) == [[0], [1], [2], [3], [4], [5]]
    assert plan.groups_at(4) == [list(range(8))]
    assert plan.groups_at(8) == [list(range(16))]
    assert plan.num_used == 16
    few = plan_of(batches=[8], num_available=9)
    assert few.groups_at(8) == [list(range(8))]


def test_a_sweep_asks_what_can_be_answered() -> None:
    """Above the engine's capacity, too, every request of every rate is answered in its time."""
    plan = plan_of(rates=[1.0, 8.0, 100.0, math.inf], max_seconds=80.0)
    session = session_of(lambda rows, tokens: 0.05 + 0.0 * tokens)
    results = Comparison(session, plan, lambda _: None, lambda *_: None).run()

    # 10 s for an arm and a rate; an answer takes 33 steps of 50 ms, and rows cost nothing here.
    for rate in plan.rates:
        run = results.loads[rate, BASE.name]
        assert all(each.is_complete for each in run.timelines)
        assert run.plan == results.loads[rate, SPEC.name].plan
        assert math.isinf(rate) or run.plan.times_s[-1] <= 10.0 - 1.25 * 32 * 0.05
    assert len(results.loads[100.0, BASE.name].timelines) == 4
