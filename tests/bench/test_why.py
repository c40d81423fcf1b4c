"""What a drafting step costs and the acceptance at which it pays, on known surfaces."""

import pytest

from spec_cli.bench.why import explain, measure_forwards, step_economics
from tests.bench.stub_engine import VirtualClock
from tests.bench.test_harness import BASE, SPEC, group_of, linear, two_arms
from tests.fakes import ScriptRunner


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_break_even_acceptance_of_a_known_surface(batch):
    """At 10 ms + 1 ms a token: t1 = 10 + B, t = 10 + 5 B, so a* = (t / t1 - 1) / 4."""
    session = two_arms(VirtualClock(), linear(0.010, 0.001), accepted=(4, 0))
    indices = list(range(batch))
    base, group = (group_of(session, arm, indices, 0) for arm in (BASE, SPEC))

    found = step_economics(batch, [group], [base])

    assert found is not None
    expected = ((10 + 5 * batch) / (10 + batch) - 1) / 4
    # 33 tokens: 1, then 5 and 1 in turn; the last steps can draft less than 4.
    assert found["break_even_acceptance"] == pytest.approx(expected, rel=0.15)
    assert found["plain_step_ms"] == pytest.approx(10 + batch)
    assert found["acceptance"] == pytest.approx(0.5, abs=0.1)


def test_break_even_acceptance_is_exact_where_every_draft_is_full():
    """31 tokens in steps of 3: every step but the last drafts 4."""
    session = two_arms(VirtualClock(), linear(0.010, 0.001))
    base, group = (group_of(session, arm, [0], 0) for arm in (BASE, SPEC))
    full = [step for step in group.steps if any(len(r.draft_token_ids) == 4 for r in step.rows)]
    group.steps[:] = full

    found = step_economics(1, [group], [base])

    assert found is not None
    assert found["break_even_acceptance"] == pytest.approx((15 / 11 - 1) / 4)
    assert found["acceptance"] == pytest.approx(0.5)
    assert found["cost_ratio"] == pytest.approx(15 / 11)


def test_nothing_drafted_has_no_economics():
    """Without drafting steps there is nothing to weigh."""
    session = two_arms(VirtualClock())
    base = group_of(session, BASE, [0], 0)

    assert step_economics(1, [base], [base]) is None
    assert step_economics(2, [base], [base]) is None


def test_forwards_are_measured_at_every_shape(monkeypatch):
    """Rows times widths, median of the repeats, rows given back."""
    clock = VirtualClock()
    runner = ScriptRunner([1, 2, 3], num_prompt=4)
    forward = runner.forward

    def timed(inputs):
        clock.now_s += 0.010 + 0.001 * sum(len(item.token_ids) for item in inputs)
        return forward(inputs)

    monkeypatch.setattr(runner, "forward", timed)

    found = measure_forwards(runner, [4, 1], [1, 5], [7, 8, 9, 7, 8, 9], clock)

    assert [(each.batch, each.tokens_per_row) for each in found] == [(1, 1), (1, 5), (4, 1), (4, 5)]
    assert [each.seconds for each in found] == pytest.approx([0.011, 0.015, 0.014, 0.030])
    assert runner.rows_in_use == []


def cell(name, rate, accepted, drafted):
    """A cell of a report, as far as the words need it."""
    return {
        "arm": name,
        "num_draft_tokens": 4,
        "speculative_decoding": {
            "draft_acceptance_rate": rate,
            "num_accepted_draft_tokens": accepted,
            "num_draft_tokens": drafted,
        },
    }


def test_words_carry_the_numbers_of_the_run():
    """Every sentence is about something measured."""
    economics = {
        "batch": 8,
        "cost_ratio": 2.4,
        "break_even_acceptance": 0.35,
        "acceptance": 0.3,
        "num_accepted": 30,
        "num_judged": 100,
        "num_drafting_steps": 25,
    }
    dear = economics | {"batch": 16, "break_even_acceptance": 1.2}
    free = economics | {"batch": 1, "break_even_acceptance": -0.1}
    rare = economics | {"batch": 4, "num_drafting_steps": 2}
    forwards = [
        {"batch": batch, "tokens_per_row": width, "ms": ms}
        for batch, width, ms in [(1, 1, 14.0), (1, 5, 18.0), (8, 1, 21.0), (8, 5, 51.0)]
    ]
    crossing = {"verdict": "crosses", "at": 3.1, "interval": [2.5, 4.0], "range": [0.5, 8.0]}
    nowhere = {"verdict": "pays nowhere", "at": None, "interval": None, "range": [1.0, 8.0]}
    report = {
        "batches": [{"batch": 1, "arms": [cell("ngram k=4", 0.30, 30, 100)]}],
        "sweep": [{"rate": 2.0, "arms": [cell("ngram k=4", 0.32, 64, 200)]}],
        "break_even": {"rate": {"ngram k=4": crossing}, "batch": {"ngram k=4": nowhere}},
        "why": {
            "forwards": forwards,
            "economics": {"ngram k=4": [economics, dear, free, rare], "off": []},
        },
    }

    words = explain(report)

    assert "14.0 ms for 1 token a row and 18.0 ms for 5 (1.29x)" in words[0]
    assert "8 rows 21.0 ms for 1 token a row and 51.0 ms for 5 (2.43x)" in words[0]
    assert "more than 35% of the drafts must be accepted; 30% were (30/100)" in words[1]
    assert "does not pay; at batch 16" in words[1]
    assert "even full acceptance would not pay for" in words[1]
    assert "pays whatever is accepted" in words[1]
    assert "batch 4" not in words[1]
    assert "were equally good at every load" in words[2]
    assert "from 30% (30/100, batch 1) to 32% (64/200, 2.0/s)" in words[2]
    assert words[3].startswith("ngram k=4 stops paying at 3.1 requests per second (95 % interval")
    assert words[4].endswith("between 1 and 8 rows: no break-even in this range.")
