"""Conversations on tiny models: every answer is that of a fresh run on the same messages."""

from typing import Any

import pytest

from spec_cli import LLM, SamplingParams
from spec_cli.core.errors import ContextLengthError, UsageError
from spec_cli.core.events import RequestStarted, TextDelta
from tests.folders import save_text_model, text_config

GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> str:
    """A tiny Llama with a chat template."""
    return str(save_text_model(tmp_path_factory.mktemp("target")))


@pytest.fixture(scope="module")
def draft(tmp_path_factory) -> str:
    """Another one with the same tokenizer."""
    config = text_config(hidden_size=16)
    return str(save_text_model(tmp_path_factory.mktemp("draft"), config, seed=1))


@pytest.fixture(params=["off", "ngram", "draft"])
def llm(request, target, draft):
    """The target, with each way to speculate."""
    options = {"draft_model": draft, "num_draft_tokens": 3} if request.param == "draft" else {}
    with LLM(target, spec=request.param, **options) as llm:
        yield llm


@pytest.fixture
def fresh(target):
    """Answers of a fresh target that speculates not at all."""

    def answer(messages, params=GREEDY) -> str:
        with LLM(target, spec="off") as llm:
            return llm.chat(messages, params)[0].text

    return answer


def expected(session) -> Any:
    """The messages that the last answer is an answer to."""
    return session.messages[:-1]


def shared_with_before(chat) -> int:
    """Tokens that the last prompt shares with the turn before, short of that one's last token.

    A tiny model writes bytes that are no text, which are other tokens when they are read again.
    """
    before, last = chat.turns[-2:]
    held = [*before.prompt_token_ids, *before.token_ids][:-1]
    pairs = zip(held, last.prompt_token_ids, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(held))


def test_turns_equal_fresh_runs(llm, fresh):
    """Two turns, undo, regen, another system message: always what a fresh run would say."""
    chat = llm.chat_session(system="Be brief.", params=GREEDY)
    first = chat.send("Hello")
    assert first.text == fresh(expected(chat))
    second = chat.send("And who are you?")
    assert second.text == fresh(expected(chat))
    assert second.reuse.num_cached_tokens > 0
    chat.undo()
    assert chat.send("Something else").text == fresh(expected(chat))
    chat.regen()
    assert chat.turns[-1].text == fresh(expected(chat))
    chat.system = "Be long."
    changed = chat.send("Hm?")
    assert changed.text == fresh(expected(chat))
    assert changed.reuse.num_lost_tokens > 0
    assert changed.reuse.reason == "the system message changed"
    chat.clear()
    assert chat.send("Hello").text == fresh(expected(chat))
    assert len(chat.turns) == 1


def test_interrupted_answer_stays(llm, fresh):
    """What was written of an answer stays, and the next turn is that of a fresh run on it."""
    chat = llm.chat_session(params=GREEDY)
    for event in chat.events("Hello"):
        if isinstance(event, TextDelta):
            llm.interrupt()
    turn = chat.turns[-1]
    assert turn.finish_reason == "interrupted"
    assert 0 < len(turn.token_ids) < 20
    assert chat.send("Go on").text == fresh(expected(chat))


def test_left_iterator_keeps_what_came(llm, fresh):
    """Leaving the iterator is an interrupt too."""
    chat = llm.chat_session(params=GREEDY)
    events = chat.events("Hello")
    for event in events:
        if isinstance(event, TextDelta):
            break
    events.close()
    assert len(chat.turns) == 1
    assert chat.send("Go on").text == fresh(expected(chat))


def test_interrupt_before_the_first_token_keeps_nothing(llm):
    """A turn without an answer is no turn; a failed regen keeps the old answer."""
    chat = llm.chat_session(params=GREEDY)
    chat.send("Hello")
    for start in (lambda: chat.events("Again"), chat.regen_events):
        for event in start():
            if isinstance(event, RequestStarted):
                llm.interrupt()
                break
        assert [turn.user for turn in chat.turns] == ["Hello"]


