"""The settings file: flag over environment over profile over file over default."""

import json
from typing import Any

import pytest

from tests.cli.running import invoke


@pytest.fixture
def write(monkeypatch, tmp_path):
    """Writes the settings file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def write(text: str) -> Any:
        path = tmp_path / "spec-cli" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def origins(*arguments: str) -> dict[str, dict[str, Any]]:
    """What `config show` says."""
    result = invoke("config", "show", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_order(write, monkeypatch):
    """Each layer wins over those below it, and is named."""
    write("max-tokens = 7\ntemperature = 0.5\nk = 3\n[profiles.hot]\ntemperature = 1.5\n")
    monkeypatch.setenv("SPEC_CLI_SEED", "9")
    shown = origins()
    assert shown["max_tokens"] == {"value": 7, "origin": "file"}
    assert shown["temperature"] == {"value": 0.5, "origin": "file"}
    assert shown["seed"] == {"value": "9", "origin": "env"}
    assert shown["top_p"]["origin"] == "default"
    hot = origins("--profile", "hot")
    assert hot["temperature"] == {"value": 1.5, "origin": "profile hot"}
    monkeypatch.setenv("SPEC_CLI_PROFILE", "hot")
    assert origins()["temperature"]["value"] == 1.5


def test_settings_are_used(write, model, monkeypatch):
    """A file sets the defaults of a command; the environment and flags go over it."""
    write(
        f'model = "{model}"\nmax-tokens = 3\nnum-draft-tokens = 2\nignore-eos = true\n'
        "stop = []\n[profiles.long]\nmax-tokens = 6\n"
    )

    def length(*arguments: str) -> int:
        result = invoke("generate", "Hello", "--json", *arguments)
        assert result.exit_code == 0, result.output
        report = json.loads(result.stdout)
        assert report["settings"]["num_draft_tokens"] == 2
        return int(report["choices"][0]["usage"]["completion_tokens"])

    assert length() == 3
    assert length("--profile", "long") == 6
    assert length("--profile=long", "-n", "5") == 5
    monkeypatch.setenv("SPEC_CLI_MAX_TOKENS", "4")
    assert length("--profile", "long") == 4


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("max-tokns = 3", [], ["max_tokns", "max_tokens = ..."]),
        ("max-tokens = ", [], ["not valid TOML"]),
        ("max-tokens = 1979-05-27", [], ["max-tokens must be"]),
        ("profiles = 3", [], ["[profiles.fast]"]),
        ("", ["--profile", "fast"], ["no profile 'fast'"]),
        ("max-tokens = 'many'", [], ["--max-tokens", "integer"]),
        ("", ["--profile"], ["needs a name"]),
    ],
)
def test_bad_file_is_named(write, text, arguments, words):
    """What is wrong with the file is said, with exit code 2."""
    write(text)
    result = invoke("generate", "Hello", *arguments)
    assert result.exit_code == 2
    assert all(word in result.output for word in words), result.output


def test_path_works_with_a_broken_file(write):
    """`config path` tells where the file is, whatever is in it."""
    path = write("= broken")
    assert invoke("config", "path").stdout == f"{path}\n"
    assert invoke("config", "show").exit_code == 2


def test_show_as_text(write):
    """A table of every option; without a file it says where one would be."""
    result = invoke("config", "show", "chat")
    assert result.exit_code == 0
    assert "ctx_overflow" in result.output
    assert "no settings file" in result.output
    assert invoke("config", "show", "dance").exit_code == 2


def test_text_behind_the_dashes_is_left_alone(write, model):
    """What follows -- is no option, --profile included."""
    result = invoke("generate", "-m", model, "-n", "1", "--", "--profile")
    assert result.exit_code == 0, result.output
