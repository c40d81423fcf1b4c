"""Multimodal checkpoints on the command line."""

from pathlib import Path

import pytest
import transformers

from tests.cli.running import invoke, invoke_json
from tests.models.multimodal_models import CONFIGS, save_multimodal


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA."""
    return save_multimodal(tmp_path_factory.mktemp("models") / "llava", CONFIGS["llava"]())


def test_text_is_generated_and_said_to_be_all(llava: Path) -> None:
    """A note says that the model runs on text alone; the answer is the target's own."""
    arguments = ("-m", llava, "Hello Hello Hello", "-n", 12)
    result = invoke("generate", *arguments)

    assert result.exit_code == 0
    assert "Note: " in result.stderr
    assert "(LlavaForConditionalGeneration), run on text alone." in result.stderr
    alone = invoke("generate", *arguments, "--spec", "off")
    assert result.stdout == alone.stdout


def test_check_counts_the_whole_model(llava: Path) -> None:
    """Weights are those that would be loaded; context and cache are the language model's."""
    target = invoke_json("check", "-m", llava)["target"]

    assert target["type"] == "llava"
    assert target["context_length"] == 256
    assert target["kv_bytes_per_1k_tokens"] == 1000 * 2 * 2 * 2 * 8 * 4
    stored = (llava / "model.safetensors").stat().st_size
    assert 0.9 * stored < target["weight_bytes"] < stored
    assert any("run on text alone" in notice for notice in target["notices"])


@pytest.mark.parametrize("command", [("generate", "Hello"), ("check",)])
def test_other_kinds_are_refused(llava: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A kind whose text was never compared is exit code 2, named, before weights are read."""
    for file in llava.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    transformers.PaliGemmaConfig().save_pretrained(tmp_path)

    result = invoke(command[0], "-m", tmp_path, *command[1:])

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "is a multimodal model (PaliGemmaForConditionalGeneration)" in result.stderr
    assert "Loading" not in result.stderr
    assert "Traceback" not in result.stderr
