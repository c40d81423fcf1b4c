"""`spec-cli models` over a cache of tiny models."""

import shutil
from typing import Any

import pytest
from transformers import MambaConfig

from tests.cli.running import invoke, invoke_json
from tests.folders import save_text_model, text_config
from tests.models.small_tokenizers import byte_level


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Any:
    """A Hugging Face cache: a target, a small draft, one of another kind, one without weights."""
    cache = tmp_path_factory.mktemp("hub")
    configs = {
        "org/target": text_config(hidden_size=64),
        "org/small": text_config(hidden_size=16),
        "org/mamba": MambaConfig(
            vocab_size=len(byte_level()), hidden_size=16, num_hidden_layers=1, state_size=4
        ),
        "org/empty": text_config(),
    }
    for name, config in configs.items():
        folder = cache / f"models--{name.replace('/', '--')}"
        snapshot = folder / "snapshots" / ("a" * 40)
        save_text_model(snapshot, config)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("a" * 40)
    (cache / "models--org--empty" / "snapshots" / ("a" * 40) / "model.safetensors").unlink()
    return cache


def test_lists_what_is_cached(cache):
    """Models with weights, smallest first, with their size."""
    rows = invoke_json("models", "--cache-dir", cache)["models"]
    assert {row["id"] for row in rows} == {"org/target", "org/small", "org/mamba"}
    assert [row["bytes"] for row in rows] == sorted(row["bytes"] for row in rows)
    assert rows[-1]["id"] == "org/target"
    assert all(row["revision"] == "a" * 40 for row in rows)
    assert "org/small" in invoke("models", "--cache-dir", cache).output


def test_judges_drafts(cache):
    """Those that fit come first, smallest first; the others say why not."""
    rows = invoke_json("models", "--for", "org/target", "--cache-dir", cache)["models"]
    assert [(row["id"], row["fits"]) for row in rows] == [("org/small", True), ("org/mamba", False)]
    assert "cannot be rolled back" in rows[1]["reason"]
    shown = invoke("models", "--for", "org/target", "--cache-dir", cache).output
    assert "fits, " in shown
    assert "does not fit" in shown


def test_unknown_target_and_empty_cache(cache, tmp_path):
    """A target that is not cached is an error; an empty cache is told."""
    result = invoke("models", "--for", "org/nowhere", "--cache-dir", cache)
    assert result.exit_code == 3
    assert "No model is cached" in invoke("models", "--cache-dir", tmp_path).output
    shutil.rmtree(tmp_path)
    assert "No model is cached" in invoke("models", "--cache-dir", tmp_path / "gone").output
