"""The public Python API on tiny saved models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MambaConfig

from spec_cli import LLM, SamplingParams, SpecCliError, TextDelta
from spec_cli.core.errors import (
    ContextLengthError,
    DraftIncompatibleError,
    InsufficientMemoryError,
    ModelUnavailableError,
    UsageError,
)
from spec_cli.core.events import RequestFinished, RequestStarted, StepFinished, TokensEmitted
from spec_cli.engine.intake import Prompt
from tests.folders import save_text_model, text_config
from tests.models.small_tokenizers import byte_level

PROMPTS = ["Hello, my name is", "The capital of France is", "one two one two one two", "😀 é"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> str:
    """A tiny Llama with a chat template."""
    return str(save_text_model(tmp_path_factory.mktemp("target")))


@pytest.fixture(scope="module")
def draft(tmp_path_factory) -> str:
    """Another one of other weights and shape, with the same tokenizer."""
    return str(
        save_text_model(tmp_path_factory.mktemp("draft"), text_config(hidden_size=16), seed=1)
    )


def plain_answers(folder: str, prompts: list[str], params: SamplingParams) -> list[str]:
    """Answers of the target alone."""
    with LLM(folder, spec="off") as llm:
        return [output.text for output in llm.generate(list(prompts), params)]


def test_first_users_script(target, draft):
    """The four-prompt script of the first users runs, and prints a prompt and a text for each."""
    prompts = [
        "Hello, my name is",
        "The president of the United States is",
        "The capital of France is",
        "The future of AI is",
    ]
    sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
    llm = LLM(model=target, speculative_model=draft, num_speculative_tokens=5)
    outputs = llm.generate(prompts, sampling_params)
    for output, prompt in zip(outputs, prompts, strict=True):
        assert output.prompt == prompt
        assert isinstance(output.outputs[0].text, str)
        assert output.outputs[0].text == output.text
        assert output.prompt_token_ids == tuple(byte_level()(prompt)["input_ids"])


@pytest.mark.parametrize(
    "params",
    [GREEDY, SamplingParams(temperature=1.0, top_p=0.9, seed=3, max_tokens=24, ignore_eos=True)],
    ids=["greedy", "sampled"],
)
def test_text_is_the_same_with_every_proposer(target, draft, params):
    """Coupled verification gives the target's own text, whoever guesses and however much."""
    want = plain_answers(target, PROMPTS, params)
    for options in (
        {"spec": "ngram"},
        {"spec": "ngram", "num_draft_tokens": 7},
        {"draft_model": draft, "num_draft_tokens": 3},
        {"draft_model": target, "num_draft_tokens": 8},
        {"draft_model": draft},
        {"k_schedule": "1-2:6,3-:2"},
    ):
        with LLM(target, **options) as llm:
            assert [o.text for o in llm.generate(list(PROMPTS), params)] == want, options


def test_tokens_equal_transformers_generate(target):
    """Greedy token ids of the API are those of transformers' generate() on the same folder."""
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    with LLM(target, num_draft_tokens=5) as llm:
        outputs = llm.generate(list(PROMPTS), GREEDY)
    for output in outputs:
        ids = torch.tensor([output.prompt_token_ids])
        want = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert list(output.outputs[0].token_ids) == want[0, ids.shape[1] :].tolist()


def test_stream_joins_to_the_text_and_tells_origins(target):
    """The deltas of a stream join to the text of generate, and name who guessed each piece."""
    with LLM(target, draft_model=target, num_draft_tokens=4) as llm:
        deltas = list(llm.stream(PROMPTS[0], GREEDY))
        want = llm.generate(PROMPTS[0], GREEDY)[0].text
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert "".join(delta.text for delta in deltas) == want
    assert {delta.source for delta in deltas} == {"draft", "target"}


def test_events_of_a_request_come_in_order(target):
    """A request starts before its tokens, and ends after the last of its text."""
    with LLM(target) as llm:
        events = list(llm.events(PROMPTS[2], GREEDY))
    kinds = [type(event) for event in events]
    assert kinds[0] is RequestStarted
    assert kinds.index(TokensEmitted) < kinds.index(TextDelta) < kinds.index(RequestFinished)
    assert kinds[-1] is StepFinished
    tokens = [t for e in events if isinstance(e, TokensEmitted) for t in e.tokens]
    assert len(tokens) == 24


