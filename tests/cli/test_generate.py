"""`spec-cli generate` on tiny models: what goes where."""

import json
from pathlib import Path

import pytest

from spec_cli import LLM
from tests.cli.running import invoke, invoke_json, run

SHORT = ("-n", 12)


def test_text_is_that_of_the_json_report(model: Path) -> None:
    """G-02: stdout is the text of the JSON report plus one newline, byte by byte."""
    report = invoke_json("generate", "-m", model, "Hello", *SHORT)

    result = invoke("generate", "-m", model, "Hello", *SHORT)

    assert result.exit_code == 0
    assert result.stdout_bytes == (report["choices"][0]["text"] + "\n").encode()


def test_process_writes_no_terminal_codes(model: Path) -> None:
    """G-02: with stdout and stderr in files there is no escape, return or backspace."""
    done = run("generate", "-m", model, "Hello", *SHORT)

    assert done.returncode == 0
    for stream in (done.stdout, done.stderr):
        assert not {b"\x1b", b"\r", b"\x08"} & {stream[i : i + 1] for i in range(len(stream))}
    stages = [f"Loading {model}", "Packing weights", f"Timing forwards of {model}"]
    assert done.stderr.decode().splitlines() == stages


def test_prompts_are_one_batch_in_their_order(model: Path) -> None:
    """Several prompts: whole answers in order, each under its prompt."""
    prompts = ["Hello", "The quick brown fox", "def add"]
    report = invoke_json("generate", "-m", model, *prompts, *SHORT)

    result = invoke("generate", "-m", model, *prompts, *SHORT)

    texts = [choice["text"] for choice in report["choices"]]
    blocks = [
        f"==> {number}: {prompt} <==\n{text}\n"
        for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True), 1)
    ]
    assert result.stdout_bytes.decode() == "\n".join(blocks)


def test_answers_equal_those_of_the_python_api(model: Path) -> None:
    """The command line adds nothing to the tokens and takes nothing away."""
    choice = invoke_json("generate", "-m", model, "Hello", *SHORT)["choices"][0]

    with LLM(str(model)) as llm:
        params = llm.default_params(temperature=0.0, max_tokens=12)
        output = llm.chat([{"role": "user", "content": "Hello"}], params)[0]

    assert tuple(choice["token_ids"]) == output.outputs[0].token_ids


def test_raw_continues_the_text(model: Path) -> None:
    """--raw sends the text itself: one begin token and no template."""
    report = invoke_json("generate", "-m", model, "--raw", "Hello", *SHORT)

    with LLM(str(model)) as llm:
        output = llm.generate("Hello", llm.default_params(temperature=0.0, max_tokens=12))[0]

    assert report["choices"][0]["text"] == output.text
    assert report["choices"][0]["usage"]["prompt_tokens"] == len(output.prompt_token_ids)


def test_system_message_reaches_the_template(model: Path, tmp_path: Path) -> None:
    """-s and --system-file put the same message before the prompt."""
    (tmp_path / "system.txt").write_text("Be brief.")

    with_flag = invoke_json("generate", "-m", model, "-s", "Be brief.", "Hello", *SHORT)
    with_file = invoke_json(
        "generate", "-m", model, "--system-file", tmp_path / "system.txt", "Hello", *SHORT
    )
    without = invoke_json("generate", "-m", model, "Hello", *SHORT)

    assert with_flag["choices"][0]["token_ids"] == with_file["choices"][0]["token_ids"]
    counts = [each["choices"][0]["usage"]["prompt_tokens"] for each in (with_flag, without)]
    assert counts[0] > counts[1]


@pytest.mark.parametrize("stream", ["jsonl", "trace"])
def test_records_tell_the_whole_run(model: Path, tmp_path: Path, stream: str) -> None:
    """JSON lines and trace hold start, tokens, steps and end; the tokens make up the text."""
    trace = tmp_path / "trace.jsonl"
    where = ["--jsonl"] if stream == "jsonl" else ["--trace", trace]

    result = invoke("generate", "-m", model, "Hello", "The fox", "-k", 3, "-n", 30, *where)

    assert result.exit_code == 0, result.output
    content = result.stdout if stream == "jsonl" else trace.read_text()
    records = [json.loads(line) for line in content.splitlines()]
    assert records[0]["event"] == "start"
    assert records[-1]["event"] == "end"
    for choice in records[-1]["report"]["choices"]:
        of_it = [each for each in records if each.get("index") == choice["index"]]
        tokens = [each for each in of_it if each["event"] == "token"]
        steps = [each for each in of_it if each["event"] == "step"]
        assert "".join(each["text"] for each in tokens) == choice["text"]
        assert [each["id"] for each in tokens] == choice["token_ids"]
        assert [each["i"] for each in tokens] == list(range(len(tokens)))
        figures = choice["metrics"]["speculative_decoding"]
        assert sum(each["accepted"] for each in steps) == figures["num_accepted_draft_tokens"]
        assert sum(each["judged"] for each in steps) == figures["num_draft_tokens"]
        assert len(steps) == figures["num_target_passes"]
        assert 1 + sum(each["emitted"] for each in steps) == len(tokens)


