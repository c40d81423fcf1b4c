"""Arms side by side on stub engines with known costs, in virtual time."""

import math
import time

import pytest

from spec_cli.bench.arms import Arm, RequestFactory, parse_lengths, plan_arms
from spec_cli.bench.arrivals import ArrivalPlan, plan_arrivals
from spec_cli.bench.figures import (
    batch_figures,
    break_even_record,
    load_figures,
    load_ratios,
    pair_groups,
)
from spec_cli.bench.harness import Session, StoppedError, arm_order, run_group, run_load
from spec_cli.bench.slo import parse_slo
from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams
from tests.bench.stub_engine import CostEngine, VirtualClock

BASE, SPEC = plan_arms(["ngram"], [4])
NUM_TOKENS = 33


def session_of(engines, clock, **options):
    """A session around stub engines."""
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, seed=5, ignore_eos=True)
    factory = RequestFactory.of([(1, 2, 3), (4, 5), (6,)], params)
    return Session(engines, factory, clock, clock.sleep, **options)


def linear(fixed, per_token):
    """A cost surface: `fixed + per_token x tokens` seconds, whatever the rows."""
    return lambda rows, tokens: fixed + per_token * tokens


def group_of(*args):
    """A group that did not fail."""
    group = run_group(*args)
    assert group is not None
    return group


def load_of(*args):
    """A run under load that did not fail."""
    run = run_load(*args)
    assert run is not None
    return run


def even(samples):
    """A break-even of enough loads."""
    record = break_even_record(samples)
    assert record is not None
    return record


def two_arms(clock, cost=None, accepted=(2,), **options):
    """The target alone and a speculating arm at the same prices."""
    cost = cost or linear(0.010, 0.001)
    engines = {
        BASE.name: CostEngine(clock, cost),
        SPEC.name: CostEngine(clock, cost, k=4, accepted=accepted, **options),
    }
    return session_of(engines, clock)


def test_requests_are_the_same_for_every_arm():
    """Prompt, seed and length depend on the number alone; ids are unique."""
    factory = session_of({}, VirtualClock()).factory
    first, again, other = factory.make(1), factory.make(1), factory.make(4)

    assert first.prompt_token_ids == again.prompt_token_ids == other.prompt_token_ids == (4, 5)
    assert (first.seed, again.seed, other.seed) == (6, 6, 9)
    assert len({first.request_id, again.request_id, other.request_id}) == 3
    assert not first.end_token_ids


def test_arms():
    """Every way with every length, after the target alone."""
    names = [arm.name for arm in plan_arms(["draft", "ngram"], [2, "auto"])]

    assert names == ["target only", "draft k=2", "draft k=auto", "ngram k=2", "ngram k=auto"]
    assert parse_lengths("2, 4,auto") == [2, 4, "auto"]
    assert [arm.name for arm in arm_order([BASE, SPEC], 0)] == ["target only", "ngram k=4"]
    assert [arm.name for arm in arm_order([BASE, SPEC], 1)] == ["ngram k=4", "target only"]
    with pytest.raises(UsageError):
        plan_arms([], [4])


@pytest.mark.parametrize("text", ["0", "33", "-1", "x", "", "2,,4", "1.5"])
def test_draft_lengths_that_cannot_be(text):
    """Whole numbers from 1 to 32, and auto."""
    with pytest.raises(UsageError, match="num_draft_tokens takes"):
        parse_lengths(text)


def test_speed_and_speedup_are_those_of_the_cost_surface():
    """11 ms a token alone; 15 ms for 3 tokens: speed-up 33 / 15 on 32 decoded tokens.

    33 tokens: 1 from prefill, 10 steps of 3 and a last one of 2 with one draft (12 ms).
    """
    session = two_arms(VirtualClock())
    groups = {
        arm.name: [group_of(session, arm, [0], repeat) for repeat in range(3)]
        for arm in (BASE, SPEC)
    }

    base = batch_figures(BASE, groups[BASE.name], groups[BASE.name])
    spec = batch_figures(SPEC, groups[SPEC.name], groups[BASE.name])

    assert base["tokens_per_second"] == pytest.approx(1 / 0.011)
    assert base["tokens_per_second_sd"] == pytest.approx(0.0, abs=1e-9)
    assert base["speedup_measured"] == pytest.approx(1.0)
    seconds = 11 * 0.015
    assert spec["tokens_per_second"] == pytest.approx(32 / seconds)
    assert spec["speedup_measured"] == pytest.approx(32 / seconds * 0.011)
    assert spec["speedup_interval"] == pytest.approx([spec["speedup_measured"]] * 2)
    figures = spec["speculative_decoding"]
    assert figures["num_target_passes"] == 33
    assert figures["num_accepted_draft_tokens"] == 3 * (10 * 2 + 1)
    assert figures["num_draft_tokens"] == 3 * (10 * 4 + 1)
    assert figures["tokens_per_target_pass"] == pytest.approx(32 / 11)
    assert figures["acceptance_histogram"] == [0, 3, 30, 0, 0]
    assert figures["acceptance_rate_per_position"] == pytest.approx([1.0, 1.0, 0.0, 0.0])


