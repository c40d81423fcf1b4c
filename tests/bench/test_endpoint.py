"""The load sweep against real HTTP servers, good and bad ones."""

import time

import pytest

from spec_cli.bench.arms import Arm
from spec_cli.bench.arrivals import ArrivalPlan
from spec_cli.bench.endpoint import Endpoint, LoadSender, first_model, speculation_counters
from spec_cli.bench.figures import load_figures
from spec_cli.bench.harness import StoppedError
from spec_cli.bench.slo import parse_slo
from spec_cli.bench.workload import plain_prompts
from spec_cli.core.errors import SpecCliError
from spec_cli.core.params import SamplingParams
from tests.bench.streaming_server import BEHAVIOURS, serving

ARM = Arm("target only", "endpoint", None)
PLAN = ArrivalPlan(50.0, tuple(0.02 * i for i in range(1, 8)))


def sender(url, *, stall_s=1.0, **options):
    """A sender of short requests."""
    return LoadSender(
        endpoint=Endpoint(url=url, model="tiny", stall_s=stall_s, **options),
        prompts=plain_prompts(["one", "two"]),
        params=SamplingParams(temperature=0.0, max_tokens=8, seed=3),
        clock=time.perf_counter,
    )


def test_good_server():
    """All complete; the server's own count of tokens is what the rates are of."""
    with serving("fine") as server:
        run = sender(server.url).run(ARM, PLAN, 20.0)
        figures = load_figures(run, parse_slo("ttft:5000"))

        assert figures["num_completed"] == 7
        assert figures["failures"] == {}
        assert [each.planned_s for each in run.timelines] == list(PLAN.times_s)
        assert all(each.num_tokens == 10 for each in run.timelines)
        assert all(each.num_prompt_tokens == 5 for each in run.timelines)
        first = run.timelines[0]
        assert first.end_to_end_s == pytest.approx(
            first.time_to_first_token_s + 9 * first.time_per_output_token_s
        )
        assert max(each.sent_s - each.planned_s for each in run.timelines) < 0.2
        body = next(body for body in server.bodies if body["messages"][0]["content"] == "two")
        assert body["max_tokens"] == 8
        assert body["ignore_eos"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert {body["seed"] for body in server.bodies} == set(range(3, 10))


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("stalls", "timed out"),
        ("500", "HTTP 500"),
        ("closes", "the connection was closed early"),
        ("no-end", "the stream ended early"),
        ("garbage", "the stream is not valid JSON"),
        ("error-event", "the server sent an error"),
    ],
)
def test_bad_server_is_counted_and_never_waited_for(behaviour, reason):
    """Every request ends as a failure that says what happened."""
    with serving(behaviour) as server:
        run = sender(server.url).run(ARM, PLAN, 20.0)

    assert {each.failure for each in run.timelines} == {reason}
    figures = load_figures(run, parse_slo(None))
    assert figures["failures"] == {reason: 7}
    assert (figures["num_completed"], figures["goodput"]) == (0, 0.0)


def test_mixed_server():
    """Good answers are kept beside every kind of failure."""
    with serving("mixed") as server:
        run = sender(server.url).run(ARM, PLAN, 20.0)

    assert sum(each.is_complete for each in run.timelines) == 1
    assert sum(each.failure is not None for each in run.timelines) == len(BEHAVIOURS) - 1


def test_stall_beyond_the_limit():
    """A server that is patient is cut off by the cell's time."""
    with serving("stalls") as server:
        run = sender(server.url, stall_s=60.0).run(ARM, PLAN, 1.0)

    assert run.duration_s < 4.0
    assert {each.failure for each in run.timelines} == {"not finished in time"}


def test_requests_past_the_limit_are_not_sent():
    """They are counted apart."""
    with serving("fine") as server:
        run = sender(server.url).run(ARM, ArrivalPlan(1.0, (0.0, 9.0)), 2.0)

    assert [each.failure for each in run.timelines] == [None, "not sent in time"]


def test_no_server():
    """Nothing listens."""
    run = sender("http://127.0.0.1:9").run(ARM, PLAN, 5.0)

    assert {each.failure for each in run.timelines} == {"cannot connect"}
    with pytest.raises(SpecCliError, match="cannot connect"):
        first_model("http://127.0.0.1:9", None)


def test_stop_is_answered_while_waiting():
    """Ctrl-C ends a sweep whose server says nothing."""
    with serving("stalls") as server:
        waiting = sender(server.url, stall_s=60.0)
        started = time.perf_counter()
        waiting.is_stopped = lambda: time.perf_counter() - started > 0.5
        with pytest.raises(StoppedError):
            waiting.run(ARM, PLAN, 20.0)


def test_what_a_server_tells_of_its_speculation():
    """Counters as vLLM has them, llama.cpp's timings, or nothing."""
    with serving("fine", has_metrics=True) as server:
        sender(server.url).run(ARM, PLAN, 20.0)
        assert first_model(f"{server.url}/v1/", None) == "tiny"
        counters = speculation_counters(server.url, None)
    assert counters == {"num_draft_tokens": 280.0, "num_accepted_tokens": 210.0}

    with serving("fine", has_timings=True) as server:
        speaking = sender(server.url)
        speaking.run(ARM, PLAN, 20.0)
        assert speculation_counters(server.url, None) == {}
    assert speaking.drafted == [(10, 7)] * 7


def test_raw_prompts_go_to_completions():
    """With --raw the text is continued."""
    with serving("fine") as server:
        run = sender(server.url, is_raw=True).run(ARM, PLAN, 20.0)

    assert server.bodies[0]["prompt"] in ("one", "two")
    assert run.timelines[0].failure is None
