"""The cells of a comparison's report, and what holds for every one."""

from typing import Any


def cells(report: dict[str, Any], section: str = "batches") -> list[dict[str, Any]]:
    """Every arm's cell of a section."""
    return [cell for record in report[section] for cell in record["arms"]]


def check_identities(report: dict[str, Any]) -> None:
    """cli.md, section 2.5: the counts of every cell fit together."""
    for cell in cells(report) + cells(report, "sweep"):
        counts = cell["speculative_decoding"]
        histogram = counts["acceptance_histogram"]
        accepted = sum(j * number for j, number in enumerate(histogram))
        assert counts["num_accepted_draft_tokens"] == accepted
        assert counts["num_spec_steps"] == sum(histogram)
        whole = counts["num_requests"] + accepted + counts["num_target_passes"]
        # The last step of an answer may be cut by the length asked for.
        assert 0 <= whole - counts["num_output_tokens"] <= counts["num_requests"]
        assert counts["num_draft_tokens"] >= accepted
