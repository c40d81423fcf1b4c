"""Where prompts come from."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spec_cli.cli.grouping import with_groups
from spec_cli.cli.prompts import PromptOptions, split_prompts
from spec_cli.cli.text_output import title
from spec_cli.core.errors import UsageError


def collect(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, stdin: str = "", **options: Any
) -> list[str]:
    """The prompts of a command line, with something piped in."""
    monkeypatch.setattr("spec_cli.cli.prompts.read_stdin", lambda *, is_asked: stdin)
    return PromptOptions(**options).collect(list(arguments))


def test_order_of_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Arguments come first, then --prompt, --file and --prompts."""
    (tmp_path / "one.txt").write_text("from a file\n")
    (tmp_path / "many.txt").write_text("first line\n\nsecond line\r\n")

    prompts = collect(
        monkeypatch,
        "argument",
        prompt=["option"],
        file=[tmp_path / "one.txt"],
        prompts=tmp_path / "many.txt",
    )

    assert prompts == ["argument", "option", "from a file", "first line", "second line"]


def test_piped_text_is_put_before_each_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is piped in comes first, then a blank line; alone it is the prompt."""
    assert collect(monkeypatch, "a", "b", stdin="text\n") == ["text\n\na", "text\n\nb"]
    assert collect(monkeypatch, stdin="text\n") == ["text"]


def test_dash_stands_for_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where - is named, the piped text goes there and nowhere else."""
    assert collect(monkeypatch, "-", "b", stdin="text\n") == ["text", "b"]
    assert collect(monkeypatch, "a", file=[Path("-")], stdin="text\n") == ["a", "text"]
    assert collect(monkeypatch, prompts=Path("-"), stdin="x\ny\n") == ["x", "y"]
    assert collect(monkeypatch, prompts=Path("-"), stdin='{"prompt": "x"}\n') == ["x"]


def test_raw_keeps_the_last_line_break(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--raw continues a text as it is; a chat prompt ends with its last word."""
    (tmp_path / "code.py").write_text("def f():\n")

    assert collect(monkeypatch, file=[tmp_path / "code.py"], raw=True) == ["def f():\n"]
    assert collect(monkeypatch, file=[tmp_path / "code.py"]) == ["def f():"]
    assert collect(monkeypatch, raw=True, stdin="def f():\n") == ["def f():\n"]


def test_json_lines(tmp_path: Path) -> None:
    """A .jsonl file holds objects with a prompt, or strings; a separator within one is no end."""
    content = '{"prompt": "one\\ntwo", "id": 1}\n\n"three \u2028 four"\n'

    assert split_prompts(content, tmp_path / "p.jsonl") == ["one\ntwo", "three \u2028 four"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"prompt": "a"}\n{"text": "b"}', 'line 2 needs a field "prompt"'),
        ('{"prompt": 7}', 'line 1 needs a field "prompt"'),
        ("{", "line 1 is not valid JSON"),
        ("\n \n", "holds no prompt"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, content: str, told: str) -> None:
    """A line that is no prompt is refused with its number."""
    with pytest.raises(UsageError, match=told):
        split_prompts(content, tmp_path / "p.jsonl")


def test_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing file and one that is not text are named."""
    (tmp_path / "binary").write_bytes(b"ab\xff")

    with pytest.raises(UsageError, match="cannot read /no/such: No such file"):
        collect(monkeypatch, file=[Path("/no/such")])
    with pytest.raises(UsageError, match="binary is not UTF-8 text: byte 2"):
        collect(monkeypatch, file=[tmp_path / "binary"])


def test_stdin_in_utf8() -> None:
    """Bytes that are no text are refused; text of any language comes through."""
    import typer

    seen: list[list[str]] = []
    app = typer.Typer()

    def show(*, inputs: PromptOptions) -> None:
        seen.append(inputs.collect([]))

    app.command()(with_groups(show))
    CliRunner().invoke(app, [], input="東京 é\n".encode())
    refused = CliRunner().invoke(app, [], input=b"ab\xff")

    assert seen == [["東京 é"]]
    assert isinstance(refused.exception, UsageError)


def test_title_is_the_question() -> None:
    """The title of an answer is the last line of its prompt, cut where it is long."""
    assert title("a long text\n\nWhat is it about?\n") == "What is it about?"
    assert len(title("x" * 100)) == 60
