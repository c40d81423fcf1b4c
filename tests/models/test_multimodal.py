"""Multimodal checkpoints used as text: each kind works, or is refused by name."""

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForMultimodalLM

from spec_cli import LLM, SamplingParams
from spec_cli.core.errors import ModelUnavailableError, UsageError
from spec_cli.models.checkpoint import ModelFiles, summarize_weights
from spec_cli.models.generation_defaults import read_generation_defaults
from spec_cli.models.loader import LoadOptions, count_parameters, load_model
from spec_cli.models.model_config import cache_support, context_length, read_config
from spec_cli.models.multimodal import RUNS_AS_TEXT
from tests import tiny
from tests.models.model_folders import edit_json, ignore
from tests.models.multimodal_models import CONFIGS, save_multimodal

PROMPTS = [
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "Hello",
    "def add(a):",
]
GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
CPU = LoadOptions(device="cpu", dtype="float32")
HYBRID = ("qwen3_5", "qwen3_5_moe")
# transformers cannot generate() with the whole of Llama 4: an output of it lacks a field.
WITHOUT_GENERATE = ("llama4",)
ROLL_BACK = [kind for kind in CONFIGS if kind not in (*HYBRID, "llama4")]
# One with windows, one with nothing special, one with a class for the text alone, one with
# positions in three parts; the rest take too long for every run.
QUICK = ("gemma3", "llava", "mllama", "qwen2_5_vl")


def files(folder):
    return ModelFiles(name="some/model", path=folder)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a kind, saved once."""
    root = tmp_path_factory.mktemp("multimodal")

    def folder(kind):
        path = root / kind
        return path if path.exists() else save_multimodal(path, CONFIGS[kind]())

    return folder


def test_every_kind_that_runs_is_compared():
    """No kind is let through without the comparison below."""
    assert set(CONFIGS) == RUNS_AS_TEXT


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in CONFIGS],
)
def test_text_is_that_of_transformers(saved, kind):
    """Greedy text, alone and with lookup, is what the whole model writes by generate()."""
    folder = saved(kind)
    auto = AutoModelForCausalLM if kind in WITHOUT_GENERATE else AutoModelForMultimodalLM
    whole = auto.from_pretrained(folder, dtype=torch.float32).eval()
    whole.generation_config.eos_token_id = None

    with LLM(str(folder), dtype="float32", spec="ngram", num_draft_tokens=4) as llm:
        guessed = llm.generate(PROMPTS, GREEDY)
        llm.speculate(spec="off", num_draft_tokens="auto")
        alone = llm.generate(PROMPTS, GREEDY)
        notices = llm.assembly.notices

    for one, other in zip(guessed, alone, strict=True):
        want = tiny.reference(whole, list(one.prompt_token_ids), GREEDY.max_tokens)
        assert list(one.outputs[0].token_ids) == want
        assert list(other.outputs[0].token_ids) == want
    assert any(one.stats.num_draft_tokens for one in guessed) == (kind in ROLL_BACK)
    assert f"{folder} is a multimodal model" in notices[0]
    assert notices[0].endswith("run on text alone.")


@pytest.mark.parametrize("kind", CONFIGS)
def test_config_describes_the_text(saved, kind):
    """Context, cache and end tokens are those of the language model inside."""
    config = read_config(files(saved(kind)))

    assert context_length(config) == (256, None)
    rolls_back = "no_rollback" if kind in HYBRID else "rollback"
    assert cache_support(config)[0] == rolls_back


@pytest.mark.parametrize("kind", ["llava", "mllama", "qwen3_5"])
def test_count_is_of_what_is_loaded(saved, kind):
    """Memory is asked for the tensors that are loaded: a text class leaves those for images."""
    folder = saved(kind)
    loaded = load_model(files(folder), CPU, ignore)

    num_loaded = sum(parameter.numel() for parameter in loaded.model.parameters())
    num_stored = summarize_weights(folder).num_parameters
    assert count_parameters(files(folder), read_config(files(folder))) == num_loaded
    assert (num_loaded < num_stored) == (kind != "llava")


@pytest.mark.parametrize("kind", ["llava", "mllama"])
def test_weights_under_other_names_are_refused(saved, tmp_path, kind):
    """A language model whose weights are not found is an error, never one of random numbers."""
    for file in saved(kind).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("language_model.", "lm."): value for name, value in weights.items()}
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelUnavailableError, match=r"lacks \d+ tensors"):
        load_model(files(tmp_path), CPU, ignore)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("Qwen2AudioConfig", "Qwen2AudioForConditionalGeneration"),
        ("PaliGemmaConfig", "PaliGemmaForConditionalGeneration"),
        ("GitConfig", "GitForCausalLM"),
        ("Emu3Config", "Emu3ForConditionalGeneration"),
        ("Qwen2_5OmniThinkerConfig", "Qwen2_5OmniThinkerForConditionalGeneration"),
    ],
)
def test_other_kinds_are_refused_before_weights(tmp_path, config, named):
    """A kind that was not compared is refused by its class, and the kinds that run are named."""
    getattr(transformers, config)().save_pretrained(tmp_path)

    with pytest.raises(UsageError, match=rf"multimodal model \({named}\)") as caught:
        read_config(files(tmp_path))

    assert "some/model" in str(caught.value)
    assert "qwen2_5_vl" in str(caught.value.hint)


def test_end_tokens_of_both_parts_count(saved, tmp_path):
    """Checkpoints name end tokens beside the text's settings or among them; either ends."""
    config = CONFIGS["gemma3"]()
    config.save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", eos_token_id=[7, 8])

    found = read_generation_defaults(files(tmp_path), read_config(files(tmp_path)))

    assert found.end_token_ids == {7, 8, config.get_text_config().eos_token_id}
