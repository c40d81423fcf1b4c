"""The table of `spec-cli check`, from a record as the command writes it."""

import io
from typing import Any

import pytest
from rich.console import Console

from spec_cli.ui.check_table import check_table

MODEL: dict[str, Any] = {
    "id": "org/tiny",
    "source": "hub",
    "revision": None,
    "sha256": None,
    "type": "llama",
    "num_parameters": 0,
    "dtype": "bfloat16",
    "device": "cpu",
    "weight_bytes": 0,
    "kv_bytes_per_1k_tokens": 0,
    "context_length": None,
    "cache": "rollback",
    "cache_reason": None,
    "vocab_rows": 0,
    "end_tokens": {},
    "generation_config": {"honoured": {}, "ignored": []},
    "has_chat_template": True,
    "notices": [],
}
MEMORY = {"free_bytes": None, "weight_bytes": 0, "ctx_size": None, "kv_bytes_at_ctx": None}


@pytest.mark.parametrize(
    ("number", "text"),
    [(135_000_000, "135 M"), (999_700_000, "1,000 M"), (8_030_000_000, "8.0 B"), (52, "52")],
)
def test_parameters_are_told_without_powers_of_ten(number: int, text: str) -> None:
    """Counts of parameters stay in a unit that people use."""
    record = {"target": MODEL | {"num_parameters": number}, "draft": None, "pair": None}
    screen = io.StringIO()
    Console(width=80, file=screen).print(check_table(record | {"memory": MEMORY}))

    assert f"llama, {text} parameters" in screen.getvalue()