def test_second_turn_reuses_the_cache(target, draft):
    """A prompt that begins with an earlier one and its answer prefills only what is new."""
    with LLM(target, draft_model=draft, num_draft_tokens=2) as llm:
        first = llm.generate(PROMPTS[0], GREEDY)[0]
        tokens = [*first.prompt_token_ids, *first.outputs[0].token_ids]
        longer = [*tokens, 70, 71, 72]
        second = llm.generate({"prompt_token_ids": longer}, GREEDY)[0]
    assert second.stats.num_cached_tokens == len(tokens) - 1
    with LLM(target, spec="off") as llm:
        fresh = llm.generate({"prompt_token_ids": longer}, GREEDY)[0]
    assert second.outputs[0].token_ids == fresh.outputs[0].token_ids


def test_interrupt_keeps_what_was_generated(target):
    """An interrupt ends the answer after the current step and keeps its text."""
    with LLM(target, spec="off") as llm:
        events = llm.events(PROMPTS[0], GREEDY)
        text = ""
        for event in events:
            if isinstance(event, TextDelta):
                text += event.text
                llm.interrupt()
            if isinstance(event, RequestFinished):
                assert event.reason == "interrupted"
                assert 0 < event.stats.num_output_tokens < 24
        assert plain_answers(target, PROMPTS[:1], GREEDY)[0].startswith(text)
        assert llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].finish_reason == "length"


def test_leaving_a_stream_early_frees_the_llm(target):
    """After a stream is closed half-way the next call runs as if nothing had been."""
    with LLM(target) as llm:
        stream = llm.stream(PROMPTS[0], GREEDY)
        next(stream)
        with pytest.raises(UsageError, match="busy"):
            llm.generate(PROMPTS[1], GREEDY)
        stream.close()
        assert llm.generate(PROMPTS[1], GREEDY)[0].text


def test_chat_applies_the_template(target):
    """`chat` answers the rendered conversation, begin token once (T-02)."""
    messages = [{"role": "user", "content": "Hi"}]
    with LLM(target) as llm:
        output = llm.chat(messages, GREEDY)[0]
        several = llm.chat([messages, messages], GREEDY)
    assert output.prompt == "<user>Hi\n<assistant>"
    assert [o.text for o in several] == [output.text] * 2


def test_seeds(target):
    """P-04: a seed repeats, 0 is one, another differs, none varies, and none is reported."""
    sampled: dict[str, Any] = {"temperature": 1.0, "max_tokens": 16, "ignore_eos": True}
    with LLM(target) as llm:

        def text(seed: int | None) -> str:
            return llm.generate(PROMPTS[0], SamplingParams(seed=seed, **sampled))[0].text

        zero = text(0)
        assert text(0) == zero
        assert text(1) != zero
        free = [llm.generate(PROMPTS[0], SamplingParams(**sampled))[0] for _ in range(5)]
        assert len({output.text for output in free}) > 1
        again = llm.generate(PROMPTS[0], SamplingParams(seed=free[0].outputs[0].seed, **sampled))
        assert again[0].text == free[0].text
        batch = llm.generate(
            [PROMPTS[1], PROMPTS[0], PROMPTS[2]], SamplingParams(seed=0, **sampled)
        )
        assert batch[1].text == zero


def test_unknown_options_are_type_errors(target):
    """An option that does not exist is refused by name; vLLM's own get a hint."""
    with pytest.raises(TypeError, match="no option 'temprature'"):
        LLM(target, temprature=1)
    with pytest.raises(TypeError, match=r"use_v2_block_manager.*drop it"):
        LLM(target, use_v2_block_manager=True)


