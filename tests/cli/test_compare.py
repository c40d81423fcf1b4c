"""`spec-cli compare` on tiny models, as a user runs it."""

import csv
import io
import json
import signal
import subprocess
import time

import pytest

from tests.bench.streaming_server import serving
from tests.cli.compare_cells import cells, check_identities
from tests.cli.running import COMMAND, ROOT, invoke, invoke_json, run
from tests.folders import save_text_model, text_config
from tests.models.small_tokenizers import byte_level

QUICK = ("-n", 12, "-r", 1, "--warmup", 0, "-q")


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    """Another small model with the same tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "draft"
    return save_text_model(folder, text_config(hidden_size=16), seed=1)


def compare(model, *arguments):
    """A comparison's report."""
    return invoke_json("compare", "-m", model, *QUICK, *arguments)


def test_arms_of_a_draft_model(model, draft):
    """Every way and length does the same work; texts are equal in fp32; counts fit together."""
    report = compare(
        model, "-d", draft, "--spec", "draft,hybrid,suffix,ngram", "-k", "2,auto", "--batch", "1,3",
        "--check", "one two one two one", "abc abc abc",
    )  # fmt: skip

    names = [cell["arm"] for cell in report["batches"][0]["arms"]]
    assert names[0] == "target only"
    assert len(names) == 9
    assert {cell["same_text"] for cell in cells(report)} == {"yes", None}
    assert report["check"] == {
        "checked": True,
        "identical": True,
        "num_mismatches": 0,
        "num_near_ties": 0,
        "differences": [],
    }
    assert {
        c["speculative_decoding"]["num_output_tokens"] for c in report["batches"][0]["arms"]
    } == {24}
    check_identities(report)
    by_name = {cell["arm"]: cell for cell in report["batches"][0]["arms"]}
    weights = {name: cell["memory"]["weight_bytes"] for name, cell in by_name.items()}
    assert weights["draft k=2"] > weights["target only"] == weights["ngram k=2"]
    width = 4 * len(byte_level())
    for record in report["batches"]:
        for cell in record["arms"]:
            # At least the logits of one step of the batch, and no more than the weights here.
            working = cell["memory"]["working_bytes"]
            assert record["batch"] * width <= working < cell["memory"]["weight_bytes"]
    assert by_name["target only"]["speedup_measured"] == 1.0
    assert {each["batch"] for each in report["why"]["forwards"]} == {1, 2, 3, 4, 8}


def test_load_sweep(model):
    """The plan is equal for all arms; the figures of a rate are all there."""
    report = compare(
        model, "--rate", "20,inf", "--num-requests", 6, "--max-seconds", 20, "--slo", "ttft:5000",
        "-k", "2,auto", "hello hello",
    )  # fmt: skip

    assert [record["rate"] for record in report["sweep"]] == [20.0, "inf"]
    first, last = report["sweep"]
    assert len(first["planned_times_s"]) == 6
    assert last["planned_times_s"] == [0.0] * 6
    for cell in cells(report, "sweep"):
        assert cell["num_completed"] == 6
        assert cell["failures"] == {}
        assert cell["slo_attained"] == 1.0
        for name in ("time_to_first_token_ms", "end_to_end_ms", "queue_time_ms"):
            assert cell[name]["p50"] <= cell[name]["p99"]
    assert all(cell["saturated"] for cell in last["arms"])
    assert first["arms"][0]["median_latency_ratio"] == 1.0
    check_identities(report)


def test_sampling_is_checked_too(model):
    """At a temperature, coupled verification keeps the tokens."""
    report = compare(model, "--check", "--temperature", 1.0, "--seed", 7, "-k", 3, "aba aba")

    assert report["check"]["identical"] is True


def test_forced_mismatch_ends_with_7(model, monkeypatch):
    """L-04 (c): position, ids and gap are printed; nothing is called identical."""
    from spec_cli.bench import proof

    found = proof.differences

    def forged(pairs):
        for group, _ in pairs:
            group.timelines[0].token_ids[3] += 1
        return found(pairs)

    monkeypatch.setattr("spec_cli.bench.launch.differences", forged)
    result = invoke("compare", "-m", model, *QUICK, "--check", "-k", 2, "-o", "json", "abc abc")

    assert result.exit_code == 7
    assert "no near-tie" in result.stderr
    report = json.loads(result.stdout)
    (difference,) = report["check"]["differences"]
    assert report["check"]["identical"] is False
    assert (difference["position"], difference["verdict"]) == (3, "mismatch")
    assert difference["token_id_arm"] == difference["token_id_target"] + 1
    assert difference["gap"] > 0.0
    assert cells(report)[1]["identical"] is False

    text = invoke("compare", "-m", model, *QUICK, "--check", "-k", 2, "-o", "md", "abc abc").stdout
    assert "MISMATCH @3" in text
    assert "first difference at generated token 3" in text


