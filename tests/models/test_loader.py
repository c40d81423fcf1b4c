import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MambaConfig

from spec_cli.core.errors import (
    InsufficientMemoryError,
    ModelUnavailableError,
    UntrustedCodeError,
)
from spec_cli.core.progress import Stage
from spec_cli.models import memory
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.loader import LoadOptions, cache_support, load_model
from tests.models.model_folders import edit_json, ignore, llama_config, save_model, write_gguf

FP32 = LoadOptions(device="cpu", dtype="float32")
IDS = torch.tensor([[1, 5, 9]])


def files(folder, **more):
    return ModelFiles(name="some/model", path=folder, **more)


def logits(model):
    return model(IDS).logits


def test_loads_what_was_saved(tmp_path):
    """A model is loaded ready to run, with the numbers it was saved with, and says where."""
    save_model(tmp_path)
    stages: list[Stage] = []

    loaded = load_model(files(tmp_path), FP32, stages.append)

    expected = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert torch.equal(logits(loaded.model), logits(expected))
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.model.config._attn_implementation == "sdpa"
    assert (loaded.dtype, loaded.device) == (torch.float32, torch.device("cpu"))
    assert loaded.end_token_ids == {2}
    assert (loaded.context_length, loaded.notices) == (64, ())
    tensors = [*loaded.model.parameters(), *loaded.model.buffers()]
    assert loaded.num_bytes == sum(4 * tensor.numel() for tensor in tensors)
    assert [(stage.stage, stage.what) for stage in stages] == [("load", "some/model")]


def test_dtype_is_applied(tmp_path):
    """The weights have the format that was asked for."""
    save_model(tmp_path)

    loaded = load_model(files(tmp_path), LoadOptions(device="cpu", dtype="bf16"), ignore)

    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    assert loaded.dtype == torch.bfloat16


def test_o02_shards_equal_one_file(tmp_path):
    """A model in several files gives the same logits as in one."""
    whole = load_model(files(save_model(tmp_path / "whole")), FP32, ignore)
    sharded = load_model(files(save_model(tmp_path / "sharded", shard="6KB")), FP32, ignore)

    assert torch.equal(logits(whole.model), logits(sharded.model))


def test_loads_are_independent(tmp_path):
    """Two loads of one folder share no config, so what is set on one leaves the other alone."""
    save_model(tmp_path)

    first, second = (load_model(files(tmp_path), FP32, ignore) for _ in range(2))
    before = copy.deepcopy(second.config.to_dict())
    first.model.set_attn_implementation("eager")

    assert second.config.to_dict() == before
    assert second.config._attn_implementation == "sdpa"


def test_o02_missing_tensors_are_refused(tmp_path):
    """Weights that lack what the config asks for are refused, not filled with random numbers."""
    save_model(tmp_path)
    edit_json(tmp_path / "config.json", num_hidden_layers=3)

    with pytest.raises(ModelUnavailableError, match=r"lacks 9 tensors.*model\.layers\.2"):
        load_model(files(tmp_path), FP32, ignore)


def test_d05_wrong_shapes_name_the_folder(tmp_path):
    """Weights of another shape than the config's are an error with the folder."""
    save_model(tmp_path)
    edit_json(tmp_path / "config.json", intermediate_size=48)

    with pytest.raises(ModelUnavailableError, match=str(tmp_path)):
        load_model(files(tmp_path), FP32, ignore)


def test_unused_tensors_are_told(tmp_path):
    """Tensors that the config has no use for are told, with one of their names."""
    save_model(tmp_path)
    edit_json(tmp_path / "config.json", num_hidden_layers=1)

    (notice,) = load_model(files(tmp_path), FP32, ignore).notices

    assert "9 tensors" in notice
    assert "model.layers.1" in notice


