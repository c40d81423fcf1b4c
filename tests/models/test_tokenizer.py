"""Prompts and conversations as tokens, and their failures in words."""

import logging
import os
import warnings

import pytest
from tokenizers import Tokenizer, models

from spec_cli.core.errors import UsageError
from spec_cli.models.tokenizer import TextTokenizer
from tests.models.small_tokenizers import KINDS, byte_level, named, sentencepiece_decoder, wrap

PLAIN = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
BEGINS = "{{ bos_token }}" + PLAIN
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}" + BEGINS
)
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/...') }}"
    "{% endif %}{% endfor %}" + PLAIN
)
USER = [{"role": "user", "content": "hello"}]
SYSTEM = {"role": "system", "content": "Be brief."}


def chatting(template: str | dict[str, str] | None) -> TextTokenizer:
    """A tokenizer that adds a begin token, with a chat template."""
    tokenizer = byte_level()
    tokenizer.chat_template = template
    return TextTokenizer(tokenizer, "org/tiny")


def test_t02_template_that_begins_with_bos_gives_it_once() -> None:
    """A template that writes the begin token is not given a second one."""
    tokenizer = chatting(BEGINS)

    token_ids = tokenizer.encode_chat(USER)

    assert token_ids[0] == tokenizer.bos_token_id
    assert token_ids.count(token_ids[0]) == 1
    assert tokenizer.decode(token_ids) == "[user] hello\n[assistant]"


def test_t02_template_without_bos_is_followed() -> None:
    """A template that writes no begin token gets none."""
    tokenizer = chatting(PLAIN)

    assert tokenizer.bos_token_id not in tokenizer.encode_chat(USER)


@pytest.mark.parametrize("kind", KINDS)
def test_t02_raw_prompt_has_bos_once(kind: str) -> None:
    """A raw prompt begins with one begin token, even if it is written out in the text."""
    tokenizer = named(kind)
    bos = tokenizer.bos_token_id

    for text in ("hello", "<s>hello"):
        token_ids = tokenizer.encode(text)
        assert (token_ids[0], token_ids.count(token_ids[0])) == (bos, 1)


def test_t02_raw_prompt_without_added_bos_is_left_alone() -> None:
    """A tokenizer that adds no begin token keeps those the prompt writes."""
    tokenizer = TextTokenizer(byte_level(adds_begin=False), "tiny")

    assert tokenizer.encode("<s><s>a")[:2] == [tokenizer.bos_token_id] * 2
    assert tokenizer.bos_token_id not in tokenizer.encode("hello")


def test_t01_template_that_forbids_the_system_role_is_quoted() -> None:
    """The message names the roles and the template's own words; the tokenizer still works."""
    tokenizer = chatting(NO_SYSTEM)

    with pytest.raises(
        UsageError, match=r"roles: system, user\): System role not supported\.$"
    ) as e:
        tokenizer.encode_chat([SYSTEM, *USER])

    assert "org/tiny" in str(e.value)
    assert e.value.hint is not None
    assert "system message" in e.value.hint
    assert tokenizer.encode_chat(USER)


def test_t01_two_user_turns_in_a_row_are_refused_in_words() -> None:
    """A template that wants alternating turns gives its message and a hint."""
    tokenizer = chatting(ALTERNATING)

    with pytest.raises(UsageError, match=r"roles: user, user\): Conversation roles must") as e:
        tokenizer.encode_chat([*USER, *USER])

    assert e.value.hint == "Let user and assistant messages alternate."


def test_t01_template_that_drops_the_system_message_is_refused() -> None:
    """A system message that would have no effect is an error, not silence."""
    template = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"

    with pytest.raises(UsageError, match="no place for a system message"):
        chatting(template).encode_chat([SYSTEM, *USER])


