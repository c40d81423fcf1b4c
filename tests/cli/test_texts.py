"""Prompts and texts through the command line, by public bug reports."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, MambaConfig

from tests.cli.running import invoke, invoke_json
from tests.folders import text_config
from tests.models.model_folders import edit_json
from tests.models.small_tokenizers import byte_level


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Mamba: its state cannot be rolled back."""
    folder = tmp_path_factory.mktemp("models") / "mamba"
    config = MambaConfig(
        vocab_size=len(byte_level()),
        hidden_size=16,
        state_size=4,
        num_hidden_layers=2,
        conv_kernel=2,
        bos_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return folder


def tokens(*arguments: object) -> list[int]:
    """Ids of the answer to one prompt."""
    return list(invoke_json("generate", *arguments)["choices"][0]["token_ids"])


def test_recurrent_model_runs_without_speculation(recurrent: Path) -> None:
    """C-02: a notice before the first token, mode off with the reason, and the plain tokens."""
    arguments = ("-m", recurrent, "--raw", "Hello Hello Hello", "-n", 20)
    result = invoke("generate", *arguments, "--json")

    assert result.exit_code == 0
    assert "Warning: speculation is off: mamba layers keep recurrent state" in result.stderr
    report = json.loads(result.stdout)
    figures = report["choices"][0]["metrics"]["speculative_decoding"]
    assert figures["mode"] == "off"
    assert "recurrent state" in figures["reason"]
    assert report["choices"][0]["token_ids"] == tokens(*arguments, "--spec", "off")


def test_recurrent_draft_is_refused(model: Path, recurrent: Path) -> None:
    """C-02: as a draft it is refused before the first token, and named."""
    result = invoke("generate", "-m", model, "-d", recurrent, "Hello")

    assert result.exit_code == 2
    assert f"draft model {recurrent}" in result.stderr


def test_seeds(model: Path) -> None:
    """P-04: seed 0 is a seed: it repeats, differs from 1, and is the same within a batch."""
    common = ("-m", model, "--temp", 1, "-n", 16, "--ignore-eos")
    alone = tokens(*common, "--seed", 0, "Hello")

    assert tokens(*common, "--seed", 0, "Hello") == alone
    assert tokens(*common, "--seed", 1, "Hello") != alone
    batch = invoke_json("generate", *common, "--seed", 0, "The fox", "Hello", "def")
    assert batch["choices"][1]["token_ids"] == alone
    assert batch["settings"]["seed"] == 0


def test_drawn_seed_repeats_the_text(model: Path) -> None:
    """P-04: without a seed each prompt draws its own, and the reported one repeats its text."""
    common = ("-m", model, "--temp", 1, "-n", 16, "--ignore-eos")
    report = invoke_json("generate", *common, "Hello", "Hello")

    first, second = report["choices"]
    assert first["seed"] != second["seed"]
    assert first["token_ids"] != second["token_ids"]
    assert tokens(*common, "--seed", first["seed"], "Hello") == first["token_ids"]


def test_temperature_zero_is_greedy_and_quiet(model: Path) -> None:
    """P-06: 0 and 0.0 are greedy without a warning, and 1 is taken for 1.0."""
    answers = []
    for zero in ("0", "0.0"):
        result = invoke("generate", "-m", model, "Hello", "-n", 8, "--temperature", zero, "--json")
        assert "arning" not in result.stderr
        answers.append(json.loads(result.stdout)["choices"][0]["token_ids"])

    assert answers[0] == answers[1] == tokens("-m", model, "Hello", "-n", 8, "--top-k", 1)
    assert len(tokens("-m", model, "Hello", "-n", 8, "--temperature", 1, "--ignore-eos")) == 8


def test_bounds_of_top_k_and_top_p(model: Path) -> None:
    """P-05: a top_k past the vocabulary keeps all, and top_p 0 keeps one."""
    common = ("-m", model, "Hello", "-n", 8, "--temp", 1, "--seed", 3)
    plain = tokens(*common)

    for top_k in (0, len(byte_level()), 1_000_000):
        assert tokens(*common, "--top-k", top_k) == plain
    assert tokens(*common, "--top-p", 1) == plain
    greedy = tokens("-m", model, "Hello", "-n", 8)
    assert tokens(*common, "--top-p", 0) == greedy
    assert tokens(*common, "--top-k", 1) == greedy


@pytest.mark.parametrize("way", [["--spec", "off"], ["-k", 4], ["-d", "itself", "-k", 4]])
def test_empty_prompt_begins_with_the_begin_token(model: Path, way: list[object]) -> None:
    """G-05: an empty prompt runs from the begin token, alone and in a batch."""
    way = [model if each == "itself" else each for each in way]
    report = invoke_json("generate", "-m", model, "--raw", "-p", "", "-p", "a b", "-n", 6, *way)
    empty, other = report["choices"]

    assert empty["usage"]["prompt_tokens"] == 1
    assert other["usage"]["prompt_tokens"] > 1
    assert empty["token_ids"] == tokens("-m", model, "--raw", "-p", "", "-n", 6)


def test_begin_token_comes_once(model: Path, tmp_path: Path) -> None:
    """T-02: a template that writes the begin token, and a tokenizer that adds one, make one."""
    folder = tmp_path / "begin"
    shutil.copytree(model, folder)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text("{{ bos_token }}" + template)

    counts = [
        invoke_json("generate", "-m", each, "Hello", "-n", 1)["choices"][0]["usage"]
        for each in (folder, model)
    ]

    assert counts[0]["prompt_tokens"] == counts[1]["prompt_tokens"] + 1
    raw = invoke_json("generate", "-m", model, "--raw", "", "<s>", "-n", 1)["choices"]
    assert [each["usage"]["prompt_tokens"] for each in raw] == [1, 1]


def test_characters_come_whole(model: Path) -> None:
    """T-03: no record of a random stream of bytes holds half a character; K changes nothing."""
    common = ("-m", model, "--raw", "東京 😀 é", "--temp", 1, "--seed", 5, "-n", 60)
    texts = []
    for k in (1, 4):
        result = invoke("generate", *common, "-k", k, "--jsonl", "--ignore-eos")
        records = [json.loads(line) for line in result.stdout.splitlines()]
        streamed = "".join(each["text"] for each in records if each["event"] == "token")
        assert streamed == records[-1]["report"]["choices"][0]["text"]
        texts.append(streamed)

    assert texts[0] == texts[1]


def test_stop_string_is_cut(model: Path) -> None:
    """T-04: no part of a stop string is written, whatever the draft length."""
    text = invoke_json("generate", "-m", model, "Hello", "-n", 30, "--ignore-eos")["choices"][0][
        "text"
    ]
    stop = text[6:9]
    for k in (1, 4):
        result = invoke("generate", "-m", model, "Hello", "-n", 30, "-k", k, "--stop", stop)
        assert result.stdout == text[: text.index(stop)] + "\n"


def test_end_token_of_the_generation_config_counts(model: Path, tmp_path: Path) -> None:
    """T-06: an end token that only generation_config.json names ends the answer."""
    answer = tokens("-m", model, "Hello", "-n", 12, "--ignore-eos")
    folder = tmp_path / "two-ends"
    shutil.copytree(model, folder)
    config = text_config()
    edit_json(folder / "generation_config.json", eos_token_id=[config.eos_token_id, answer[5]])

    choice = invoke_json("generate", "-m", folder, "Hello", "-n", 12)["choices"][0]

    assert choice["token_ids"] == answer[: answer.index(answer[5]) + 1]
    assert choice["finish_reason"] == "stop"


def test_unused_advice_is_told(model: Path, tmp_path: Path) -> None:
    """A field of generation_config.json that is not honoured is named before the first token."""
    folder = tmp_path / "advised"
    shutil.copytree(model, folder)
    edit_json(folder / "generation_config.json", no_repeat_ngram_size=3)

    result = invoke("generate", "-m", folder, "Hello", "-n", 3)

    assert "Note: generation_config.json also sets no_repeat_ngram_size" in result.stderr
