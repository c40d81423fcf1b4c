"""What cannot work: one message on stderr, its exit code, and nothing generated."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from tests.cli.running import COMMAND, ROOT, invoke
from tests.folders import save_text_model, text_config
from tests.models.model_folders import edit_json, save_tokenizer


def refusal(*arguments: object, stdin: str | None = None) -> tuple[int, str]:
    """Exit code and error message of a command that prints nothing on stdout."""
    result = invoke(*arguments, stdin=stdin)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.exit_code, result.stderr[result.stderr.index("Error: ") :]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--temperature", "abc"], "'--temperature'"),
        (["--temperature", "-1"], "--temperature must be at least 0"),
        (["--temperature", "nan"], "--temperature must be at least 0"),
        (["--top-k", "-5"], "--top-k must be at least -1"),
        (["--top-p", "1.5"], "--top-p must be between 0 and 1"),
        (["--top-p", "-.1"], "--top-p must be between 0 and 1"),
        (["--frequency-penalty", "9"], "--frequency-penalty must be between -2 and 2"),
        (["--length-penalty", "1"], "--length-penalty"),
        (["--seed", "-1"], "--seed must be between 0 and"),
        (["-n", "0"], "--max-tokens must be at least 1"),
        (["-k", "99"], "--num-draft-tokens must be a whole number between 1 and 32, got 99"),
        (["-k", "few"], "--num-draft-tokens must be a whole number between 1 and 32, or auto"),
        (["--ngram-min", "4"], "--ngram-min is 4, above --ngram-max, which is 3"),
        (["--draft-p-min", "0.5"], "--draft-p-min has no effect"),
        (["--spec", "draft"], "--spec draft needs a draft model"),
        (["--spec", "magic"], "'--spec'"),
        (["--spec", "off", "-k", "3"], "--num-draft-tokens has no effect"),
        (["--memory", "much"], "--memory must be a size"),
        (["--json", "-o", "jsonl"], "two output formats at once: json and jsonl"),
        (["-q", "-v"], "--quiet and --verbose"),
        (["--raw", "-s", "Be brief."], "--raw uses no chat template"),
        (["-s", "a", "--system-file", "b"], "--system and --system-file"),
        (["--system-file", "/no/such"], "cannot read /no/such"),
        (["--chat-template-kwargs", "{"], "--chat-template-kwargs is not valid JSON"),
        (["--chat-template-kwargs", "[1]"], "--chat-template-kwargs must be a JSON object"),
        (["--think", "--chat-template-kwargs", '{"enable_thinking": false}'], "contradict"),
        (["--trace", "/no/such/folder/t.jsonl"], "--trace: cannot write"),
        (["--device", "mps"], "--device mps is refused"),
        (["--dtype", "int3"], "--dtype int3 is unknown"),
    ],
)
def test_bad_value_names_its_flag(model: Path, arguments: list[str], named: str) -> None:
    """P-01, P-05, P-06: a value that cannot be is exit code 2 and names the flag."""
    result = invoke("generate", "-m", model, "Hello", *arguments)

    assert result.exit_code == 2
    assert named in result.output
    assert "Traceback" not in result.output


def test_error_is_json_too(model: Path) -> None:
    """With --json the error is an object on stdout, usage errors of the parser included."""
    for arguments in (["-k", "99"], ["--temperature", "abc"]):
        result = invoke("generate", "-m", model, "Hello", "--json", *arguments)

        error = json.loads(result.stdout)["error"]
        assert error["code"] == "usage"
        assert error["message"] in result.stderr

    result = invoke("generate", "-m", model, "Hello", "-k", "99", "--output-format=jsonl")
    assert json.loads(result.stdout)["event"] == "error"


@pytest.mark.parametrize(("model_name", "code"), [("./nope", 3), ("no/such-model", 3), ("a b", 2)])
def test_missing_model(model_name: str, code: int) -> None:
    """A model that cannot be had is exit code 3 and is named."""
    found, message = refusal("generate", "-m", model_name, "Hello")

    assert found == code
    assert model_name in message


def test_missing_draft_is_no_silent_fallback(model: Path, tmp_path: Path) -> None:
    """D-05: a draft that is not there, or is broken, ends the run and is named."""
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "config.json").write_text("{")
    for draft in (Path("./nope"), broken):
        code, message = refusal("generate", "-m", model, "-d", draft, "Hello")

        assert code == 3
        assert f"draft model {draft}" in message


def test_draft_of_another_tokenizer(tmp_path: Path, model: Path) -> None:
    """D-03: ids of another meaning are exit code 4, with the first such id and both texts."""
    draft = tmp_path / "draft"
    shutil.copytree(model, draft)
    content = json.loads((draft / "tokenizer.json").read_text())
    vocab = content["model"]["vocab"]
    first, second = sorted(vocab, key=vocab.get)[5:7]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (draft / "tokenizer.json").write_text(json.dumps(content))

    code, message = refusal("generate", "-m", model, "-d", draft, "Hello")

    assert code == 4
    assert f"first differing id: {vocab[second]}  ({first!r} vs {second!r})" in message
    assert "--spec ngram" in message


@pytest.mark.parametrize("role", ["target", "draft"])
def test_code_in_a_folder_is_not_run(model: Path, tmp_path: Path, role: str) -> None:
    """O-01: code in a model folder needs permission; exit code 2, and it has not run."""
    folder, marker = tmp_path / "coded", tmp_path / "marker"
    shutil.copytree(model, folder)
    edit_json(folder / "config.json", auto_map={"AutoConfig": "code.Config"})
    (folder / "code.py").write_text(f"open({str(marker)!r}, 'w')")
    models = ["-m", folder] if role == "target" else ["-m", model, "-d", folder]
    trust_of_other = "--draft-trust-remote-code" if role == "target" else "--trust-remote-code"
    other = [] if role == "target" else [trust_of_other]

    code, message = refusal("generate", *models, *other, "Hello")

    assert code == 2
    assert "--trust-remote-code" in message
    assert not marker.exists()


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_incomplete_weights(model: Path, tmp_path: Path, damage: str) -> None:
    """O-02: a missing or truncated weight file is exit code 3 and is named."""
    folder = tmp_path / "damaged"
    shutil.copytree(model, folder)
    weights = folder / "model.safetensors"
    if damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:-100])

    code, message = refusal("generate", "-m", folder, "Hello")

    assert code == 3
    assert "model.safetensors" in message


def test_prompt_past_the_context(model: Path) -> None:
    """G-06: a prompt longer than the context is exit code 6 with both numbers."""
    code, message = refusal("generate", "-m", model, "--raw", "x" * 40, "-c", 32)

    assert code == 6
    assert "41 tokens" in message
    assert "32" in message


def test_one_of_many_prompts_is_named(model: Path) -> None:
    """G-06: of several prompts the one that does not fit is named, and none is run."""
    code, message = refusal("generate", "-m", model, "--raw", "Hello", "x" * 40, "-c", 32)

    assert code == 6
    assert "prompt 2 of 2" in message


def test_too_little_memory(model: Path) -> None:
    """Weights or a row past --memory are exit code 5."""
    for size in ("1kB", "200kB"):
        assert refusal("generate", "-m", model, "Hello", "--memory", size)[0] == 5


def test_template_that_refuses_a_role(model: Path, tmp_path: Path) -> None:
    """T-01: a template without a system role is exit code 2 and the role is named."""
    folder = tmp_path / "strict"
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m['role'] == 'system' %}"
        "{{ raise_exception('system is not supported') }}{% endif %}{{ m['content'] }}{% endfor %}"
    )

    code, message = refusal("generate", "-m", folder, "-s", "Be brief.", "Hello")

    assert code == 2
    assert "system" in message


def test_unknown_template_option(model: Path) -> None:
    """--think on a model whose template has no such switch is refused and named."""
    code, message = refusal("generate", "-m", model, "--think", "Hello")

    assert code == 2
    assert "--think" in message


def test_no_chat_template(tmp_path: Path) -> None:
    """A model without a template is told to be used with --raw."""
    folder = save_text_model(tmp_path / "base", template=False)

    code, message = refusal("generate", "-m", folder, "Hello")

    assert code == 2
    assert "--raw" in message


def test_empty_prompt_without_a_begin_token(model: Path, tmp_path: Path) -> None:
    """G-05: nothing to start from is exit code 2 with a plain message."""
    folder = tmp_path / "no-begin"
    shutil.copytree(model, folder)
    save_tokenizer(folder)
    edit_json(folder / "tokenizer_config.json", bos_token=None)

    code, message = refusal("generate", "-m", folder, "--raw", "-p", "")

    assert code == 2
    assert "empty" in message


def test_no_prompt_at_all() -> None:
    """Without a prompt there is nothing to do: exit code 2, with examples, before any loading."""
    code, message = refusal("generate", stdin="")

    assert code == 2
    assert "no prompt" in message
    assert "spec-cli generate" in message


def test_traceback_only_with_debug(model: Path) -> None:
    """--debug shows where an error came from."""
    result = invoke("generate", "-m", "./nope", "Hello", "--debug")

    assert result.exit_code == 3
    assert "Traceback" in result.stderr


@pytest.mark.slow
def test_full_disk_is_told(model: Path) -> None:
    """Output that cannot be written is exit code 1 with the reason, and no traceback."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "generate", "-m", model, "Hello", "-n", "3"],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            timeout=60,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == (
        "Error: cannot write to standard output: No space left on device."
    )