# As SmolVLM and LLaVA write theirs: given a string, they walk over its characters.
LOOP = (
    "{% for m in messages %}[{{ m.role }}]{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% elif part['type'] == 'text' %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endfor %}"
)
SELECTION = (
    "{% for m in messages %}[{{ m.role }}]"
    "{% for part in m.content | selectattr('type', 'equalto', 'text') %}{{ part['text'] }}"
    "{% endfor %}{% endfor %}"
)
# As Gemma 3 and Qwen2-VL write theirs.
EITHER = (
    "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
    "{% else %}{{ m.content[0].text }}!{% endif %}{% endfor %}"
)
REFUSES_STRINGS = (
    "{% for m in messages %}{% if m.content is string %}{{ raise_exception('parts only') }}"
    "{% endif %}[{{ m.role }}]{{ m.content[0].text }}{% endfor %}"
)


@pytest.mark.parametrize("template", [LOOP, SELECTION, EITHER, REFUSES_STRINGS])
def test_template_for_images_is_given_the_text(template: str) -> None:
    """A template that wants a list of parts gets one, and no message is lost without a word."""
    text = chatting(template).render_chat([SYSTEM, *USER])

    assert text == "[system]Be brief.[user]hello"


@pytest.mark.parametrize("template", ["{{ messages[9].content }}", "{{ 1 + 'a' }}", "{% if %}"])
def test_t01_broken_template_gives_one_message(template: str) -> None:
    """A template that fails by accident fails as plainly as one that refuses."""
    with pytest.raises(UsageError, match="chat template of org/tiny"):
        chatting(template).render_chat(USER)


@pytest.mark.parametrize("template", [None, {"tool_use": PLAIN}])
def test_tokenizer_without_chat_template_points_to_raw(template: dict[str, str] | None) -> None:
    """Without a template a conversation is refused, and the hint names the way out."""
    with pytest.raises(UsageError, match="has no chat template") as e:
        chatting(template).encode_chat(USER)

    assert "--raw" in (e.value.hint or "")


def test_named_templates_use_the_default_one() -> None:
    """Of several templates the one called `default` is meant."""
    tokenizer = chatting({"default": "{{ messages[0].content }}", "tool_use": PLAIN})

    assert tokenizer.render_chat(USER) == "hello"


def test_generation_prompt_can_be_left_out() -> None:
    """The answer's heading is written only on request."""
    tokenizer = chatting(PLAIN)

    assert tokenizer.render_chat(USER, add_generation_prompt=False) == "[user] hello\n"
    assert (
        tokenizer.encode_chat(USER, add_generation_prompt=False)
        == tokenizer.encode("[user] hello\n")[1:]
    )


def test_template_options_reach_the_template() -> None:
    """An option the template reads has its effect."""
    tokenizer = chatting(PLAIN + "{% if enable_thinking is false %}<think></think>{% endif %}")

    text = tokenizer.render_chat(USER, template_kwargs={"enable_thinking": False})

    assert text.endswith("<think></think>")
    assert not tokenizer.render_chat(USER).endswith("<think></think>")


@pytest.mark.parametrize("option", ["enable_thinking", "messages", "tokenize", "add_generation"])
def test_template_option_without_effect_is_refused(option: str) -> None:
    """An option the template does not read, or that is not the user's to set, is named."""
    with pytest.raises(UsageError, match=f"option '{option}'"):
        chatting(PLAIN).encode_chat(USER, template_kwargs={option: True})


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "at least one message"),
        ([{"role": "robot", "content": "a"}], "Message 0 has the role 'robot'"),
        ([*USER, {"content": "a"}], "Message 1 has the role None"),
        ([{"role": "user"}], "Message 0 .role user. needs a text"),
        ([{"role": "user", "content": ["a"]}], "needs a text as content"),
    ],
)
def test_malformed_message_is_named(messages, message: str) -> None:
    """Each way a conversation can be malformed is told by the message's number."""
    with pytest.raises(UsageError, match=message):
        chatting(PLAIN).encode_chat(messages)


