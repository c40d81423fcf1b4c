import pytest
import transformers
from transformers import AutoConfig

from spec_cli.core.errors import ModelUnavailableError, UntrustedCodeError, UsageError
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.model_config import (
    NO_STATED_LIMIT,
    cache_support,
    context_length,
    read_config,
)
from tests.models.model_folders import edit_json, llama_config, write_gguf


def saved(folder, config):
    config.save_pretrained(folder)
    return ModelFiles(name="some/model", path=folder)


def test_config_is_read(tmp_path):
    """A config is read as it was saved, and each reading gives an object of its own."""
    files = saved(tmp_path, llama_config(vocab_size=50))

    first, second = read_config(files), read_config(files)

    assert first.vocab_size == 50
    assert first is not second


def test_gguf_config_is_read(tmp_path):
    """The metadata of a GGUF file become a config, end token included."""
    write_gguf(tmp_path / "tiny.gguf")

    config = read_config(ModelFiles(name="tiny", path=tmp_path, gguf_file="tiny.gguf"))

    assert (config.model_type, config.hidden_size, config.eos_token_id) == ("llama", 32, 2)


def test_o01_code_is_not_run(tmp_path):
    """Code of a folder does not run when its config is read, and no question is asked."""
    files = saved(tmp_path, llama_config())
    marker = tmp_path / "marker"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Config: pass\n")
    edit_json(tmp_path / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config"})

    with pytest.raises(UntrustedCodeError):
        read_config(files)
    assert not marker.exists()


@pytest.mark.parametrize(
    "changes",
    [{"model_type": "from the future"}, {"model_type": None}, {"num_attention_heads": "many"}],
    ids=["unknown type", "no type", "wrong value"],
)
def test_d05_broken_config_names_its_path(tmp_path, changes):
    """A config that transformers cannot use is an error with its path."""
    files = saved(tmp_path, llama_config())
    edit_json(tmp_path / "config.json", **changes)

    with pytest.raises(ModelUnavailableError, match=str(tmp_path / "config.json")):
        read_config(files)


@pytest.mark.parametrize("within", [False, True], ids=["top", "text_config"])
def test_quantised_is_refused(tmp_path, within):
    """A quantised checkpoint is refused by its method."""
    files = saved(tmp_path, llama_config())
    field = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    edit_json(tmp_path / "config.json", **({"text_config": field} if within else field))

    with pytest.raises(UsageError, match="awq"):
        read_config(files)


def test_null_quantisation_is_none(tmp_path):
    """A field that says "not quantised" refuses nothing."""
    files = saved(tmp_path, llama_config())
    edit_json(tmp_path / "config.json", quantization_config=None)

    assert read_config(files).vocab_size == 32


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("T5Config", "encoder-decoder"),
        ("WhisperConfig", "encoder-decoder"),
        ("CLIPConfig", "no text generator"),
        ("ViTConfig", "vit"),
    ],
)
def test_other_kinds_are_refused(tmp_path, kind, message):
    """Encoder-decoders and models that make no text are refused by name."""
    files = saved(tmp_path, getattr(transformers, kind)())

    with pytest.raises(UsageError, match=message):
        read_config(files)


@pytest.mark.parametrize("kind", ["openai-gpt", "rwkv", "xlnet"])
def test_models_without_a_cache_are_refused(tmp_path, kind):
    """A model that would drop our cache, and read each token by itself, is refused by name."""
    files = saved(tmp_path, AutoConfig.for_model(kind))

    with pytest.raises(UsageError, match=f"{kind}, which takes no cache"):
        read_config(files)


@pytest.mark.parametrize(
    "kind", ["llama", "qwen3", "mistral", "gemma2", "gpt2", "opt", "mixtral", "gpt_oss", "phi3"]
)
def test_attention_rolls_back(kind):
    """Full and windowed attention can forget by length."""
    assert cache_support(AutoConfig.for_model(kind)) == ("rollback", None)


@pytest.mark.parametrize(
    "kind", ["mamba", "mamba2", "jamba", "rwkv", "qwen3_next", "falcon_h1", "recurrent_gemma"]
)
def test_c02_recurrent_state_does_not_roll_back(kind):
    """Recurrent and hybrid models are known by their config, with a reason that names the type."""
    support, reason = cache_support(AutoConfig.for_model(kind))

    assert support == "no_rollback"
    assert reason is not None
    assert kind in reason
    assert "recurrent state that cannot be rolled back" in reason


def test_c02_convolutions_do_not_roll_back():
    """Convolutional layers keep state as well."""
    config = transformers.Lfm2Config(num_hidden_layers=2, layer_types=["conv", "full_attention"])

    assert cache_support(config)[0] == "no_rollback"


@pytest.mark.parametrize(("kind", "reason"), [("bloom", "position"), ("deepseek_v32", "cache")])
def test_other_caches_are_unsupported(kind, reason):
    """Models that fit into no packed row are known by their config."""
    support, said = cache_support(AutoConfig.for_model(kind))

    assert support == "unsupported"
    assert reason in str(said)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (llama_config(max_position_embeddings=77), 77),
        (transformers.GPT2Config(n_positions=99), 99),
        (transformers.MambaConfig(), NO_STATED_LIMIT),
    ],
)
def test_context_length(config, expected):
    """The limit is found under its names, and no limit is no limit."""
    assert context_length(config) == (expected, None)


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_length_dependent_positions_are_capped(kind):
    """Positions that depend on the longest row stay below their original length, and say so."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4} if kind == "longrope" else {}
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0}
    config = llama_config(
        max_position_embeddings=256,
        rope_parameters=rope | factors | {"original_max_position_embeddings": 64},
    )

    limit, notice = context_length(config)

    assert limit == 64
    assert notice is not None
    assert "64 instead of 256" in notice


def test_yarn_is_not_capped():
    """Positions that are rescaled once and for all keep their full length."""
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    config = llama_config(
        max_position_embeddings=256, rope_parameters=rope | {"original_max_position_embeddings": 64}
    )

    assert context_length(config) == (256, None)
