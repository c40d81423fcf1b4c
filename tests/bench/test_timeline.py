"""Latencies of a recorded list of events, against values worked out by hand."""

import pytest

from spec_cli.bench.slo import ServiceLevel, parse_slo
from spec_cli.bench.timeline import Recorder, Timeline
from spec_cli.core.errors import UsageError
from spec_cli.core.events import (
    EmittedToken,
    RequestFinished,
    RequestStarted,
    TokensEmitted,
)
from spec_cli.core.stats import RequestStats


def emitted(name, time_s, *token_ids):
    """Tokens of one step."""
    return TokensEmitted(name, 0, time_s, tuple(EmittedToken(i, "target", None) for i in token_ids))


@pytest.fixture
def recorder():
    """Planned at 1.0, sent at 1.1, admitted at 1.5, tokens at 2.0 (1), 2.2 (3) and 2.9 (2)."""
    recorder = Recorder(origin_s=10.0)
    recorder.sent("a", 0, planned_s=1.0, sent_s=1.1)
    recorder.read(
        [
            RequestStarted("a", 11.5, 7, 0),
            RequestStarted("stranger", 11.5, 7, 0),
            emitted("a", 12.0, 5),
            emitted("a", 12.2, 6, 7, 8),
            emitted("a", 12.9, 9, 3),
            RequestFinished("a", 12.9, "length", RequestStats(7)),
        ]
    )
    return recorder


def test_latencies_count_from_the_planned_time(recorder):
    """TTFT 1.0 s, queue 0.5 s, end to end 1.9 s, TPOT 0.9 s / 5, ITL 0.2 and 0.7 s."""
    (timeline,) = recorder.timelines

    assert timeline.time_to_first_token_s == pytest.approx(1.0)
    assert timeline.queue_s == pytest.approx(0.5)
    assert timeline.end_to_end_s == pytest.approx(1.9)
    assert timeline.time_per_output_token_s == pytest.approx(0.18)
    assert timeline.inter_token_latencies_s == pytest.approx([0.2, 0.7])
    assert (timeline.num_tokens, timeline.token_ids) == (6, [5, 6, 7, 8, 9, 3])
    assert (timeline.num_prompt_tokens, timeline.is_complete) == (7, True)
    assert recorder.open_ids == []


def test_request_that_does_not_complete():
    """It has a first token and no end, and says why."""
    recorder = Recorder()
    recorder.sent("a", 0, planned_s=0.0, sent_s=0.0)
    recorder.read([emitted("a", 1.0, 5)])
    assert recorder.open_ids == ["a"]
    recorder.read([RequestFinished("a", 2.0, "interrupted", RequestStats(7))])

    (timeline,) = recorder.timelines
    assert timeline.failure == "not finished in time"
    assert timeline.time_to_first_token_s == 1.0
    assert timeline.end_to_end_s is None
    assert timeline.time_per_output_token_s is None


def test_one_token_has_no_time_per_output_token():
    """There is no token after the first."""
    timeline = Timeline(0, 0.0, 0.0, deliveries=[(1.0, 1)], is_complete=True)

    assert timeline.time_per_output_token_s is None
    assert timeline.end_to_end_s == 1.0


@pytest.mark.parametrize(
    ("limits", "is_met"),
    [
        ({}, True),
        ({"ttft": 1000.1}, True),
        ({"ttft": 999.0}, False),
        ({"ttft": 2000.0, "tpot": 181.0, "e2e": 1901.0}, True),
        ({"ttft": 2000.0, "tpot": 179.0}, False),
        ({"e2e": 1899.0}, False),
    ],
)
def test_service_level(recorder, limits, is_met):
    """Every limit must be kept."""
    assert ServiceLevel(limits).is_met(recorder.timelines[0]) is is_met


def test_incomplete_request_meets_no_service_level():
    """Even one without limits."""
    assert not ServiceLevel({}).is_met(Timeline(0, 0.0, 0.0))


def test_service_level_is_parsed():
    """Milliseconds by name."""
    assert parse_slo("ttft:500,tpot:100").limits_ms == {"ttft": 500.0, "tpot": 100.0}
    assert parse_slo("e2e:2e3 ttft:1").limits_ms == {"e2e": 2000.0, "ttft": 1.0}
    assert parse_slo(None).limits_ms == {}


@pytest.mark.parametrize("text", ["ttft", "ttft:", "ttft:0", "ttft:-1", "ttft:inf", "ttl:3", "x"])
def test_service_level_that_cannot_be(text):
    """Unknown names, and limits that are none."""
    with pytest.raises(UsageError, match="slo takes limits"):
        parse_slo(text)