def test_no_arm_answers_from_memory(model):
    """A prompt that is run again is not looked up in its own answer."""
    first = compare(model, "-k", 4, "-n", 40, "some words to go on from")
    again = invoke_json(
        "compare", "-m", model, "-q", "-k", 4, "-n", 40, "-r", 3, "some words to go on from"
    )

    for one, three in zip(cells(first), cells(again), strict=True):
        once, thrice = (cell["speculative_decoding"]["num_target_passes"] for cell in (one, three))
        # Looked up in its own answer, a round of 39 tokens would take about 8 passes.
        assert thrice >= 0.9 * 3 * once


def test_lengths(model):
    """Every combination gets its table; prompts have exactly the length asked for."""
    report = invoke_json(
        "compare", "-m", model, "-r", 1, "--warmup", 0, "-q", "-k", 2, "--input-len", "20,50",
        "--output-len", "4,9", "abc", "hello",
    )  # fmt: skip

    assert [part["title"] for part in report["lengths"]] == [
        "20 prompt tokens, 4 generated",
        "20 prompt tokens, 9 generated",
        "50 prompt tokens, 4 generated",
        "50 prompt tokens, 9 generated",
    ]
    for part in report["lengths"]:
        for cell in part["batches"][0]["arms"]:
            counts = cell["speculative_decoding"]
            assert counts["num_output_tokens"] == 2 * part["output_len"]
    assert report["workload"]["max_prompt_tokens"] == report["workload"]["min_prompt_tokens"] == 20

    result = invoke("compare", "-m", model, *QUICK, "--input-len", "250", "abc")
    assert result.exit_code == 6
    assert "250 prompt tokens and 12 to be generated do not fit" in result.output


def test_fail_under(model):
    """A speed-up that nothing reaches, and one that all do."""
    slow = invoke("compare", "-m", model, *QUICK, "-k", 2, "--fail-under", 1000, "abc")
    fine = invoke("compare", "-m", model, *QUICK, "-k", 2, "--fail-under", 0.0001, "abc")

    assert slow.exit_code == 7
    assert "below --fail-under 1000: suffix k=2" in slow.stderr
    assert fine.exit_code == 0


def test_formats(model):
    """Markdown, CSV, and JSON lines that begin and end."""
    arguments = ("compare", "-m", model, *QUICK, "-k", 2, "abc abc")
    text = invoke(*arguments).stdout
    assert text.startswith("# spec-cli compare")
    assert "| arm | k | tok/s | speed-up |" in text

    rows = list(csv.DictReader(io.StringIO(invoke(*arguments, "-o", "csv").stdout)))
    assert [row["arm"] for row in rows] == ["target only", "suffix k=2"]
    assert float(rows[1]["tokens_per_second"]) > 0.0
    assert rows[1]["speculative_decoding.num_output_tokens"] == "12"

    both = invoke(*arguments, "-o", "csv", "--output-err", "json")
    assert json.loads(both.stderr)["command"] == "compare"
    assert both.stdout.startswith("kind,load,arm")

    lines = invoke(*arguments, "-o", "jsonl").stdout.splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events == ["start", "cell", "cell", "end"]


def test_page_is_written(model, tmp_path):
    """--html beside whatever goes to stdout; a place that cannot be written is told at once."""
    path = tmp_path / "report.html"
    report = compare(model, "-k", 2, "--html", path, "abc abc")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert report["id"] in text

    result = invoke("compare", "-m", model, *QUICK, "--html", tmp_path / "no" / "r.html", "abc")
    assert result.exit_code == 2
    assert "cannot write" in result.output


def test_workload_files_and_suites(model, tmp_path):
    """A Spec-Bench file and a suite, cut to a number."""
    path = tmp_path / "question.jsonl"
    path.write_text('{"category": "qa", "turns": ["aa"]}\n{"category": "qa", "turns": ["bb"]}\n')

    report = compare(model, "--prompts", path, "-k", 2)
    assert report["workload"]["names"] == ["question.jsonl:1", "question.jsonl:2"]

    report = compare(model, "--suite", "chat", "--num-prompts", 2, "-k", 2)
    assert report["workload"]["names"] == ["chat/1", "chat/2"]


