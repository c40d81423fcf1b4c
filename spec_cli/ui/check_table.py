"""The table of `spec-cli check`."""

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.table import Table

from spec_cli.core.byte_size import format_bytes

_CACHE = {
    "rollback": "forgets rejected tokens: speculation works",
    "no_rollback": "cannot forget: runs without speculation",
    "unsupported": "of a kind of its own: runs without speculation",
}


def check_table(record: Mapping[str, Any], *, is_plain: bool = False) -> Table:
    """Target and draft side by side.

    Args:
        record: The JSON of `spec-cli check`.
        is_plain: Draw with ASCII only.
    """
    models = [record["target"], *([record["draft"]] if record["draft"] else [])]
    table = Table(box=box.ASCII if is_plain else box.ROUNDED, show_edge=True)
    table.add_column("")
    for title, model in zip(("target", "draft"), models, strict=False):
        table.add_column(f"{title}: {model['id']}", overflow="fold")
    for name, value in _MODEL_ROWS.items():
        table.add_row(name, *(value(model) for model in models))
    table.add_section()
    for name, text in _shared_rows(record):
        table.add_row(name, text)
    return table


def _source(model: Mapping[str, Any]) -> str:
    parts = [model["source"], (model["revision"] or "")[:12], (model["sha256"] or "")[:12]]
    return " ".join(part for part in parts if part)


def _cache(model: Mapping[str, Any]) -> str:
    text = _CACHE[model["cache"]]
    return f"{text} ({model['cache_reason']})" if model["cache_reason"] else text


def _context(model: Mapping[str, Any]) -> str:
    length = model["context_length"]
    return "no limit stated" if length is None else f"{length:,} tokens"


def _end_tokens(model: Mapping[str, Any]) -> str:
    return ", ".join(f"{i} {text!r}" for i, text in model["end_tokens"].items()) or "none"


def _honoured(model: Mapping[str, Any]) -> str:
    fields = model["generation_config"]["honoured"].items()
    return ", ".join(f"{name} {value}" for name, value in fields) or "-"


def _ignored(model: Mapping[str, Any]) -> str:
    return ", ".join(model["generation_config"]["ignored"]) or "-"


_MODEL_ROWS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "source": _source,
    "type": lambda model: f"{model['type']}, {_count(model['num_parameters'])} parameters",
    "weights": lambda model: (
        f"{format_bytes(model['weight_bytes'])} as {model['dtype']} on {model['device']}"
    ),
    "KV per 1k tokens": lambda model: format_bytes(model["kv_bytes_per_1k_tokens"]),
    "context": _context,
    "cache": _cache,
    "vocabulary": lambda model: f"{model['vocab_rows']:,} rows",
    "end tokens": _end_tokens,
    "sampling advice": _honoured,
    "not honoured": _ignored,
    "chat template": lambda model: "yes" if model["has_chat_template"] else "no",
    "notes": lambda model: " ".join(model["notices"]) or "-",
}


def _shared_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    memory, pair = record["memory"], record["pair"]
    rows = []
    if pair is not None:
        text = f"{pair['shared_token_ids']:,} ids mean the same in both"
        rows.append(("tokenizers", " ".join([text + ".", *pair["notices"]])))
    free = memory["free_bytes"]
    rows.append(("free memory", "unknown" if free is None else format_bytes(free)))
    need = f"weights {format_bytes(memory['weight_bytes'])}"
    ctx_size = memory["ctx_size"]
    if ctx_size is not None:
        need += f", KV {format_bytes(memory['kv_bytes_at_ctx'])} for a row of {ctx_size:,} tokens"
    rows.append(("needs", need))
    return rows


def _count(number: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            value = number / size
            return f"{value:.1f} {unit}" if value < 100 else f"{value:,.0f} {unit}"
    return str(number)