def test_identities_hold():
    """Accepted = sum(j x hist[j]); steps = sum(hist); emitted = first + accepted + passes."""
    session = two_arms(VirtualClock(), accepted=(0, 4, 1))
    group = group_of(session, SPEC, [0, 1, 2], 0)
    figures = batch_figures(SPEC, [group], [])["speculative_decoding"]

    histogram = figures["acceptance_histogram"]
    assert figures["num_accepted_draft_tokens"] == sum(j * n for j, n in enumerate(histogram))
    assert figures["num_spec_steps"] == sum(histogram)
    assert (
        figures["num_output_tokens"]
        == 3 * NUM_TOKENS
        == (
            figures["num_requests"]
            + figures["num_accepted_draft_tokens"]
            + figures["num_target_passes"]
        )
    )


@pytest.mark.parametrize(
    ("accepted", "k", "rate", "per_pass"),
    [((0,), 4, 0.0, 1.0), ((4,), 4, 1.0, 5.0), ((0,), 0, None, 1.0)],
)
def test_acceptance_of_never_always_and_no_drafts(accepted, k, rate, per_pass):
    """B-01: drafts always wrong, always right, and none at all."""
    clock = VirtualClock()
    arm = Arm("x", "ngram", k)
    session = session_of({"x": CostEngine(clock, linear(0.01, 0), k=k, accepted=accepted)}, clock)
    session.factory.params = SamplingParams(temperature=0.0, max_tokens=21)

    figures = batch_figures(arm, [group_of(session, arm, [0], 0)], [])["speculative_decoding"]

    assert figures["draft_acceptance_rate"] == rate
    assert figures["tokens_per_target_pass"] == per_pass
    if rate is None:
        assert figures["mean_acceptance_length"] is None


def test_only_equal_work_is_paired():
    """A group that the other arm did not run has no ratio."""
    session = two_arms(VirtualClock())
    base = [group_of(session, BASE, [0], 0)]
    spec = [group_of(session, SPEC, [index], 0) for index in (0, 1)]

    assert pair_groups(spec, base) == [(spec[0], base[0])]


def test_break_even_batch_of_a_known_surface():
    """At 10 ms + 1 ms a token, k = 4 and 3 tokens a step.

    Alone B rows take 10 + B for B tokens; with drafts 10 + 5 B for 3 B. The ratio of the times for
    a token is (10 + 5 B) / (3 (10 + B)): 1 at B = 10.
    """
    session = two_arms(VirtualClock())
    session.factory.params = SamplingParams(temperature=0.0, max_tokens=31)
    samples = []
    for batch in (1, 4, 9, 11, 16):
        base, spec = (group_of(session, arm, list(range(batch)), 0) for arm in (BASE, SPEC))
        ratio = (spec.decode_s / spec.num_decode_tokens) / (base.decode_s / base.num_decode_tokens)
        assert ratio == pytest.approx((10 + 5 * batch) / (3 * (10 + batch)))
        samples.append((float(batch), [ratio] * 3))

    record = even(samples)

    assert record["at"] == pytest.approx(10.0, rel=0.01)
    assert record["range"] == [1.0, 16.0]