@pytest.mark.parametrize("way", [["-k", 4], ["-k", "auto"], ["--spec", "off"], ["-d", "itself"]])
def test_report_keeps_its_identities(model: Path, way: list[object]) -> None:
    """D-05: every report has speculation with its counts, and the counts agree."""
    way = [model if each == "itself" else each for each in way]
    report = invoke_json("generate", "-m", model, "Hello Hello Hello", "-n", 40, *way)

    choice = report["choices"][0]
    figures = choice["metrics"]["speculative_decoding"]
    histogram = figures["acceptance_histogram"]
    accepted = figures["num_accepted_draft_tokens"]
    assert accepted == sum(j * count for j, count in enumerate(histogram))
    assert figures["num_spec_steps"] == sum(histogram)
    # One token from prefill, one of the target's own per pass but for a pass cut off by the end.
    emitted = 1 + accepted + figures["num_target_passes"]
    assert emitted - 1 <= choice["usage"]["completion_tokens"] <= emitted
    assert figures["enabled"] is (way != ["--spec", "off"])
    assert (figures["reason"] is None) is (figures["mode"] == "on")


def test_length_is_told(model: Path) -> None:
    """G-06: an answer that reaches the end of the context ends there, with reason length."""
    report = invoke_json("generate", "-m", model, "--raw", "Hello", "-c", 16, "--ignore-eos")

    choice = report["choices"][0]
    usage = choice["usage"]
    assert choice["finish_reason"] == "length"
    assert usage["prompt_tokens"] + usage["completion_tokens"] == 16


def test_stats_line_follows_on_request(model: Path) -> None:
    """--stats prints the line on stderr although that is no terminal."""
    result = invoke("generate", "-m", model, "Hello", *SHORT, "--stats", "-k", 4)

    line = result.stderr.splitlines()[-1]
    assert line.startswith("12 tok · ")
    assert "drafting on: " in line
    assert line.endswith("stopped at --max-tokens")


def test_full_stats_name_the_seed(model: Path) -> None:
    """--stats-full adds seeds and versions."""
    result = invoke(
        "generate", "-m", model, "Hello", *SHORT, "--stats-full", "--temp", 1, "--seed", 7
    )

    lines = result.stderr.splitlines()
    assert any(line.split() == ["seed", "7"] for line in lines)
    assert "torch" in lines[-1]


def test_quiet_says_nothing(model: Path) -> None:
    """-q leaves stderr empty."""
    assert invoke("generate", "-m", model, "Hello", *SHORT, "-q").stderr == ""


def test_verbose_says_what_runs(model: Path) -> None:
    """-v prints the effective values before the answer."""
    lines = invoke("generate", "-m", model, "Hello", *SHORT, "-v").stderr.splitlines()

    assert f"target  {model} (local) · float32 · cpu" in lines
    assert "run     ctx 256 · temp 0 · up to 12 tokens" in lines


def test_draft_that_is_switched_off_is_told(model: Path) -> None:
    """-d with --spec off runs without it, and says so."""
    result = invoke("generate", "-m", model, "-d", model, "--spec", "off", "Hello", *SHORT, "-q")

    assert result.exit_code == 0
    assert result.stderr == "Warning: --draft-model has no effect with --spec off.\n"


def test_environment_sets_options(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC_CLI_<FLAG> is a default, and a flag wins over it."""
    monkeypatch.setenv("SPEC_CLI_MODEL", str(model))
    monkeypatch.setenv("SPEC_CLI_MAX_TOKENS", "3")

    assert len(invoke_json("generate", "Hello")["choices"][0]["token_ids"]) == 3
    assert len(invoke_json("generate", "Hello", "-n", 5)["choices"][0]["token_ids"]) == 5
