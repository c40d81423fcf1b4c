"""The parts of a comparison's report that only the command line knows."""

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spec_cli.bench.arms import Arm
from spec_cli.bench.comparison import Plan
from spec_cli.bench.workload import WorkPrompt
from spec_cli.cli.report import describe_run
from spec_cli.core.params import SamplingParams

if TYPE_CHECKING:
    from spec_cli import LLM


def report_head(
    llm: "LLM",
    plan: Plan,
    params: SamplingParams,
    workload: list[WorkPrompt],
    prompts: list[tuple[int, ...]],
) -> dict[str, Any]:
    """What is known before anything is measured.

    Args:
        llm: The models.
        plan: What is to run.
        params: Of every request.
        workload: Prompts.
        prompts: Their token ids.
    """
    from spec_cli.bench.launch import num_threads

    run = describe_run("compare", llm.config, llm.assembly, [params])
    lengths = [len(each) for each in prompts]
    settings = {
        **run.settings,
        "spec": list(dict.fromkeys(arm.spec for arm in plan.arms)),
        "num_draft_tokens": [arm.num_draft_tokens for arm in plan.arms],
        "repeats": plan.repeats,
        "warmup": plan.warmup,
        "num_requests": plan.num_requests if plan.rates else None,
        "max_seconds": plan.max_seconds if plan.rates else None,
        "slo": plan.slo.limits_ms,
    }
    env = {**run.env, "threads": str(num_threads()), "processor": _processor()}
    return {
        **run.record(),
        "command_line": ["spec-cli", *sys.argv[1:]],
        "settings": settings,
        "env": env,
        "workload": {
            "num_prompts": plan.num_prompts,
            "names": [prompt.name for prompt in workload],
            "min_prompt_tokens": min(lengths),
            "max_prompt_tokens": max(lengths),
        },
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def with_memory(report: dict[str, Any], llm: "LLM", arms: list[Arm]) -> dict[str, Any]:
    """Add bytes by kind: weights of the arm's models, cache in use, logits of its largest step."""
    from spec_cli.bench.launch import weight_bytes

    by_name = {arm.name: arm for arm in arms}
    width = llm.assembly.engine.parts.target.vocab_size
    for record in report["batches"]:
        for cell in record["arms"]:
            memory = cell["memory"]
            memory["weight_bytes"] = weight_bytes(llm, by_name[cell["arm"]])
            memory["working_bytes"] = 4 * width * memory.pop("logit_rows")
    return report