def test_speculation_changes_in_the_middle(target, draft, fresh):
    """The way to speculate can change between turns; answers and the target's cache do not."""
    with LLM(target, draft_model=draft, num_draft_tokens=3) as llm:
        chat: Any = llm.chat_session(params=GREEDY)
        chat.send("Hello")
        with llm.speculating(spec="off", num_draft_tokens="auto"):
            turn = chat.send("And?")
            assert turn.stats.num_spec_steps == 0
        assert turn.text == fresh(expected(chat))
        assert turn.reuse.num_cached_tokens == shared_with_before(chat)
        llm.speculate(spec="ngram", draft_model=None, num_draft_tokens=2)
        turn = chat.send("Then?")
        assert turn.text == fresh(expected(chat))
        assert turn.reuse.num_cached_tokens == shared_with_before(chat)


def test_way_back_is_free(target, draft):
    """A draft model that was in use is not loaded again until it is forgotten."""
    stages: list[Any] = []
    with LLM(target, draft_model=draft, num_draft_tokens=3) as llm:
        first = llm.assembly
        llm.speculate(spec="ngram", draft_model=None, report=stages.append)
        llm.speculate(spec="draft", draft_model=draft, num_draft_tokens=5, report=stages.append)
        assert llm.assembly.draft_model is first.draft_model
        llm.speculate(spec="auto", num_draft_tokens=3, report=stages.append)
        assert llm.assembly is first
        assert not stages
        llm.speculate(draft_device="cpu", report=stages.append)
        assert llm.assembly.draft_model is not first.draft_model
        stages.clear()
        llm.speculate(spec="off", draft_model=None, num_draft_tokens="auto")
        llm.forget_other_ways()
        llm.speculate(spec="draft", draft_model=draft, report=stages.append)
        assert stages
        assert llm.assembly.draft_model is not first.draft_model
        events = llm.events("abc", GREEDY)
        next(events)
        with pytest.raises(UsageError, match="being written"):
            llm.speculate(spec="off")


def test_seeds(target):
    """A seed is drawn for each answer and told; a fixed one moves on at regen only."""
    with LLM(target) as llm:
        chat = llm.chat_session(params=SamplingParams(max_tokens=8, ignore_eos=True))
        first = chat.send("Hello")
        again = chat.regen()
        assert first.seed != again.seed
        fixed = SamplingParams(max_tokens=8, ignore_eos=True, seed=first.seed)
        chat = llm.chat_session(params=fixed)
        assert chat.send("Hello").text == first.text
        assert chat.regen().seed == first.seed + 1


def test_g06_overflow_is_never_silent(target, fresh):
    """G-06: left-out turns are counted, the system message stays, other ways refuse or stop."""
    with LLM(target, ctx_size=96) as llm:
        chat = llm.chat_session(system="S", params=GREEDY)
        for number in range(6):
            turn = chat.send(f"message {number}")
            assert turn.text == fresh(expected(chat))
        assert chat.num_left_out > 0
        assert chat.messages[0] == {"role": "system", "content": "S"}
        assert len(chat.turns) == 6
        with pytest.raises(ContextLengthError, match="holds 96"):
            chat.send("x" * 200)
        assert len(chat.turns) == 6
        strict = llm.chat_session(params=GREEDY, ctx_overflow="error")
        with pytest.raises(ContextLengthError, match="the answer wants 20"):
            strict.send("x" * 75)
        stopping = llm.chat_session(params=GREEDY, ctx_overflow="stop")
        turn = stopping.send("x" * 75)
        assert turn.finish_reason == "length"
        assert len(turn.prompt_token_ids) + len(turn.token_ids) == 96


def test_defaults(target):
    """Without a recommendation the temperature is 0.7 and an answer has 2,048 tokens."""
    with LLM(target) as llm:
        chat = llm.chat_session()
    assert (chat.params.temperature, chat.params.max_tokens) == (0.7, 2048)


def test_nothing_to_undo(target):
    """Undo and regen need a turn."""
    with LLM(target) as llm:
        chat = llm.chat_session()
        with pytest.raises(UsageError, match="nothing to undo"):
            chat.undo()
        with pytest.raises(UsageError, match="no answer"):
            chat.regen()