def test_baseline_transformers(model, draft):
    """`generate()`: plain, with its lookup and assisted, through the same figures."""
    report = compare(
        model, "-d", draft, "--spec", "draft", "--baseline", "transformers", "-k", 2,
        "--batch", "1,2", "abc abc abc",
    )  # fmt: skip

    first, second = report["batches"]
    names = [cell["arm"] for cell in first["arms"]]
    assert names == [
        "target only",
        "draft k=2",
        "transformers",
        "transformers lookup k=2",
        "transformers assisted k=2",
    ]
    assert [cell["arm"] for cell in second["arms"]] == names[:2]
    assert {cell["same_text"] for cell in first["arms"]} == {None, "yes"}
    assert all(cell["tokens_per_second"] > 0.0 for cell in first["arms"])
    measured = [cell["memory"]["working_bytes"] is not None for cell in first["arms"]]
    assert measured == [True, True, False, False, False]
    assert first["arms"][4]["speculative_decoding"]["num_output_tokens"] == 12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rate", "0"), "--rate must be above 0"),
        (("--rate", "1,-1"), "--rate must be above 0"),
        (("--rate", "fast"), "--rate takes numbers and inf"),
        (("--input-len", "0"), "--input-len takes whole numbers"),
        (("--output-len", "9"), "two names for one thing"),
        (("--batch", "0"), "--batch takes whole numbers"),
        (("--batch", "64"), "batch 64 is more than the 16 rows"),
        (("-k", "99"), "--num-draft-tokens takes whole numbers"),
        (("--spec", "magic"), "--spec must be a list of"),
        (("--spec", "draft"), "--spec draft needs a draft model"),
        (("--ngram-max", "3"), "--ngram-max has no effect"),
        (("--slo", "ttft:5"), "--slo has no effect without --rate"),
        (("--rate", "1", "--slo", "x:1"), "--slo takes limits"),
        (("--stop", "x"), "--stop has no place here"),
        (("--suite", "poems"), "'poems' does not exist"),
        (("--num-prompts", "9"), "--num-prompts must be between 1 and the 1"),
        (("-r", "0"), "--repeats must be at least 1"),
        (("-n", "1"), "--max-tokens must be at least 2"),
        (("--fail-under", "0"), "--fail-under must be above 0"),
        (("--baseline", "transformers", "--temp", "1"), "greedy only"),
        (("--check", "--verify", "rejection", "--temp", "1"), "--check cannot hold"),
        (("--json", "-o", "csv"), "two output formats"),
    ],
)
def test_bad_values_are_refused(model, arguments, words):
    """Exit 2 with a sentence that names the flag."""
    result = invoke("compare", "-m", model, *QUICK, *arguments, "abc")

    assert result.exit_code == 2, result.output
    assert words in result.output.replace("\n", " ")


def test_malformed_workload_names_the_line(model, tmp_path):
    """Exit 2 and a line number; an empty file likewise."""
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": }\n')
    result = invoke("compare", "-m", model, "--prompts", path)
    assert result.exit_code == 2
    assert "line 2 is not valid JSON" in result.output

    path.write_text("")
    result = invoke("compare", "-m", model, "--prompts", path)
    assert result.exit_code == 2
    assert "holds no prompt" in result.output


def test_prompt_that_does_not_fit(model):
    """Exit 6 and its name, before anything runs."""
    result = invoke("compare", "-m", model, *QUICK, "abc", "x" * 300)

    assert result.exit_code == 6
    assert "prompt prompt/2 has" in result.output


def test_arm_that_fails_half_way(model, monkeypatch):
    """The others finish, the report says so, and the exit code is 1."""
    from spec_cli.proposers.ngram import NgramProposer

    def broken(self, requests):
        raise RuntimeError("no more guesses")

    monkeypatch.setattr(NgramProposer, "propose", broken)
    result = invoke(
        "compare", "-m", model, *QUICK, "--spec", "ngram,suffix", "-k", 2, "-o", "json", "abab abab"
    )

    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["failures"] == {"ngram k=2": "RuntimeError: no more guesses"}
    assert [cell["arm"] for cell in cells(report)] == ["target only", "suffix k=2"]
    assert "ngram k=2 failed" in result.stderr


