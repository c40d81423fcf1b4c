"""The parts of a comparison's report that only the command line knows."""

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spec_cli.bench.arms import Arm
from spec_cli.bench.comparison import Plan, Results
from spec_cli.bench.proof import Difference
from spec_cli.bench.report import batch_record, build_report
from spec_cli.bench.why import ForwardTime
from spec_cli.bench.working_memory import StepShape, largest_shapes
from spec_cli.bench.workload import WorkPrompt
from spec_cli.cli.report import describe_run
from spec_cli.core.params import SamplingParams
from spec_cli.models.machine import processor_name

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
    env = {**run.env, "threads": str(num_threads()), "processor": processor_name()}
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


@dataclass(slots=True)
class Measured:
    """What a comparison has measured so far.

    Attributes:
        plan: What was to run.
        head: What was known before.
        results: Of the main run.
        parts: Of the other lengths of prompts and answers, as far as they were run.
        forwards: Times of the target's forward.
        found: Differences of the texts.
        working: Working bytes of the largest steps, as far as they were measured.
    """

    plan: Plan
    head: dict[str, Any]
    results: Results = field(default_factory=Results)
    parts: list[Results] = field(default_factory=list)
    forwards: list[ForwardTime] = field(default_factory=list)
    found: dict[tuple[int, str], list[Difference]] = field(default_factory=dict)
    working: dict[StepShape, int | None] = field(default_factory=dict)

    def report(
        self,
        llm: "LLM",
        failures: dict[str, str],
        lengths: list[tuple[int | None, int]],
        *,
        is_checked: bool,
    ) -> dict[str, Any]:
        """The report.

        Args:
            llm: The models.
            failures: Arms that failed, with the reason.
            lengths: Tokens of prompts and answers: of the main run, then of each part.
            is_checked: Whether differences were judged.
        """
        made = build_report(
            self.plan,
            self.results,
            head=self.head,
            failures=failures,
            forwards=self.forwards,
            found=self.found,
            is_checked=is_checked,
        )
        self._add_memory(made["batches"], self.results, llm)
        made["lengths"] = []
        plan = self.plan.for_lengths()
        if len(lengths) > 1:
            for part, (input_len, output_len) in zip(
                [self.results, *self.parts], lengths, strict=False
            ):
                words = (
                    "prompts as they are" if input_len is None else f"{input_len:,} prompt tokens"
                )
                record = batch_record(plan, part, plan.batches[0], {})
                self._add_memory([record], part, llm)
                made["lengths"].append(
                    {
                        "title": f"{words}, {output_len:,} generated",
                        "input_len": input_len,
                        "output_len": output_len,
                        "batches": [record] if record["arms"] else [],
                    }
                )
        return made

    def _add_memory(self, records: list[dict[str, Any]], results: Results, llm: "LLM") -> None:
        """Add the weights of each arm's models and what its largest step took."""
        from spec_cli.bench.launch import weight_bytes

        by_name = {arm.name: arm for arm in self.plan.arms}
        for record in records:
            for cell in record["arms"]:
                arm = by_name[cell["arm"]]
                cell["memory"]["weight_bytes"] = weight_bytes(llm, arm)
                cell["memory"]["working_bytes"] = self._working_bytes(results, record["batch"], arm)

    def _working_bytes(self, results: Results, batch: int, arm: Arm) -> int | None:
        if arm.is_reference:
            return None
        shapes = largest_shapes(results.groups[batch, arm.name])
        found = [self.working.get(shape) for shape in shapes]
        return max((each for each in found if each is not None), default=None)
