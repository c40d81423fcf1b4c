"""What a comparison is asked to do, read from its options before anything is loaded."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spec_cli.bench.arms import CompareConfig
from spec_cli.bench.comparison import Plan
from spec_cli.bench.slo import parse_slo
from spec_cli.bench.workload import WorkPrompt
from spec_cli.cli.compare_options import ArmOptions, CompareOutput, WorkOptions
from spec_cli.cli.measure_options import MeasureOptions
from spec_cli.cli.request_options import SamplingOptions, TemplateOptions
from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams

MAX_TOKENS = 64
NUM_REQUESTS = 32
MAX_SECONDS = 420.0
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is asked for, checked before anything is loaded.

    Attributes:
        plan: What to run.
        config: Options of all arms.
        workload: Prompts, no more than are used.
        params: Of every request.
        template: How prompts are put to the model, as `encode_prompts` takes it.
        output_format: Of stdout.
        output_err: Format of the report on stderr, or None.
        is_checked: Whether texts are to be proved equal.
        fail_under: Least speed-up, or None.
        page: File of the HTML page, or None.
        lengths: Prompt tokens (None leaves prompts as they are) and answer tokens of each table;
            the first is that of the main run.
    """

    plan: Plan
    config: CompareConfig
    workload: list[WorkPrompt]
    params: SamplingParams
    template: dict[str, Any]
    output_format: str
    output_err: str | None
    is_checked: bool
    fail_under: float | None
    page: Path | None
    lengths: list[tuple[int | None, int]]


def make_job(
    arguments: list[str],
    work: WorkOptions,
    template: TemplateOptions,
    models: ArmOptions,
    sampling: SamplingOptions,
    measure: MeasureOptions,
    output: CompareOutput,
) -> Job:
    """Read all options.

    Raises:
        UsageError: They cannot be, or contradict each other; nothing has been loaded yet.
    """
    measure.check_values()
    arms = models.arms()
    config = models.config(arms)
    params = make_params(sampling, models, is_checked=measure.check)
    workload = work.collect(arguments)
    rates = measure.rates()
    lengths = _lengths(measure, sampling, params)
    params = replace(params, max_tokens=lengths[0][1])
    num_requests = measure.num_requests or NUM_REQUESTS
    num_prompts = work.num_of(workload, len(arguments))
    plan = Plan(
        arms=arms,
        batches=measure.batches(),
        rates=rates,
        repeats=measure.repeats or (1 if rates else _ROUNDS),
        warmup=measure.warmup,
        num_prompts=num_prompts,
        num_available=len(workload),
        num_requests=num_requests,
        max_seconds=measure.max_seconds or MAX_SECONDS,
        seed=params.seed or 0,
        slo=parse_slo(measure.slo),
    )
    return Job(
        plan=plan,
        config=config,
        workload=workload[: plan.num_used],
        params=params,
        template=_template(work, template),
        output_format=output.format(),
        output_err=output.output_err,
        is_checked=measure.check,
        fail_under=measure.fail_under,
        page=output.page(),
        lengths=lengths,
    )


def _lengths(
    measure: MeasureOptions, sampling: SamplingOptions, params: SamplingParams
) -> list[tuple[int | None, int]]:
    if measure.output_len is not None and sampling.max_tokens is not None:
        raise UsageError("--max-tokens and --output-len are two names for one thing.")
    unset: list[int | None] = [None]
    return [
        (input_len, output_len)
        for input_len in measure.input_lengths() or unset
        for output_len in measure.output_lengths() or [params.max_tokens]
    ]


def _template(work: WorkOptions, template: TemplateOptions) -> dict[str, Any]:
    system, template_kwargs = template.system_message(), template.template_kwargs()
    if work.raw and (system is not None or template_kwargs):
        raise UsageError("--raw uses no chat template, so it has no system message and no options.")
    return {"is_raw": work.raw, "system": system, "template_kwargs": template_kwargs}


def make_params(
    sampling: SamplingOptions, models: ArmOptions, *, is_checked: bool
) -> SamplingParams:
    """How every request is sampled.

    Raises:
        UsageError: A value cannot be, or would break the comparison.
    """
    given = sampling.given()
    for name in ("stop", "stop_token_ids"):
        if given.get(name):
            raise UsageError(
                f"{name} has no place here: all arms generate the same number of tokens."
            )
    given = {"temperature": 0.0, "max_tokens": MAX_TOKENS, "seed": 0, **given, "ignore_eos": True}
    params = SamplingParams(**given)
    if params.max_tokens < 2:
        raise UsageError("max_tokens must be at least 2: the first token is not part of decoding.")
    if is_checked and models.verify == "rejection" and not params.is_greedy:
        raise UsageError(
            "--check cannot hold --verify rejection to its texts at a temperature above 0: it "
            "keeps the distribution, not the tokens.",
            hint="--verify coupled, or --temperature 0",
        )
    if models.baseline is not None and not params.is_greedy:
        raise UsageError("--baseline transformers is greedy only.", hint="--temperature 0")
    return params
