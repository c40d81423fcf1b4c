"""A model spread by accelerate over memory and disk runs on the slot cache."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.hub import find_model
from spec_cli.models.loader import LoadOptions, load_model
from spec_cli.models.packing import pack_linears
from spec_cli.models.runner import ModelRunner
from tests.models.model_folders import ignore, llama_config, save_model


def test_layers_on_disk_give_the_same_logits(tmp_path: Path):
    """Ragged forwards of a model with layers on disk equal those of the plain model."""
    folder = save_model(tmp_path / "model", llama_config(num_hidden_layers=4))
    files = find_model(str(folder), report=ignore)
    options = LoadOptions(
        device="cpu", max_memory={"cpu": 12_000}, offload_folder=tmp_path / "offload"
    )
    loaded = load_model(files, options, ignore)
    places = set(loaded.model.hf_device_map.values())
    assert "disk" in places
    pack_linears(loaded.model, ignore)
    runner = ModelRunner(loaded.model, context_length=64, budget=MemoryBudget(1 << 30))
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rows = [runner.acquire([3], 32, 2) for _ in range(2)]
    tokens = [[3, 4, 5, 6, 7], [8, 9]]
    got = runner.forward(
        [RowInput(row, ids, len(ids)) for row, ids in zip(rows, tokens, strict=True) if row]
    )
    runner.truncate(rows[0], 3)  # type: ignore[arg-type]
    again = runner.forward([RowInput(rows[0], [10, 11], 2)])  # type: ignore[arg-type]
    with torch.inference_mode():
        want = torch.cat([plain(torch.tensor([ids])).logits[0] for ids in tokens])
        later = plain(torch.tensor([[3, 4, 5, 10, 11]])).logits[0, -2:]
    assert torch.allclose(got, want, atol=1e-4)
    assert torch.allclose(again, later, atol=1e-4)