def test_names_of_vllm(target, draft):
    """The names of vLLM mean ours, `[ngram]` is lookup, and giving both names is refused."""
    with LLM(target, speculative_model="[ngram]", num_speculative_tokens=4) as llm:
        assert (llm.config.proposer, llm.config.num_draft_tokens) == ("ngram", 4)
    with pytest.raises(UsageError, match="speculative_model and draft_model"):
        LLM(target, draft_model=draft, speculative_model=draft)
    with pytest.raises(UsageError, match="num_speculative_tokens and num_draft_tokens"):
        LLM(target, num_draft_tokens=3, num_speculative_tokens=3)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"num_draft_tokens": 0}, "num_draft_tokens"),
        ({"num_draft_tokens": 33}, "num_draft_tokens"),
        ({"spec": "draft"}, "draft model"),
        ({"spec": "magic"}, "spec"),
        ({"draft_p_min": 0.5}, "draft_p_min"),
        ({"spec": "off", "num_draft_tokens": 4}, "num_draft_tokens"),
        ({"ngram_min": 4}, "ngram_min"),
        ({"k_schedule": "1-4:5"}, "schedule"),
        ({"k_schedule": "1-:5", "num_draft_tokens": 3}, "k_schedule"),
        ({"ctx_size": 512}, "ctx_size"),
        ({"memory_bytes": 1000}, "weights"),
        ({"device": "mps"}, "mps"),
    ],
)
def test_bad_options_are_named(target, options, word):
    """A value out of range, or an option without effect, is an error that names it."""
    with pytest.raises(SpecCliError, match=word):
        LLM(target, **options)


def test_prompt_that_does_not_fit(target):
    """G-06: a prompt past the context is refused with both numbers; a long answer is clamped."""
    with LLM(target, ctx_size=32) as llm:
        ids = list(range(3, 43))
        with pytest.raises(ContextLengthError, match=r"40 tokens.*holds 32"):
            llm.generate({"prompt_token_ids": ids}, GREEDY)
        with pytest.raises(ContextLengthError, match="prompt 2 of 2"):
            llm.generate([PROMPTS[0], {"prompt_token_ids": ids}], GREEDY)
        clamped = llm.generate({"prompt_token_ids": ids[:30]}, GREEDY)[0]
        assert len(clamped.outputs[0].token_ids) == 2
        assert clamped.outputs[0].finish_reason == "length"


def test_memory_that_never_suffices(target):
    """A request whose cache can never fit says how much would; a smaller one runs."""
    with LLM(target) as llm:
        llm.assembly.budget.total_bytes = 64 * 2 * 2 * 2 * 8 * 4
        with pytest.raises(InsufficientMemoryError, match="key-value cache"):
            llm.generate(PROMPTS[0], SamplingParams(max_tokens=200))
        assert llm.generate("a", SamplingParams(max_tokens=8))[0].text is not None