def test_interrupt_keeps_what_is_done(model):
    """Ctrl-C: exit 130 and a report of the cells that were finished."""
    process = subprocess.Popen(
        [*COMMAND, "compare", "-m", str(model), "-k", "2", "-n", "20", "-r", "5000", "-q",
         "-o", "jsonl", "abc abc"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "start"
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=40)

    assert process.returncode == 130
    report = json.loads(stdout.splitlines()[-1])["report"]
    assert report["interrupted"] is True
    assert len(cells(report)) == 2
    check_identities(report)


@pytest.mark.slow
def test_output_to_a_file_is_plain(model):
    """No control characters, no progress bars."""
    result = run("compare", "-m", model, "-n", 8, "-r", 1, "--warmup", 0, "-k", 2, "abc")

    assert result.returncode == 0, result.stderr
    assert not {b"\x1b", b"\r", b"\x08"} & {bytes([byte]) for byte in result.stdout + result.stderr}
    assert b"batch 1: suffix k=2" in result.stderr


def test_endpoint():
    """Two servers under the same load: a table, failures in words, what the server counts."""
    with serving("fine", token_s=0.02) as slow, serving("mixed", has_metrics=True) as fast:
        report = invoke_json(
            "compare", "--endpoint", slow.url, "--endpoint", fast.url, "-n", 8, "--rate", "20,inf",
            "--num-requests", 7, "--max-seconds", 16, "--stall", 1, "-q", "hello",
        )  # fmt: skip

    assert report["model"]["id"] == "tiny"
    first, second = report["sweep"][0]["arms"]
    assert (first["num_completed"], first["failures"]) == (7, {})
    assert second["failures"]["HTTP 500"] == 1
    assert report["servers"][1]["num_draft_tokens"] == 40 * 14
    assert f"{fast.url} counts 560 draft tokens" in report["why"]["words"][-1]


def test_endpoint_as_transformers_serve():
    """A server that refuses a field, ends its answers itself and has another model's name."""
    models = [{"id": "a"}, {"id": "b", "status": {"value": "loaded"}}]
    with (
        serving("fine", has_metrics=True) as first,
        serving(
            "as-transformers", unknown_fields=("ignore_eos",), eos_after=4, models=models
        ) as second,
    ):
        result = invoke(
            "compare", "--endpoint", first.url, "--endpoint", second.url, "-n", 8, "--rate", "50",
            "--num-requests", 3, "--max-seconds", 8, "-o", "json", "hello",
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert f"{second.url} offers 2 models; b is asked" in result.stderr

    report = json.loads(result.stdout)
    assert [each["model"] for each in report["servers"]] == ["tiny", "b"]
    assert [each["left_out_fields"] for each in report["servers"]] == [[], ["ignore_eos"]]
    words = " ".join(report["why"]["words"])
    assert f"{second.url} refuses ignore_eos" in words
    assert f"{second.url} wrote 4 tokens an answer, 4.0 on average, where 8 were asked for" in words
    assert [cell["num_completed"] for cell in report["sweep"][0]["arms"]] == [3, 3]


def test_endpoint_tells_events():
    """JSON lines begin and end as those of local arms."""
    with serving("fine") as server:
        result = invoke(
            "compare", "--endpoint", server.url, "-n", 4, "--rate", "50", "--num-requests", 2,
            "--max-seconds", 8, "-q", "-o", "jsonl", "hello",
        )  # fmt: skip

    start, cell, end = map(json.loads, result.stdout.splitlines())
    assert (start["event"], cell["event"], end["event"]) == ("start", "cell", "end")
    assert start["id"] == end["report"]["id"]


def test_endpoint_without_an_answer_fails():
    """Exit 1; an option of local arms is refused; a key is not written down."""
    with serving("500") as server:
        result = invoke(
            "compare", "--endpoint", server.url, "--api-key", "secret", "--rate", 50,
            "--num-requests", 3, "--max-seconds", 5, "hello",
        )  # fmt: skip
    assert result.exit_code == 1
    assert "no request was answered" in result.stderr
    assert "3 requests failed: HTTP 500" in result.stdout
    assert "queue" not in result.stdout  # nobody can tell
    assert "secret" not in result.output

    for extra, words in (
        (("--batch", "2"), "--batch has no effect with --endpoint"),
        (("-k", "2"), "--num-draft-tokens has no effect with --endpoint"),
        (("--check",), "check has no effect with --endpoint"),
    ):
        refused = invoke("compare", "--endpoint", "http://127.0.0.1:9", *extra, "hello")
        assert refused.exit_code == 2
        assert words in refused.output
    assert invoke("compare", "--endpoint", "localhost:1", "hello").exit_code == 2