def test_break_even_rate_of_a_known_surface():
    """Found from few rates, it is where a fine scan of rates changes sign."""

    def ratios(rate):
        runs = []
        for arm in (BASE, SPEC):
            session = two_arms(VirtualClock(), linear(0.010, 0.002))
            plan = plan_arrivals(rate, 300, seed=1, horizon_s=math.inf)
            runs.append(load_of(session, arm, plan, 1e6))
        return load_ratios(runs[1], runs[0])

    def middle(values):
        return sorted(values)[len(values) // 2]

    record = even([(rate, ratios(rate)) for rate in (2.0, 6.0, 12.0, 20.0)])

    assert record["verdict"] == "crosses"
    low, high = record["interval"]
    assert low <= record["at"] <= high
    assert middle(ratios(record["at"] * 0.7)) < 1.0 < middle(ratios(record["at"] * 1.3))


def test_plan_is_kept_by_a_no_op_engine():
    """B-02: 100 requests at 50 per second; the last is sent within 20 ms of its time."""
    clock = VirtualClock()
    session = session_of({BASE.name: CostEngine(clock, lambda rows, tokens: 0.0)}, clock)
    plan = plan_arrivals(50.0, 100, seed=1, horizon_s=math.inf)

    run = load_of(session, BASE, plan, 60.0)
    figures = load_figures(run, parse_slo(None))

    assert [each.planned_s for each in run.timelines] == list(plan.times_s)
    assert 0.0 <= run.timelines[-1].sent_s - plan.times_s[-1] <= 0.020
    assert figures["sent_rate"] == pytest.approx(plan.planned_rate, rel=0.01)
    assert figures["achieved_rate"] == pytest.approx(plan.planned_rate, rel=0.01)
    assert figures["saturated"] is False
    assert figures["num_completed"] == 100


def test_plan_is_kept_on_the_real_clock():
    """B-02 without the virtual clock."""
    virtual = VirtualClock()
    session = session_of({BASE.name: CostEngine(virtual, lambda rows, tokens: 0.0)}, virtual)
    session.clock, session.sleep = time.perf_counter, time.sleep
    plan = plan_arrivals(100.0, 100, seed=1, horizon_s=math.inf)

    run = load_of(session, BASE, plan, 60.0)

    assert run.timelines[-1].sent_s - plan.times_s[-1] <= 0.020


def test_busy_engine_does_not_shift_the_plan():
    """One row at a time, 320 ms each, ten requests a second: the wait is queue time."""
    clock = VirtualClock()
    engine = CostEngine(clock, lambda rows, tokens: 0.010, max_rows=1)
    session = session_of({BASE.name: engine}, clock)
    plan = ArrivalPlan(10.0, tuple(0.1 * i for i in range(1, 21)))

    run = load_of(session, BASE, plan, 60.0)
    figures = load_figures(run, parse_slo("ttft:500"))

    assert [each.planned_s for each in run.timelines] == list(plan.times_s)
    assert run.timelines[-1].queue_s == pytest.approx(19 * (0.32 - 0.1), abs=0.03)
    assert figures["saturated"] is True
    assert figures["achieved_rate"] == pytest.approx(1 / 0.32, rel=0.01)
    assert figures["sent_rate"] == pytest.approx(10.0, rel=0.01)
    # TTFT of request i is 0.22 i seconds: 0, 1 and 2 keep within 500 ms.
    assert figures["slo_attained"] == 3 / 20
    assert figures["goodput"] == pytest.approx(3 / run.duration_s)


def test_limit_ends_what_does_not_finish():
    """What was not sent, and what was not finished, are counted apart."""
    clock = VirtualClock()
    engine = CostEngine(clock, lambda rows, tokens: 0.5, max_rows=1)
    session = session_of({BASE.name: engine}, clock)

    run = load_of(session, BASE, ArrivalPlan(1.0, (0.0, 1.0, 90.0)), 20.0)
    figures = load_figures(run, parse_slo(None))

    assert figures["failures"] == {"not finished in time": 1, "not sent in time": 1}
    assert (figures["num_completed"], figures["saturated"]) == (1, True)
    assert not engine.has_work


def test_infinite_rate_is_served():
    """All at once: no planned rate, marked as saturated."""
    session = two_arms(VirtualClock())
    run = load_of(session, SPEC, plan_arrivals(math.inf, 8, seed=0, horizon_s=1.0), 60.0)
    figures = load_figures(run, parse_slo(None))

    assert (figures["num_completed"], figures["saturated"]) == (8, True)
    assert figures["mean_rows"] == 8


def test_arm_that_fails_leaves_the_others():
    """The failure is told once, the arm is not run again, its rows are freed."""
    session = two_arms(VirtualClock(), fails_at_step=3)

    assert run_group(session, SPEC, [0, 1], 0) is None
    assert run_group(session, SPEC, [0, 1], 1) is None
    assert group_of(session, BASE, [0, 1], 0) is not None
    assert session.failures == {SPEC.name: "RuntimeError: the stub breaks here"}
    assert not session.engines[SPEC.name].has_work


def test_stop_is_answered_between_steps():
    """Ctrl-C ends a group and frees its rows."""
    session = two_arms(VirtualClock())
    session.is_stopped = lambda: session.engines[BASE.name].num_steps >= 3

    with pytest.raises(StoppedError):
        group_of(session, BASE, [0], 0)
    assert not session.engines[BASE.name].has_work
    assert session.failures == {}
