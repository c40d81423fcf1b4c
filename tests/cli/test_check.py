"""`spec-cli check` on tiny models."""

import json
import shutil
from pathlib import Path

import pytest

from spec_cli.models import loader
from tests.cli.running import invoke, invoke_json
from tests.folders import save_text_model, text_config
from tests.models.model_folders import edit_json


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading weights fails the test."""
    monkeypatch.delattr(loader, "auto_class")


def test_pair_that_fits(model: Path, tmp_path: Path) -> None:
    """Sizes, context, cache, end tokens and the tokenizers' comparison, without loading weights."""
    draft = save_text_model(tmp_path / "draft", text_config(num_hidden_layers=1))

    report = invoke_json("check", "-m", model, "-d", draft)

    assert report["fits"] is True
    target = report["target"]
    config = text_config()
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * 8 * 4
    assert target["kv_bytes_per_1k_tokens"] == 1000 * per_token
    assert target["weight_bytes"] == 4 * target["num_parameters"]
    assert target["context_length"] == 256
    assert target["cache"] == "rollback"
    assert target["end_tokens"] == {str(config.eos_token_id): "</s>"}
    assert report["pair"]["shared_token_ids"] == target["vocab_rows"]
    assert report["memory"]["kv_bytes_at_ctx"] == (per_token + per_token // 2) * 256
    assert any("% of the target's parameters" in tip for tip in report["tips"])


def test_table_says_the_same(model: Path) -> None:
    """The text names model, memory and context, and says that it runs."""
    result = invoke("check", "-m", model, "--plain")

    assert result.exit_code == 0
    assert result.stdout.endswith("This runs.\n")
    for word in ("KV per 1k tokens", "256 tokens", "</s>", "free memory"):
        assert word in result.stdout
    assert result.stdout.isascii()


def test_pair_that_does_not_fit(model: Path, tmp_path: Path) -> None:
    """D-03: ids of another meaning are exit code 4; the target is described all the same."""
    draft = tmp_path / "draft"
    shutil.copytree(model, draft)
    content = json.loads((draft / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (draft / "tokenizer.json").write_text(json.dumps(content))

    result = invoke("check", "-m", model, "-d", draft, "--json")

    assert result.exit_code == 4
    report = json.loads(result.stdout)
    assert report["fits"] is False
    assert report["problems"][0]["code"] == "draft_incompatible"
    assert report["target"]["context_length"] == 256
    assert "first differing id" in result.stderr


def test_missing_models(model: Path) -> None:
    """A target that is not there is exit code 3, a draft likewise."""
    assert invoke("check", "-m", "./nope").exit_code == 3
    result = invoke("check", "-m", model, "-d", "./nope")
    assert result.exit_code == 3
    assert "draft model ./nope" in result.stderr


def test_too_little_memory(model: Path) -> None:
    """Exit code 5 with what is needed, what is free, and the context that would fit."""
    result = invoke("check", "-m", model, "--memory", "190kB", "-c", 256)

    assert result.exit_code == 5
    assert "need" in result.stderr
    assert "free 190 kB" in result.stderr
    assert "Try: -c " in result.stderr


def test_advice_of_the_model(model: Path, tmp_path: Path) -> None:
    """Honoured and ignored fields of generation_config.json, and a missing chat template."""
    folder = tmp_path / "advised"
    shutil.copytree(model, folder)
    edit_json(folder / "generation_config.json", top_k=7, no_repeat_ngram_size=3)
    (folder / "chat_template.jinja").unlink()

    report = invoke_json("check", "-m", folder)

    assert report["target"]["generation_config"]["honoured"]["top_k"] == 7
    assert report["target"]["generation_config"]["ignored"] == ["no_repeat_ngram_size"]
    assert any("--raw" in tip for tip in report["tips"])


def test_short_draft_context_is_told(model: Path, tmp_path: Path) -> None:
    """D-04: a draft with a shorter context is named beforehand."""
    draft = save_text_model(tmp_path / "short", text_config(max_position_embeddings=32))

    report = invoke_json("check", "-m", model, "-d", draft)

    assert any("past 32 tokens" in tip for tip in report["tips"])
