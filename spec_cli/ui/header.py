"""What is about to run, before the first token."""

from collections.abc import Mapping
from typing import Any


def header(
    model: Mapping[str, Any],
    draft: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    *,
    is_plain: bool = False,
) -> str:
    """Three short lines: target, draft, and the effective settings.

    Args:
        model: As in the JSON report.
        draft: As in the JSON report.
        settings: As in the JSON report.
        is_plain: Use ASCII only.
    """
    separator = " | " if is_plain else " · "
    lines = {
        "target": [_name(model), model["dtype"], model["device"]],
        "draft": _draft(draft, settings),
        "run": [
            f"ctx {settings['ctx_size']:,}",
            f"temp {settings['temperature']:g}",
            *([] if settings["temperature"] == 0 else _sampling(settings)),
            f"up to {settings['max_tokens']:,} tokens",
        ],
    }
    return "\n".join(f"{title:<8}{separator.join(fields)}" for title, fields in lines.items())


def _name(model: Mapping[str, Any]) -> str:
    notes = [model["source"]]
    if model.get("revision"):
        notes.append(model["revision"][:12])
    if model.get("sha256"):
        notes.append(f"sha256 {model['sha256'][:12]}")
    return f"{model['id']} ({', '.join(notes)})"


def _draft(draft: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> list[str]:
    if draft is None:
        return ["none: speculation is off"]
    if draft["kind"] == "ngram":
        who = f"n-gram lookup, {draft['ngram_min']} to {draft['ngram_max']} tokens"
    elif draft["kind"] == "suffix":
        who = "lookup of the longest match"
    else:
        who = _name(draft) + (" and lookup" if draft["kind"] == "hybrid" else "")
    return [who, f"k {settings['num_draft_tokens']}", f"verify {settings['verify']}"]


def _sampling(settings: Mapping[str, Any]) -> list[str]:
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    fields = [
        f"{name.replace('_', '-')} {settings[name]:g}"
        for name, value in neutral.items()
        if settings[name] != value
    ]
    seed = settings["seed"]
    return [*fields, "seed drawn for each" if seed is None else f"seed {seed}"]
