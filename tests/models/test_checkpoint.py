import json

import pytest

from spec_cli.core.errors import ModelUnavailableError, UntrustedCodeError, UsageError
from spec_cli.models.checkpoint import (
    INDEX_FILE,
    ModelFiles,
    check_folder,
    refuse_untrusted_code,
    summarize_weights,
    weight_files,
)
from tests.models.model_folders import edit_json, header_end, save_model


def files(path):
    return ModelFiles(name="some/model", path=path)


@pytest.fixture
def sharded(tmp_path):
    return save_model(tmp_path / "sharded", shard="6KB")


@pytest.fixture
def whole(tmp_path):
    return save_model(tmp_path / "whole")


def test_complete_folders_pass(sharded, whole):
    """A complete folder passes, in one file or in several, and both count the same weights."""
    check_folder(files(sharded))
    check_folder(files(whole))

    assert len(weight_files(sharded)) > 1
    one, many = summarize_weights(whole), summarize_weights(sharded)
    assert one == many
    assert one.dtype == "F32"
    assert one.num_bytes == 4 * one.num_parameters


def test_o02_missing_shard_is_named(sharded):
    """A shard that the index names and the folder lacks is an error with its name."""
    shard = weight_files(sharded)[1]
    shard.unlink()

    with pytest.raises(ModelUnavailableError, match=shard.name):
        check_folder(files(sharded))


@pytest.mark.parametrize("kept", [0, 5, 40, -1], ids=["nothing", "length", "header", "tensors"])
def test_o02_cut_shard_is_named(sharded, kept):
    """A shard cut short anywhere is an error with its name."""
    shard = weight_files(sharded)[0]
    shard.write_bytes(shard.read_bytes()[:kept])

    with pytest.raises(ModelUnavailableError, match=shard.name):
        check_folder(files(sharded))


def test_o02_cut_single_file_is_named(whole):
    """A single file cut within its tensors is an error that gives both sizes."""
    path = whole / "model.safetensors"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: header_end(path) + 8])

    with pytest.raises(ModelUnavailableError, match=rf"cut short.*{size:,}"):
        check_folder(files(whole))


def test_o02_tensor_missing_from_its_shard(sharded):
    """A tensor that the index promises and its shard lacks is an error with its name."""
    index = json.loads((sharded / INDEX_FILE).read_text())
    shard = weight_files(sharded)[0].name
    edit_json(sharded / INDEX_FILE, weight_map=index["weight_map"] | {"made.up": shard})

    with pytest.raises(ModelUnavailableError, match=r"made\.up"):
        check_folder(files(sharded))


def test_index_cannot_reach_out_of_the_folder(sharded):
    """An index whose file name leads to another folder is refused."""
    edit_json(sharded / INDEX_FILE, weight_map={"x": "../whole/model.safetensors"})

    with pytest.raises(ModelUnavailableError, match="bad file"):
        check_folder(files(sharded))


def test_foreign_bytes_are_no_weights(whole):
    """A web page saved under the name of the weights is an error, not a huge allocation."""
    (whole / "model.safetensors").write_text("<!DOCTYPE html><html>not found</html>")

    with pytest.raises(ModelUnavailableError, match="damaged"):
        check_folder(files(whole))


def test_missing_config_is_named(whole):
    """A folder without config.json says so."""
    (whole / "config.json").unlink()

    with pytest.raises(ModelUnavailableError, match=r"no config\.json"):
        check_folder(files(whole))


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_d05_broken_config_is_named(whole, text):
    """A config that is no JSON object is an error with its path."""
    (whole / "config.json").write_bytes(text.encode("latin-1"))

    with pytest.raises(ModelUnavailableError, match=str(whole / "config.json")):
        check_folder(files(whole))


def test_lora_folder_is_refused(whole):
    """A LoRA adapter is refused by that name, with what to do."""
    (whole / "config.json").rename(whole / "adapter_config.json")

    with pytest.raises(UsageError, match="LoRA") as caught:
        check_folder(files(whole))

    assert "Merge" in str(caught.value.hint)


@pytest.mark.parametrize("remote", [True, False], ids=["in the repository", "in the folder"])
def test_pickles_are_refused(whole, remote):
    """Weights that are there only as a pickle are refused, wherever the pickle is."""
    (whole / "model.safetensors").unlink()
    if not remote:
        (whole / "pytorch_model.bin").write_bytes(b"pickle")

    with pytest.raises(UsageError, match=r"pytorch_model\.bin"):
        check_folder(files(whole), remote_names=["pytorch_model.bin"] if remote else [])


def test_gguf_in_a_folder_is_named(whole):
    """A folder with a GGUF file instead of safetensors says how to name it."""
    (whole / "model.safetensors").rename(whole / "tiny.gguf")

    with pytest.raises(UsageError, match=r"tiny\.gguf"):
        check_folder(files(whole))


def test_no_weights_at_all(whole):
    """A folder with a config and nothing to load is incomplete."""
    (whole / "model.safetensors").unlink()

    with pytest.raises(ModelUnavailableError, match="neither"):
        check_folder(files(whole))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_o01_code_needs_permission(whole, file):
    """A config that names code is an error with the flag, unless permission was given."""
    edit_json(whole / file, auto_map={"AutoModelForCausalLM": "evil.Model"})

    with pytest.raises(UntrustedCodeError, match="auto_map") as caught:
        refuse_untrusted_code(files(whole), trust_remote_code=False)
    assert "--trust-remote-code" in str(caught.value.hint)
    refuse_untrusted_code(files(whole), trust_remote_code=True)
