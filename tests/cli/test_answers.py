"""What events add up to."""

from spec_cli.cli.answers import Answers
from spec_cli.core.events import (
    EmittedToken,
    RequestFinished,
    RequestStarted,
    SpeculationState,
    TextDelta,
    TokensEmitted,
)
from spec_cli.core.stats import RequestStats


def answer_of(*pieces: str) -> Answers:
    """Answers with one whose pieces of text each took a token."""
    answers = Answers(SpeculationState("on"))
    answers.read(RequestStarted("r", 0.0, 3, 0))
    tokens = tuple(EmittedToken(index, "target", None) for index in range(len(pieces)))
    answers.read(TokensEmitted("r", 0, 1.0, tokens))
    for index, text in enumerate(pieces):
        answers.read(TextDelta("r", 0, 0, 1.0, text, (index,), "target", None))
    return answers


def test_tokens_of_a_thought_are_counted() -> None:
    """Up to its end, begun in the answer or by the template; all of it where it has no end."""
    for pieces, expected in (
        (["<think>", "hm", "</think>", "42"], 3),
        (["hm", "hm", "</think>", "42", "."], 3),
        (["<think>", "hm", "hm"], 3),
        (["42", "."], 0),
    ):
        [answer] = answer_of(*pieces)
        assert answer.num_reasoning_tokens == expected
        assert answer.text == "".join(pieces)


def test_requests_count_in_the_order_they_are_heard_of() -> None:
    """One that never got a row comes after those that did; the worst end is the one told."""
    answers = answer_of("a")
    stats = RequestStats(num_prompt_tokens=3)
    answers.read(RequestFinished("r", 2.0, "stop", stats))
    answers.read(RequestFinished("later", 2.0, "interrupted", stats))

    assert [each.index for each in answers] == [0, 1]
    assert answers.finish_reason == "interrupted"
    assert answers.record()["choices"][0] == {"index": 0, "text": "a", "token_ids": [0]}


def test_wall_time_spans_all_answers() -> None:
    """From the first token of any to the last of any; none without a token."""
    answers = answer_of("a")
    answers.read(TokensEmitted("s", 1, 4.5, (EmittedToken(1, "target", None),)))

    assert answers.wall_s == 3.5
    assert Answers(SpeculationState("on")).wall_s == 0.0