def test_unexpected_failure_keeps_the_text(model: Path, monkeypatch: Any) -> None:
    """A failure in the middle is exit code 1, one line, and the texts so far in JSON."""
    from spec_cli.engine.engine import Engine

    step = Engine.step

    def fail_later(engine: Engine) -> Any:
        if engine._step == 4:
            raise RuntimeError("the ceiling fell down")
        return step(engine)

    monkeypatch.setattr(Engine, "step", fail_later)
    result = invoke("generate", "-m", model, "Hello", "--json", "--spec", "off")

    assert result.exit_code == 1
    assert "Error: RuntimeError: the ceiling fell down\n" in result.stderr
    content = json.loads(result.stdout)
    assert content["error"]["code"] == "failure"
    assert len(content["choices"][0]["token_ids"]) == 4


def test_small_draft_context_is_no_error(model: Path, tmp_path: Path) -> None:
    """D-04: a draft with a shorter context drafts as far as it can, and the report says so."""
    config: LlamaConfig = text_config(max_position_embeddings=32)
    draft = save_text_model(tmp_path / "short", config)

    result = invoke(
        "generate", "-m", model, "-d", draft, "Hello", "-n", 60, "--ignore-eos", "--json", "-k", 3
    )

    assert result.exit_code == 0, result.output
    choice = json.loads(result.stdout)["choices"][0]
    assert len(choice["token_ids"]) == 60
    assert choice["metrics"]["speculative_decoding"]["reason"]
