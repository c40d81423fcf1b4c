"""Where an answer ends: token by token, whatever a step brought."""

from typing import Any

import pytest

from spec_cli.core.errors import ContextLengthError
from spec_cli.core.events import TokensEmitted
from spec_cli.core.sequence import Request
from spec_cli.proposers.draft_model import DraftModelProposer
from tests import tiny
from tests.driving import Answer, drive, drive_tiny, request
from tests.fakes import NoStops, ScriptRunner

EOS = 2
STOP = 9


class StopString(NoStops):
    """Sees a stop string complete at a token."""

    def __init__(self, token_id: int) -> None:
        self.token_id = token_id
        self.following: set[str] = set()

    def start(self, request: Request) -> None:
        self.following.add(request.request_id)

    def keep(self, request_id: str, token_ids: tuple[int, ...]) -> tuple[int, bool]:
        assert request_id in self.following
        if self.token_id in token_ids:
            return token_ids.index(self.token_id) + 1, True
        return len(token_ids), False

    def finish(self, request_id: str) -> None:
        self.following.remove(request_id)


def answer(script: list[int], k: int, max_tokens: int, stop: Any = None, **options: Any) -> Answer:
    """The answer of a target that follows a script, with a draft that knows it."""
    draft = DraftModelProposer(ScriptRunner(script, 3), verify="coupled", num_token_ids=32)
    driver = drive(ScriptRunner(script, 3), draft, k, stop=stop)
    driver.add(request("0", (4, 4, 4), max_tokens, **options))
    return driver.run()["0"]


@pytest.mark.parametrize("place", range(6))
def test_end_token_anywhere_in_a_block(place: int) -> None:
    """S-01: first of all, at block index 0 to 3, or as the bonus: nothing comes after the end."""
    script = [*(5, 6, 10, 11, 12, 13)[:place], EOS, 7, 8, 7, 8, 7, 8]
    got = answer(script, 4, 50, end=(EOS,))

    assert got.token_ids == script[: place + 1]
    assert got.reason == "stop"
    assert got.stats.num_output_tokens == place + 1


def test_ends_only_where_asked() -> None:
    """An id is an end only for the request that names it; each row of a batch has its own."""
    script = [5, 6, EOS, 8, STOP, 7]
    draft = DraftModelProposer(ScriptRunner(script, 1), verify="coupled", num_token_ids=32)
    driver = drive(ScriptRunner(script, 1), draft, 4)
    driver.add(
        request("eos", (4,), 6, end=(EOS, STOP)),
        request("none", (4,), 6),
        request("stop", (4,), 6, end=(STOP,)),
    )
    answers = driver.run()

    assert answers["eos"].token_ids == script[:3]
    assert answers["none"].token_ids == script
    assert answers["stop"].token_ids == script[:5]
    assert [answers[i].reason for i in ("eos", "none", "stop")] == ["stop", "length", "stop"]


@pytest.mark.parametrize("by", ["token", "string"])
@pytest.mark.parametrize(
    ("max_tokens", "length", "reason"), [(4, 3, "stop"), (3, 3, "stop"), (2, 2, "length")]
)
def test_stop_before_length(by: str, max_tokens: int, length: int, reason: str) -> None:
    """S-03: of a stop and a limit in one block the first counts, and the stop where they meet."""
    script = [3, 4, STOP, 8, 10, 2]
    stop = StopString(STOP) if by == "string" else None
    got = answer(script, 5, max_tokens, stop, end=(STOP,) if by == "token" else ())

    assert got.token_ids == script[:length]
    assert got.reason == reason


def test_the_earlier_of_stop_string_and_end_token() -> None:
    """A stop string before an end token in the same block cuts there; behind it, it is not seen."""
    assert answer([3, STOP, EOS, 5, 6], 4, 9, StopString(STOP), end=(EOS,)).token_ids == [3, STOP]
    assert answer([3, EOS, STOP, 5, 6], 4, 9, StopString(STOP), end=(EOS,)).token_ids == [3, EOS]


def test_the_stop_checker_is_told_when_to_forget() -> None:
    """Every request that began to be followed is forgotten: finished, aborted, or still waiting."""
    stop = StopString(STOP)
    script = [3, 4, 5, STOP, 6]
    driver = drive(ScriptRunner(script, 1), None, 0, stop=stop, max_rows=2)
    driver.add(*(request(name, (4,), 30) for name in ("a", "b", "c", "d")))
    driver.step()
    driver.abort("b")
    driver.abort("d")
    driver.run()

    assert stop.following == set()
    assert driver.answers["a"].token_ids == driver.answers["c"].token_ids == script[:4]


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_lookup_stays_within_the_limit(max_tokens: int) -> None:
    """S-04: prompt lookup returns exactly as many tokens as asked for, the baseline's first."""
    prompt = (4, 5, 4, 5, 4, 5)
    driver = drive_tiny("llama", "ngram", 5)
    driver.add(request("0", prompt, max_tokens))

    want = tiny.reference(tiny.plain("llama"), list(prompt), 3)
    assert driver.run()["0"].token_ids == want[:max_tokens]


@pytest.mark.parametrize("k", [0, 4])
def test_the_context_ends_an_answer(k: int) -> None:
    """An answer ends with `length` where the context does, and no row is longer."""
    target, own = ScriptRunner([5, 6], 3), ScriptRunner([5, 6], 3)
    target.context_length = 12
    driver = drive(target, DraftModelProposer(own, verify="coupled", num_token_ids=32), k)
    driver.add(request("0", (4, 4, 4), 500))
    got = driver.run()["0"]

    assert got.token_ids == [5] + [6] * 8
    assert got.reason == "length"
    assert max(target.positions) < 12


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    """A prompt that leaves no room for one token is an error that names both lengths."""
    target = ScriptRunner([5], 1)
    target.context_length = 32
    driver = drive(target)

    with pytest.raises(ContextLengthError, match=r"40 tokens.*32"):
        driver.engine.add(request("0", (4,) * 40, 5))
    with pytest.raises(ContextLengthError, match=r"32 tokens.*32"):
        driver.engine.add(request("0", (4,) * 32, 5))
    assert not driver.engine.has_work
    driver.add(request("1", (4,) * 31, 5))
    assert driver.run()["1"].reason == "length"


def test_one_event_per_row_and_step() -> None:
    """A row's tokens of a step come in one event, with their origin, and its end comes after it."""
    draft = DraftModelProposer(
        ScriptRunner([5, 6, 7, 8, 9, 10], 1), verify="coupled", num_token_ids=32
    )
    driver = drive(ScriptRunner([5, 6, 7, 12, 9, 10], 1), draft, 4)
    driver.add(request("0", (4,), 6))
    driver.run()
    emitted = [event for event in driver.events if isinstance(event, TokensEmitted)]

    assert [[t.token_id for t in event.tokens] for event in emitted] == [[5], [6, 7, 12], [9, 10]]
    assert [t.source for t in emitted[1].tokens] == ["draft", "draft", "target"]
    assert [t.draft_position for t in emitted[1].tokens] == [0, 1, None]
    assert [event.step for event in emitted] == [0, 1, 2]
    names = [type(event).__name__ for event in driver.events]
    assert names[:3] == ["RequestStarted", "TokensEmitted", "StepFinished"]
    assert names[-3:] == ["TokensEmitted", "RequestFinished", "StepFinished"]