@pytest.mark.parametrize("adds_begin", [True, False])
def test_g05_empty_prompt_starts_from_bos(adds_begin: bool) -> None:
    """An empty prompt becomes the begin token, whether or not the tokenizer adds it."""
    tokenizer = TextTokenizer(byte_level(adds_begin=adds_begin), "tiny")

    assert tokenizer.encode("") == [tokenizer.bos_token_id]


def test_g05_empty_prompt_without_bos_is_refused() -> None:
    """Without a begin token an empty prompt, or a template that writes nothing, is an error."""
    base = byte_level(adds_begin=False)
    base.bos_token = None
    base.chat_template = "{{ '' }}"
    tokenizer = TextTokenizer(base, "org/tiny")

    for encode in (lambda: tokenizer.encode(""), lambda: tokenizer.encode_chat(USER)):
        with pytest.raises(UsageError, match=r"prompt is empty, and org/tiny has no begin token"):
            encode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [" ", "\n", " \t \n"])
def test_g05_whitespace_prompt_works(kind: str, text: str) -> None:
    """White space alone is a prompt like any other."""
    tokenizer = named(kind)

    assert len(tokenizer.encode(text)) > 1


def test_prompt_of_broken_unicode_is_refused() -> None:
    """Half a surrogate pair, as from a badly decoded command line, gives a plain message."""
    with pytest.raises(UsageError, match="not valid Unicode: character 1"):
        named("byte-level").encode("a\udce9")


def test_long_prompt_gives_no_warning(caplog, capfd) -> None:
    """A prompt past the tokenizer's own limit is left to the model's context to judge."""
    base = byte_level()
    base.model_max_length = 4
    base.chat_template = PLAIN
    tokenizer = TextTokenizer(base, "tiny")

    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        tokenizer.encode("one two three four five six")
        tokenizer.encode_chat(USER)

    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_forking_is_quiet(monkeypatch) -> None:
    """Encoding uses no threads that a fork would have to warn about; a user's choice stands."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    TextTokenizer(byte_level(), "tiny")
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"

    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    TextTokenizer(byte_level(), "tiny")
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


def test_c05_no_pad_token_and_right_padding_change_nothing() -> None:
    """Encoding needs no pad token and adds none, whatever side the tokenizer would pad."""
    base = byte_level()
    base.padding_side = "right"
    tokenizer = TextTokenizer(base, "tiny")

    assert base.pad_token is None
    assert tokenizer.encode("hello") == named("byte-level").encode("hello")


def test_end_tokens_and_vocabulary() -> None:
    """The end tokens and every token by id, added ones too, can be read."""
    base = byte_level()
    base.add_tokens(["<extra>"])
    tokenizer = TextTokenizer(base, "tiny")

    assert [tokenizer.vocab[token_id] for token_id in tokenizer.end_token_ids] == ["</s>"]
    assert "<extra>" in tokenizer.vocab.values()
    assert len(tokenizer.vocab) == len(base)
    base.eos_token = None
    assert tokenizer.end_token_ids == frozenset()


def test_text_of_one_token() -> None:
    """A token is shown with its space, by its name if special, and as bytes if half a character."""
    tokenizer = named("byte-fallback")
    ids = {token: token_id for token_id, token in tokenizer.vocab.items()}

    assert tokenizer.token_text(ids["▁hello"]) == " hello"
    assert tokenizer.token_text(ids["</s>"]) == "</s>"
    assert tokenizer.token_text(ids["<0xE6>"]) == "<0xE6>"
    assert tokenizer.token_text(ids["<0x41>"]) == "A"
    assert tokenizer.token_text(10_000) == ""


def test_tokenizer_without_letters_still_reads() -> None:
    """A vocabulary in which no common character has a token can be decoded."""
    model = Tokenizer(models.WordLevel({"<unk>": 0, "▁東": 1}, unk_token="<unk>"))
    model.decoder = sentencepiece_decoder()
    tokenizer = TextTokenizer(wrap(model, unk_token="<unk>"), "tiny")
    stream = tokenizer.stream([0])

    for token_id in (1, 1):
        stream.push(token_id)

    assert "".join(piece.text for piece in stream.finish()) == "東 東"