def test_o01_model_code_is_not_run(tmp_path):
    """Code that comes with weights does not run without permission."""
    save_model(tmp_path)
    marker = tmp_path / "marker"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Model: pass\n")
    edit_json(tmp_path / "config.json", auto_map={"AutoModelForCausalLM": "evil.Model"})

    with pytest.raises(UntrustedCodeError):
        load_model(files(tmp_path), FP32, ignore)
    assert not marker.exists()


def test_too_little_memory_is_refused_before_loading(tmp_path, monkeypatch):
    """Weights that do not fit are refused with both amounts, before they are read."""
    save_model(tmp_path)
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    stages: list[Stage] = []

    with pytest.raises(
        InsufficientMemoryError, match=r"float32: need 19\.8 kB, free 1\.0 kB"
    ) as caught:
        load_model(files(tmp_path), FP32, stages.append)

    assert "--dtype bfloat16" in str(caught.value.hint)
    assert stages == []


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("x")]
)
def test_failures_while_loading_are_told_apart(tmp_path, monkeypatch, error):
    """Memory that runs out while loading is exit code 5, any other failure is 3 with the folder."""
    save_model(tmp_path)

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fail)
    expected = ModelUnavailableError if str(error) == "x" else InsufficientMemoryError

    with pytest.raises(expected, match="some/model"):
        load_model(files(tmp_path), FP32, ignore)


def test_t06_defaults_come_with_the_model(tmp_path):
    """End tokens of both files, recommended sampling and unknown fields come with the model."""
    save_model(tmp_path)
    edit_json(
        tmp_path / "generation_config.json",
        eos_token_id=[2, 5],
        do_sample=True,
        temperature=0.7,
        no_repeat_ngram_size=2,
    )

    loaded = load_model(files(tmp_path), FP32, ignore)

    assert loaded.end_token_ids == {2, 5}
    assert loaded.generation_defaults == {"do_sample": True, "temperature": 0.7}
    assert loaded.ignored_fields == ("no_repeat_ngram_size",)


def test_gguf_is_dequantised(tmp_path, capsys):
    """A GGUF file is loaded dense, says so, keeps its end token, and draws no bar."""
    write_gguf(tmp_path / "tiny.gguf")

    loaded = load_model(files(tmp_path, gguf_file="tiny.gguf", source="gguf"), FP32, ignore)

    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}
    assert loaded.end_token_ids == {2}
    assert "dequantised from tiny.gguf" in loaded.notices[0]
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_weights_may_live_on_disk(tmp_path):
    """A model spread over memory and disk gives the logits of one in memory."""
    config = llama_config(hidden_size=64, intermediate_size=128, num_hidden_layers=4)
    save_model(tmp_path / "model", config)
    options = LoadOptions(
        device="cpu",
        dtype="float32",
        max_memory={"cpu": 300_000},
        offload_folder=tmp_path / "offload",
    )

    spread = load_model(files(tmp_path / "model"), options, ignore)
    whole = load_model(files(tmp_path / "model"), FP32, ignore)

    assert "disk" in spread.model.hf_device_map.values()
    assert torch.equal(logits(spread.model), logits(whole.model))


def test_softcap_model_is_loaded_without_sdpa(tmp_path):
    """A model that has no SDPA of its own is loaded all the same."""
    config = Gemma2Config(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    save_model(tmp_path, config)

    assert load_model(files(tmp_path), FP32, ignore).config._attn_implementation == "eager"


def test_c02_recurrent_model_is_loaded_and_known(tmp_path):
    """A recurrent model can be loaded; its config says that it cannot roll back."""
    save_model(tmp_path, MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2))

    loaded = load_model(files(tmp_path), FP32, ignore)

    assert cache_support(loaded.config)[0] == "no_rollback"


def test_saved_config_class_is_kept(tmp_path):
    """The config of a loaded model is of the class it was saved with."""
    save_model(tmp_path)

    loaded = load_model(files(tmp_path), FP32, ignore)

    assert isinstance(loaded.text_config, LlamaConfig)
