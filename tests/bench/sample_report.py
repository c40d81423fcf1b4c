"""A small report with every section, numbers chosen by hand."""

from typing import Any


def _counts(accepted: int = 0, drafted: int = 0) -> dict[str, Any]:
    return {
        "num_requests": 2,
        "num_output_tokens": 80,
        "num_target_passes": 50,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "tokens_per_target_pass": 1.56 if drafted else 1.0,
        "acceptance_rate_per_position": [0.9, 0.5] if drafted else [],
        "acceptance_histogram": [1, 4, 5] if drafted else [],
    }


def _batch_cell(name: str, length: Any, speed: float, speedup: float) -> dict[str, Any]:
    summary = {"count": 2, "mean": 20.0, "p50": 20.0, "p90": 21.0, "p99": 22.0}
    return {
        "arm": name,
        "num_draft_tokens": length,
        "tokens_per_second": speed,
        "tokens_per_second_sd": 0.5,
        "speedup_measured": speedup,
        "speedup_interval": None if length is None else [speedup - 0.1, speedup + 0.1],
        "time_to_first_token_ms": summary,
        "time_per_output_token_ms": summary,
        "mean_num_draft_tokens": 2.5,
        "time_split_ms": {"draft": 1.0, "verify": 7.0, "sample": 1.0, "other": 1.0},
        "speculative_decoding": _counts() if length is None else _counts(14, 20),
        "memory": {"weight_bytes": 250_000_000, "kv_bytes": 20_000_000, "working_bytes": 1_000_000},
        "same_text": None if length is None else "yes",
    }


def _rate_cell(name: str, length: Any, seconds: float, ratio: float) -> dict[str, Any]:
    summary = {"count": 9, "mean": 1e3 * seconds, "p50": 1e3 * seconds}
    summary |= {"p90": 1.5e3 * seconds, "p99": 2e3 * seconds}
    return {
        "arm": name,
        "num_draft_tokens": length,
        "achieved_rate": 0.9,
        "saturated": seconds > 3.0,
        "failures": {},
        "time_to_first_token_ms": summary,
        "time_per_output_token_ms": summary,
        "inter_token_latency_ms": summary,
        "end_to_end_ms": summary,
        "queue_time_ms": summary,
        "tokens_per_second": 40.0 / seconds,
        "goodput": 0.8,
        "slo_attained": 0.9,
        "mean_num_draft_tokens": 2.0,
        "paused_share": 0.25,
        "draft_length_over_time": [[0.5, 4.0], [1.5, 2.0], [2.5, 0.0]],
        "speculative_decoding": _counts() if length is None else _counts(14, 20),
        "median_latency_ratio": ratio,
    }


def sample_report() -> dict[str, Any]:
    """Two arms, two batch sizes, three rates."""
    model = {"id": "tiny/model", "source": "hub", "dtype": "bfloat16", "device": "cpu"}
    sweep = []
    for rate, seconds in ((1.0, 1.0), (4.0, 2.0), ("inf", 8.0)):
        arms = [
            _rate_cell("target only", None, seconds, 1.0),
            _rate_cell("ngram k=auto", "auto", seconds / 2, 0.5),
        ]
        sweep.append({"rate": rate, "planned_rate": 1.0, "planned_times_s": [], "arms": arms})
    return {
        "model": model,
        "draft": None,
        "created": 1_790_000_000,
        "command_line": ["spec-cli", "compare", "-k", "auto", "two words"],
        "env": {"torch": "2.13"},
        "settings": {"max_tokens": 40},
        "interrupted": False,
        "failures": {"draft k=4": "RuntimeError: broken"},
        "batches": [
            {
                "batch": batch,
                "arms": [
                    _batch_cell("target only", None, 40.0, 1.0),
                    _batch_cell("ngram k=auto", "auto", 60.0, 1.5),
                ],
            }
            for batch in (1, 4)
        ],
        "sweep": sweep,
        "check": {"differences": []},
        "break_even": {"rate": {}, "batch": {}},
        "why": {
            "forwards": [
                {"batch": batch, "tokens_per_row": width, "ms": ms}
                for batch, width, ms in ((1, 1, 14.0), (1, 5, 18.0), (8, 1, 21.0), (8, 5, 51.0))
            ],
            "economics": {},
            "words": ["Checking drafts costs 1.3x a plain step alone and 2.4x at 8 rows."],
        },
    }