def test_d05_draft_that_fails_to_load_is_named(target, draft, tmp_path):
    """D-05: a draft that is not there or broken is an error that names it."""
    with pytest.raises(ModelUnavailableError, match=r"draft model \./nope"):
        LLM(target, draft_model="./nope")
    broken = save_text_model(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    with pytest.raises(ModelUnavailableError, match="draft model"):
        LLM(target, draft_model=str(broken))


def test_d03_swapped_ids_are_refused_before_weights(target, tmp_path):
    """D-03: a draft whose ids mean other texts is refused with the first id and both texts."""
    other = save_text_model(tmp_path / "other")
    text = (other / "tokenizer.json").read_text()
    assert '"a": ' in text
    swapped = (
        text.replace('"!": ', '"\x00": ').replace('"a": ', '"!": ').replace('"\x00": ', '"a": ')
    )
    (other / "tokenizer.json").write_text(swapped)
    (other / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(SpecCliError) as caught:
        LLM(target, draft_model=str(other))
    assert isinstance(caught.value, DraftIncompatibleError | ModelUnavailableError)


def test_c02_recurrent_target_runs_without_speculation(tmp_path):
    """C-02: a model that cannot roll back gives its own text, with speculation off and said so."""
    config = MambaConfig(
        vocab_size=len(byte_level()), hidden_size=16, num_hidden_layers=2, state_size=4
    )
    folder = save_text_model(tmp_path / "mamba", config)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with LLM(str(folder), num_draft_tokens=4) as llm:
        assert any("cannot be rolled back" in notice for notice in llm.assembly.notices)
        events = list(llm.events(PROMPTS[:2], GREEDY))
    states = {event.state.mode for event in events if isinstance(event, StepFinished)}
    assert states == {"off"}
    for number, prompt in enumerate(PROMPTS[:2]):
        ids = torch.tensor([byte_level()(prompt)["input_ids"]])
        want = model.generate(
            ids, max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        got = [
            token.token_id
            for event in events
            if isinstance(event, TokensEmitted) and event.request_id.endswith(str(number))
            for token in event.tokens
        ]
        assert got == want[0, ids.shape[1] :].tolist()


def test_c02_recurrent_draft_is_refused(target, tmp_path):
    """C-02: a draft model that cannot roll back is refused by name."""
    config = MambaConfig(
        vocab_size=len(byte_level()), hidden_size=16, num_hidden_layers=2, state_size=4
    )
    folder = save_text_model(tmp_path / "mamba", config)
    with pytest.raises(UsageError, match=r"draft model .*cannot be rolled back"):
        LLM(target, draft_model=str(folder))


def test_llama2_and_llama68m_shapes(tmp_path):
    """The first pair: same tokenizer, other bos and pad ids, half the context, other shapes."""
    common = {"initializer_range": 0.3, "vocab_size": len(byte_level())}
    big = LlamaConfig(
        **common,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
        intermediate_size=96,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=2,
    )
    small = LlamaConfig(
        **common,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        intermediate_size=32,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
    )
    target = str(save_text_model(tmp_path / "llama-2-7b-chat", big))
    draft = str(save_text_model(tmp_path / "llama-68m", small, seed=1))
    numbers = torch.Generator().manual_seed(0)
    near_end = torch.randint(3, 300, (2036,), generator=numbers).tolist()
    prompts: list[Prompt] = [{"prompt_token_ids": near_end}, PROMPTS[0]]
    with LLM(target, spec="off") as llm:
        want = [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)]
    with LLM(target, draft_model=draft, num_draft_tokens=4) as llm:
        outputs = llm.generate(prompts, GREEDY)
    assert [output.outputs[0].token_ids for output in outputs] == want
    assert "2,048" in (outputs[0].stats.draft_ended or "")
    assert outputs[1].stats.draft_ended is None
    assert outputs[1].stats.num_target_passes == outputs[1].stats.num_spec_steps + 1


def test_default_params_follow_generation_config(tmp_path):
    """Fields of generation_config are the defaults; one not honoured is told before a token."""
    folder = Path(save_text_model(tmp_path / "model"))
    (folder / "generation_config.json").write_text(
        '{"do_sample": true, "temperature": 0.6, "top_k": 20, "no_repeat_ngram_size": 3}'
    )
    with LLM(str(folder)) as llm:
        params = llm.default_params(max_tokens=4)
        assert (params.temperature, params.top_k, params.max_tokens) == (0.6, 20, 4)
        assert any("no_repeat_ngram_size" in notice for notice in llm.assembly.notices)


def test_speculation_changes_without_reloading(target, draft):
    """Switching proposer and draft length keeps the target, its cache and its text."""
    with LLM(target, spec="off") as llm:
        weights = llm.assembly.target.model
        want = llm.generate(PROMPTS[0], GREEDY)[0].text
        for changes in (
            {"spec": "ngram", "num_draft_tokens": 4},
            {"spec": "draft", "draft_model": draft, "num_draft_tokens": 3},
            {"spec": "off", "num_draft_tokens": "auto"},
        ):
            llm.speculate(**changes)
            output = llm.generate(PROMPTS[0], GREEDY)[0]
            assert output.text == want
            assert output.stats.num_cached_tokens == len(output.prompt_token_ids) - 1
            assert llm.assembly.target.model is weights
        with pytest.raises(ModelUnavailableError, match="draft model"):
            llm.speculate(spec="draft", draft_model="./nope")
        assert llm.assembly.spec == "off"
        with pytest.raises(TypeError, match="dtype"):
            llm.speculate(dtype="float32")


def test_another_way_remembers_the_answers(target, draft):
    """What was answered before is looked up by whatever way comes next, switched off or not."""
    with LLM(target, spec="suffix", num_draft_tokens=4) as llm:
        first = llm.generate(PROMPTS[0], GREEDY)[0]
        for changes in (
            {"num_draft_tokens": 6},
            {"spec": "off", "num_draft_tokens": "auto"},
            {"spec": "hybrid", "num_draft_tokens": 5, "draft_model": draft},
        ):
            llm.speculate(**changes)
            again = llm.generate(PROMPTS[0], GREEDY)[0]
            assert again.text == first.text
            known = again.stats.num_accepted_draft_tokens
            assert llm.assembly.spec == "off" or known > GREEDY.max_tokens / 2
        assert first.stats.num_accepted_draft_tokens < GREEDY.max_tokens / 2


def test_closed_llm_says_so(target):
    """A closed LLM frees its models and refuses further work."""
    llm = LLM(target)
    llm.close()
    llm.close()
    with pytest.raises(UsageError, match="closed"):
        llm.generate("a", GREEDY)
