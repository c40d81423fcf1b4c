"""The load sweep against real HTTP servers, good and bad ones."""

import time

import pytest

from spec_cli.bench.arms import Arm
from spec_cli.bench.arrivals import ArrivalPlan
from spec_cli.bench.endpoint import Endpoint, refusal_words
from spec_cli.bench.figures import load_figures
from spec_cli.bench.harness import StoppedError
from spec_cli.bench.sender import LoadSender
from spec_cli.bench.server_facts import offered_models, speculation_counters
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
        ("error-event", "the server sent an error: broken"),
        ("error-words", "the server sent an error: out of memory"),
        ("loading", "HTTP 503: Loading model"),
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
        offered_models("http://127.0.0.1:9", None)


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
        assert offered_models(f"{server.url}/v1/", None) == ["tiny"]
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


@pytest.mark.parametrize("unknown", [("ignore_eos",), ("ignore_eos", "stream_options", "seed")])
def test_fields_that_a_server_refuses_are_left_out(unknown):
    """A strict server (transformers) answers 422 to unknown ones; the warm-up learns it."""
    with serving("as-transformers", unknown_fields=unknown, eos_after=4) as server:
        strict = sender(server.url)
        strict.warm_up(ARM)
        run = strict.run(ARM, PLAN, 20.0)

    assert strict.endpoint.left_out == unknown
    assert all(each.is_complete for each in run.timelines)
    # It ends its answers itself, says why and how long in one chunk, and sends no end mark.
    assert [each.num_tokens for each in run.timelines] == [4] * 7
    assert strict.num_uncounted == 0
    assert not set(server.bodies[-1]) & set(unknown)


def test_warm_up_against_a_dead_server():
    """Whatever else is wrong is left to the sweep to tell."""
    for behaviour in ("500", "loading", "closes"):
        with serving(behaviour) as server:
            dead = sender(server.url)
            dead.warm_up(ARM)
        assert len(server.bodies) == 1
        assert dead.endpoint.left_out == ()


def test_thoughts_are_tokens():
    """They come as `reasoning` from vLLM, as `reasoning_content` from others."""
    for name in ("reasoning", "reasoning_content"):
        with serving("uncounted", text_field=name) as server:
            thinking = sender(server.url)
            run = thinking.run(ARM, PLAN, 20.0)
        assert [each.num_tokens for each in run.timelines] == [8] * 7
        assert thinking.num_uncounted == 7


def test_answer_without_text():
    """An end at once is no stream that broke off."""
    with serving("fine", eos_after=0, unknown_fields=("ignore_eos",)) as server:
        empty = sender(server.url)
        empty.warm_up(ARM)
        run = empty.run(ARM, PLAN, 20.0)

    assert {each.failure for each in run.timelines} == {"the answer has no text"}


def test_models_that_a_server_offers():
    """Loaded ones first; a list without one, or no list, is told in words."""
    names = [
        {"id": "a", "status": {"value": "unloaded"}},
        {"id": "b", "status": {"value": "loaded"}},
    ]
    with serving("fine", models=names) as server:
        assert offered_models(server.url, None) == ["b", "a"]
    with serving("fine", models=[]) as server, pytest.raises(SpecCliError, match="list is empty"):
        offered_models(server.url, None)
    with serving("fine", models="?") as server, pytest.raises(SpecCliError, match="no list of"):
        offered_models(server.url, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "HTTP 400"),
        ("<html>Bad</html>", "HTTP 400"),
        ("Internal Server Error", "HTTP 400: Internal Server Error"),
        ('{"error": {"message": "too long", "type": "x"}}', "HTTP 400: too long"),
        ('{"error": "busy"}', "HTTP 400: busy"),
        ('{"detail": [{"loc": ["body", "seed"]}]}', 'HTTP 400: [{"loc": ["body", "seed"]}]'),
        ("x" * 300, "HTTP 400: " + "x" * 200 + "..."),
    ],
)
def test_refusal_in_the_servers_words(text, words):
    """OpenAI's errors, FastAPI's, and plain text."""
    assert refusal_words(400, text) == words
