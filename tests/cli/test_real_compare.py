"""`spec-cli compare` on the default model: what a newcomer's first comparison must show."""

import pytest

from tests.bench.opened_page import CHROMIUM, browse, embedded_report
from tests.cli.compare_cells import cells, check_identities
from tests.cli.running import invoke_json


@pytest.mark.real
def test_default_model(tmp_path):
    """Drafts are accepted, texts are equal, counts fit together, and the page loads nothing."""
    path = tmp_path / "report.html"
    report = invoke_json(
        "compare", "--suite", "code", "--num-prompts", 1, "-r", 1, "--warmup", 0, "-n", 16,
        "--spec", "suffix", "-k", 4, "--dtype", "float32", "--check", "--html", path, "-q",
    )  # fmt: skip

    assert report["failures"] == {}
    assert (report["check"]["checked"], report["check"]["identical"]) == (True, True)
    target, suffix = cells(report)
    assert suffix["same_text"] == "yes"
    for cell in (target, suffix):
        assert cell["speculative_decoding"]["num_output_tokens"] == 16
    # The prompt holds the code to edit, so lookup finds something.
    assert suffix["speculative_decoding"]["num_accepted_draft_tokens"] > 0
    check_identities(report)

    assert embedded_report(path.read_text(encoding="utf-8")) == report
    if CHROMIUM is not None:
        shown = browse(path, tmp_path, "--dump-dom")
        assert "CONSOLE" not in shown.stderr
        assert "suffix k=4" in shown.stdout
