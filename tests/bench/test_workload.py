"""Workloads: the built-in suites, and files in every format people have."""

import json

import pytest

from spec_cli.bench.workload import SUITES, load_file, load_suites, plain_prompts
from spec_cli.core.errors import UsageError


@pytest.mark.parametrize("name", SUITES)
def test_suite_has_ten_different_prompts(name):
    """Each suite is large enough to say something."""
    prompts = load_suites([name])

    assert len({prompt.text for prompt in prompts}) == len(prompts) >= 10
    assert {prompt.category for prompt in prompts} == {name}


def test_suites_are_dealt_out_in_turn():
    """A workload cut short keeps its mixture."""
    prompts = load_suites(["chat", "code", "chat"])

    assert [prompt.name for prompt in prompts[:4]] == ["chat/1", "code/1", "chat/2", "code/2"]


def test_unknown_suite_names_those_there_are():
    """A typo is answered with the list."""
    with pytest.raises(UsageError, match="suite 'poems' does not exist; there are chat, code"):
        load_suites(["poems"])


def write(tmp_path, name, content):
    """A workload file."""
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def test_spec_bench_and_mt_bench(tmp_path):
    """`question.jsonl` as published: the first turn is asked, the category kept."""
    records = [
        {"question_id": 81, "category": "writing", "turns": ["Write a post.", "Rewrite it."]},
        {"question_id": 1, "category": "qa", "turns": ["Who wrote it?"], "reference": ["A"]},
    ]
    path = write(tmp_path, "question.jsonl", "\n".join(map(json.dumps, records)) + "\n\n")

    first, second = load_file(path)

    assert (first.category, first.text) == ("writing", "Write a post.")
    assert (second.name, second.text) == ("question.jsonl:2", "Who wrote it?")


def test_sharegpt(tmp_path):
    """One JSON list; what the user says before the first answer, whoever begins."""
    said = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    records = [
        {"id": "a", "conversations": said},
        {"id": "b", "conversations": [said[1], {"from": "system", "value": "S"}, said[0]]},
        {"id": "c", "conversations": []},
    ]
    path = write(tmp_path, "sharegpt.json", json.dumps(records, indent=1))

    first, second = load_file(path)

    assert first.messages == (("user", "Hi"),)
    assert second.messages == (("system", "S"), ("user", "Hi"))


def test_prompts_and_messages(tmp_path):
    """JSON lines with prompts or whole conversations; text files with a prompt a line."""
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    lines = [json.dumps({"prompt": "one"}), json.dumps({"messages": messages})]
    path = write(tmp_path, "w.jsonl", "\n".join(lines))

    one, conversation = load_file(path)

    assert one.as_messages() == [{"role": "user", "content": "one"}]
    assert conversation.as_messages() == messages
    assert [p.text for p in load_file(write(tmp_path, "w.txt", "x\n\ny\n"))] == ["x", "y"]
    assert plain_prompts(["x"])[0].text == "x"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"prompt": "a"}\n{"prompt": ', "line 2 is not valid JSON"),
        ('{"prompt": "a"}\n\n{"text": "b"}', "line 3 holds no prompt"),
        ('{"prompt": "a"}\n{"prompt": " "}', "line 2 holds no prompt"),
        ('{"messages": [{"role": "assistant", "content": "b"}]}', "line 1 holds no prompt"),
        ('{"turns": [1]}', "line 1 holds no prompt"),
        ("3", "line 1 holds no prompt"),
        ('[{"conversations": [{"from": "human"}]}]', "entry 1 holds no prompt"),
        ('[{"prompt": "a"},\n oops]', "line 2 is not valid JSON"),
        ("\n \n", "holds no prompt"),
        ("[]", "holds no prompt"),
    ],
)
def test_malformed_line_is_named(tmp_path, content, match):
    """Whoever made the file can find the line."""
    with pytest.raises(UsageError, match=match):
        load_file(write(tmp_path, "w.jsonl", content))


def test_file_that_cannot_be_read(tmp_path):
    """Missing, or no text."""
    with pytest.raises(UsageError, match="No such file"):
        load_file(tmp_path / "absent.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_file(tmp_path / "binary.jsonl")
