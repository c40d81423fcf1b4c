"""The JSON report: one object, with names as in vLLM and OpenAI's API where they exist."""

import platform
import resource
import secrets
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from spec_cli import __version__
from spec_cli.cli.answers import Answer
from spec_cli.core.config import EngineConfig
from spec_cli.core.events import SpeculationState
from spec_cli.core.params import SamplingParams
from spec_cli.core.stats import RequestStats

if TYPE_CHECKING:
    from spec_cli.engine.assembly import Assembly
    from spec_cli.models.loader import LoadedModel

SCHEMA = "spec-cli/1"
_SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("max_tokens", "stop", "stop_token_ids", "ignore_eos"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDescription:
    """What is known of a run before its first token.

    Attributes:
        command: Name of the command.
        model: The target.
        draft: The draft model or lookup, or None where speculation is off.
        settings: Effective values.
        env: Versions and device.
        id: Unique name of the run.
        created: Seconds since 1970.
    """

    command: str
    model: dict[str, Any]
    draft: dict[str, Any] | None
    settings: dict[str, Any]
    env: dict[str, str]
    id: str
    created: int

    def record(self) -> dict[str, Any]:
        """The beginning of the report."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "created": self.created,
            "command": self.command,
            "model": self.model,
            "draft": self.draft,
            "settings": self.settings,
        }


def describe_run(
    command: str, config: EngineConfig, assembly: "Assembly", params: list[SamplingParams]
) -> RunDescription:
    """Describe a run by its configuration and what became of it.

    Args:
        command: Name of the command.
        config: As asked for.
        assembly: As loaded.
        params: Of each prompt; they differ in their seeds at most.
    """
    first = params[0]
    seeds = {each.seed for each in params}
    settings = {
        "spec": assembly.spec,
        "num_draft_tokens": config.num_draft_tokens,
        "verify": config.verify,
        "exact": config.exact,
        **{name: getattr(first, name) for name in _SAMPLING},
        "seed": first.seed if len(seeds) == 1 else None,
        "ctx_size": assembly.context_length,
    }
    return RunDescription(
        command=command,
        model=_model(assembly.target),
        draft=_draft(config, assembly),
        settings=settings,
        env={
            "spec_cli": __version__,
            "torch": version("torch"),
            "transformers": version("transformers"),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "device": str(assembly.target.device),
        },
        id=f"gen-{time.time_ns():x}{secrets.token_hex(3)}",
        created=int(time.time()),
    )


def _model(loaded: "LoadedModel") -> dict[str, Any]:
    files = loaded.files
    dtype = str(loaded.dtype).removeprefix("torch.")
    return {
        "id": files.name,
        "revision": files.revision,
        "source": files.source,
        "sha256": files.sha256,
        "dtype": dtype,
        "weights": "gguf" if files.gguf_file else dtype,
        "device": str(loaded.device),
    }


def _draft(config: EngineConfig, assembly: "Assembly") -> dict[str, Any] | None:
    if assembly.spec == "off":
        return None
    if assembly.draft is not None:
        kind = "hybrid" if assembly.spec == "hybrid" else "draft_model"
        return {"kind": kind, **_model(assembly.draft)}
    if assembly.spec == "suffix":
        return {"kind": "suffix", "id": None, "revision": None}
    low, high = config.ngram_sizes
    return {"kind": "ngram", "id": None, "revision": None, "ngram_min": low, "ngram_max": high}


def full_report(
    run: RunDescription,
    answers: list[Answer],
    params: list[SamplingParams],
    state: SpeculationState,
) -> dict[str, Any]:
    """The whole report."""
    return {
        **run.record(),
        "choices": [
            choice(answer, each.seed, state)
            for answer, each in zip(answers, params, strict=False)
            if answer.stats is not None
        ],
        "memory": {"peak_bytes": peak_bytes()},
        "env": run.env,
    }


def choice(answer: Answer, seed: int | None, state: SpeculationState) -> dict[str, Any]:
    """One answer of the report."""
    stats = answer.stats
    assert stats is not None, "only answers that ended are reported"
    return {
        "index": answer.index,
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "seed": seed,
        "usage": {
            "prompt_tokens": stats.num_prompt_tokens,
            "cached_tokens": stats.num_cached_tokens,
            "completion_tokens": stats.num_output_tokens,
            "reasoning_tokens": answer.num_reasoning_tokens,
        },
        "metrics": {
            "time_to_first_token_ms": _ms(stats.time_to_first_token_s),
            "prefill_time_ms": _ms(stats.prefill_s),
            "generation_time_ms": _ms(stats.decode_s),
            "tokens_per_second": _round(stats.tokens_per_second),
            "time_split_ms": {
                "draft": _ms(stats.propose_s),
                "verify": _ms(stats.forward_s),
                "sample": _ms(stats.verify_s),
                "other": _ms(stats.other_s),
            },
            "speculative_decoding": speculative_decoding(stats, state),
        },
    }


def speculative_decoding(stats: RequestStats, state: SpeculationState) -> dict[str, Any]:
    """The counts of speculation and the figures that follow from them."""
    return {
        "enabled": state.mode != "off",
        "mode": state.mode,
        "reason": state.reason or stats.draft_ended,
        "paused_steps": stats.num_paused_steps,
        "max_draft_tokens": len(stats.drafted_per_position),
        "num_spec_steps": stats.num_spec_steps,
        "num_target_passes": stats.num_target_passes,
        "num_draft_tokens": stats.num_draft_tokens,
        "num_accepted_draft_tokens": stats.num_accepted_draft_tokens,
        "draft_acceptance_rate": _round(stats.draft_acceptance_rate),
        "mean_acceptance_length": _round(stats.mean_acceptance_length),
        "tokens_per_target_pass": _round(stats.tokens_per_target_pass),
        "draft_share": _round(stats.draft_share),
        "acceptance_rate_per_position": [
            _round(rate) for rate in stats.acceptance_rate_per_position
        ],
        "acceptance_histogram": list(stats.acceptance_histogram),
        "speedup_est": _round(stats.speedup_est),
        "target_step_ms": None if stats.target_step_s is None else _ms(stats.target_step_s),
    }


def peak_bytes() -> int:
    """Most memory of the host that this process has used."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
