"""What all options have in common; the groups of them are in the modules beside this one.

An option that was not given is None, so that its default can come from the model.
"""

import re
from typing import Any

import typer

from spec_cli.core.errors import UsageError

FLAGS = {
    "spec": "--spec",
    "verify": "--verify",
    "exact": "--exact",
    "num_draft_tokens": "--num-draft-tokens",
    "k_schedule": "--k-schedule",
    "draft_model": "--draft-model",
    "draft_p_min": "--draft-p-min",
    "draft_revision": "--draft-revision",
    "draft_device": "--draft-device",
    "draft_trust_remote_code": "--draft-trust-remote-code",
    "ngram_min": "--ngram-min",
    "ngram_max": "--ngram-max",
    "lookup_corpus": "--lookup-corpus",
    "ctx_size": "--ctx-size",
    "max_rows": "--max-rows",
    "memory_bytes": "--memory",
    "threads": "--threads",
    "temperature": "--temperature",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "repetition_penalty": "--repetition-penalty",
    "presence_penalty": "--presence-penalty",
    "frequency_penalty": "--frequency-penalty",
    "seed": "--seed",
    "max_tokens": "--max-tokens",
    "stop": "--stop",
    "stop_token_ids": "--stop-token-id",
    "ignore_eos": "--ignore-eos",
    "enable_thinking": "--think/--no-think",
    "repeats": "--repeats",
    "warmup": "--warmup",
    "batch": "--batch",
    "input_len": "--input-len",
    "output_len": "--output-len",
    "rate": "--rate",
    "num_prompts": "--num-prompts",
    "num_requests": "--num-requests",
    "max_seconds": "--max-seconds",
    "slo": "--slo",
    "fail_under": "--fail-under",
}
"""Names of fields in messages, and the flags that set them."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 1024**power for power, unit in enumerate("KMGT", start=1)}


def option(*names: str, help: str, panel: str, metavar: str | None = None) -> Any:
    """An option that the environment can set too, as SPEC_CLI_ and its first long name."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    return typer.Option(
        *names,
        help=help,
        metavar=metavar,
        envvar="SPEC_CLI_" + long.removeprefix("--").replace("-", "_").upper(),
        show_envvar=False,
        rich_help_panel=panel,
    )


def parse_size(text: str) -> int:
    """Bytes of a size such as 4GB, 512MB or 1.5GiB.

    Raises:
        UsageError: It is no size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?I?)B?", text.strip().upper())
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise UsageError(f"memory_bytes must be a size such as 4GB or 512MB, got {text!r}.")
    return int(float(match[1]) * _UNITS[match[2]])
