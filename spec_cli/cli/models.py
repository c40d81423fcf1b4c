"""`spec-cli models`: what is cached, and what can draft for a target."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from spec_cli.cli.guard import guard
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.options import option
from spec_cli.cli.output_options import JsonOption, ScreenOptions
from spec_cli.cli.report import SCHEMA
from spec_cli.cli.stdout import write_out
from spec_cli.core.byte_size import format_bytes

if TYPE_CHECKING:
    from spec_cli.models.catalog import CachedModel

_LARGE_SHARE = 0.4


def models(
    *,
    target: Annotated[
        str | None,
        option(
            "--for",
            metavar="ID",
            panel="Models",
            help="Say of each whether it can draft for this target.",
        ),
    ] = None,
    cache_dir: Annotated[
        Path | None,
        option("--cache-dir", panel="Models", help="Where models are kept; Hugging Face's cache."),
    ] = None,
    json: JsonOption = False,
    screen: ScreenOptions,
) -> None:
    """List the models on this machine, smallest first; nothing is fetched or loaded."""
    with guard("json" if json else "text", debug=screen.debug), Interrupts().handled():
        rows = _listed(cache_dir) if target is None else _judged(target, cache_dir)
        if json:
            record = {"schema": SCHEMA, "command": "models", "target": target, "models": rows}
            write_out(json_format.dumps(record, ensure_ascii=False, indent=2) + "\n")
            return
        console = Console(highlight=False, markup=False, emoji=False)
        if not rows:
            console.print("No model is cached. Any command fetches the default one on first use.")
        for row in rows:
            console.print(_line(row), soft_wrap=True)


def _listed(cache_dir: Path | None) -> list[dict[str, Any]]:
    from spec_cli.models.catalog import cached_models

    found = sorted(cached_models(cache_dir), key=lambda model: model.num_bytes)
    return [_record(model) for model in found]


def _judged(target: str, cache_dir: Path | None) -> list[dict[str, Any]]:
    from spec_cli.engine.fitting import fits_for

    return [
        {
            **_record(fit.model),
            "fits": fit.reason is None,
            "reason": fit.reason,
            "size_share": round(fit.size_share, 3),
        }
        for fit in fits_for(target, cache_dir)
    ]


def _record(model: "CachedModel") -> dict[str, Any]:
    return {
        "id": model.name,
        "source": model.source,
        "revision": model.revision,
        "bytes": model.num_bytes,
        "path": str(model.path),
    }


def _line(row: dict[str, Any]) -> str:
    line = f"{row['id']:<44} {format_bytes(row['bytes']):>8}  {row['source']}"
    if row["revision"]:
        line += f" {row['revision'][:12]}"
    if "fits" not in row:
        return line
    if not row["fits"]:
        return f"{line}  does not fit: {row['reason']}"
    share = row["size_share"]
    note = "; too large to gain much" if share > _LARGE_SHARE else ""
    return f"{line}  fits, {share:.0%} of the target's size{note}"
