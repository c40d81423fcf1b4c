"""`spec-cli check`: would this pair run, and what would it need? Loads no weights."""

import json as json_format
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from spec_cli.cli.guard import OutputFormat, describe, exit_with, guard
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.model_options import ModelOptions
from spec_cli.cli.output_options import JsonOption, ScreenOptions
from spec_cli.cli.report import SCHEMA
from spec_cli.cli.session import loading_view
from spec_cli.cli.stdout import write_out
from spec_cli.ui.check_table import check_table

if TYPE_CHECKING:
    from spec_cli.engine.inspection import Inspection, ModelFacts


def check(*, models: ModelOptions, json: JsonOption = False, screen: ScreenOptions) -> None:
    """Say whether target and draft fit together and into memory, without loading weights."""
    output_format: OutputFormat = "json" if json else "text"
    with guard(output_format, debug=screen.debug), Interrupts().handled():
        screen.check()
        config = models.engine_config()
        with loading_view(screen, screen.console()) as loading:
            from spec_cli.engine.inspection import inspect_models

            inspection = inspect_models(config, loading.report)
        record = inspection_record(inspection)
        _print(record, output_format, screen)
        failures = [describe(problem) for problem in inspection.problems]
        for failure in failures:
            exit_with(failure, "text")
        if failures:
            raise typer.Exit(failures[0].exit_code)


def _print(record: dict[str, Any], output_format: OutputFormat, screen: ScreenOptions) -> None:
    if output_format == "json":
        write_out(json_format.dumps(record, ensure_ascii=False, indent=2) + "\n")
        return
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(check_table(record, is_plain=screen.plain))
    for tip in record["tips"]:
        console.print(f"Tip: {tip}", soft_wrap=True)
    if record["fits"]:
        console.print("This runs.", style="green")


def inspection_record(inspection: "Inspection") -> dict[str, Any]:
    """An inspection in JSON."""
    pair = inspection.pair
    per_token, ctx_size = inspection.cache_bytes_per_token, inspection.ctx_size
    return {
        "schema": SCHEMA,
        "command": "check",
        "fits": not inspection.problems,
        "target": _model_record(inspection.target),
        "draft": None if inspection.draft is None else _model_record(inspection.draft),
        "pair": None
        if pair is None
        else {
            "shared_token_ids": pair.tokenizer_ids,
            "target_rows": pair.target_rows,
            "draft_rows": pair.draft_rows,
            "never_proposed": len(pair.never_propose),
            "notices": list(pair.notices),
        },
        "memory": {
            "free_bytes": inspection.free_bytes,
            "weight_bytes": inspection.weight_bytes,
            "kv_bytes_per_1k_tokens": per_token * 1000,
            "ctx_size": ctx_size,
            "kv_bytes_at_ctx": None if ctx_size is None else per_token * ctx_size,
        },
        "problems": [describe(problem).record() for problem in inspection.problems],
        "tips": list(inspection.tips),
    }


def _model_record(facts: "ModelFacts") -> dict[str, Any]:
    files = facts.files
    return {
        "id": files.name,
        "source": files.source,
        "revision": files.revision,
        "sha256": files.sha256,
        "type": facts.kind,
        "num_parameters": facts.num_parameters,
        "dtype": facts.dtype,
        "device": facts.device,
        "weight_bytes": facts.weight_bytes,
        "kv_bytes_per_1k_tokens": facts.cache_bytes_per_token * 1000,
        "context_length": facts.context_length,
        "cache": facts.cache,
        "cache_reason": facts.cache_reason,
        "vocab_rows": facts.vocab_rows,
        "end_tokens": {str(token_id): text for token_id, text in facts.end_tokens.items()},
        "generation_config": {"honoured": facts.honoured, "ignored": list(facts.ignored)},
        "has_chat_template": facts.has_chat_template,
        "notices": list(facts.notices),
    }
