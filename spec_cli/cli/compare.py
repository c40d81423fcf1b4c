"""`spec-cli compare`: the target alone against speculation, on the same work."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cli.bench.arms import Arm, CompareConfig
from spec_cli.bench.comparison import Comparison, Plan, Results
from spec_cli.bench.harness import Session, StoppedError
from spec_cli.bench.slo import parse_slo
from spec_cli.bench.tables import best_speedup
from spec_cli.bench.workload import WorkPrompt
from spec_cli.cli.compare_options import ArmOptions, CompareOutput, WorkOptions
from spec_cli.cli.compare_report import report_head, with_memory
from spec_cli.cli.compare_screen import CompareScreen, print_report, write_page
from spec_cli.cli.guard import INTERRUPTED, Kept, guard
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.measure_options import MeasureOptions
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.request_options import SamplingOptions, TemplateOptions
from spec_cli.cli.session import open_llm, print_notices
from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams

if TYPE_CHECKING:
    from spec_cli import LLM

_FAILED_CHECK = 7
_MAX_TOKENS = 64
_NUM_REQUESTS = 32
_MAX_SECONDS = 480.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What is asked for, checked before anything is loaded."""

    plan: Plan
    config: CompareConfig
    workload: list[WorkPrompt]
    params: SamplingParams
    template: dict[str, Any]
    output_format: str
    is_checked: bool
    fail_under: float | None
    page: Path | None


def compare(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Prompts to compare on.")
    ] = None,
    *,
    work: WorkOptions,
    template: TemplateOptions,
    models: ArmOptions,
    sampling: SamplingOptions,
    measure: MeasureOptions,
    output: CompareOutput,
    screen: ScreenOptions,
) -> None:
    """Measure what speculation brings: the target alone against each way and draft length.

    All arms do the same work in turn: equal prompts, seeds and numbers of tokens, end tokens
    ignored. Tables go to stdout, progress to stderr. Ctrl-C keeps what is done.
    """
    wanted = "json" if output.json or output.output_format == "json" else "text"
    with (
        guard("json" if wanted == "json" else "text", debug=screen.debug) as kept,
        Interrupts().handled() as interrupts,
    ):
        screen.check()
        job = _job(arguments or [], work, template, models, sampling, measure, output)
        console = screen.console()
        to_load = job.config.to_load(job.plan.arms)
        with open_llm(to_load, screen, console) as llm:
            print_notices(llm, to_load, screen, console)
            view = CompareScreen(job.plan, console, screen, job.output_format)
            is_stopped = _Flag()
            with interrupts.calling(is_stopped.set), view:
                report = _measure(llm, job, view, is_stopped, kept)
        if job.page is not None:
            write_page(report, job.page)
        print_report(report, job.output_format, screen)
        _exit(report, job)


class _Flag:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """It was."""
        self._is_set = True

    def __call__(self) -> bool:
        """Whether it was."""
        return self._is_set


def _job(
    arguments: list[str],
    work: WorkOptions,
    template: TemplateOptions,
    models: ArmOptions,
    sampling: SamplingOptions,
    measure: MeasureOptions,
    output: CompareOutput,
) -> _Job:
    measure.check_values()
    arms = models.arms()
    config = models.config(arms)
    params = _params(sampling, models, is_checked=measure.check)
    workload = work.collect(arguments)
    system, template_kwargs = template.system_message(), template.template_kwargs()
    if work.raw and (system is not None or template_kwargs):
        raise UsageError("--raw uses no chat template, so it has no system message and no options.")
    rates = measure.rates()
    num_requests = measure.num_requests or _NUM_REQUESTS
    num_prompts = work.num_of(workload, len(arguments))
    plan = Plan(
        arms=arms,
        batches=measure.batches(),
        rates=rates,
        repeats=measure.repeats,
        warmup=measure.warmup,
        num_prompts=num_prompts,
        num_requests=num_requests,
        max_seconds=measure.max_seconds or _MAX_SECONDS,
        seed=params.seed or 0,
        slo=parse_slo(measure.slo),
    )
    return _Job(
        plan=plan,
        config=config,
        workload=workload[: max(num_prompts, num_requests if rates else 0)],
        params=params,
        template={"is_raw": work.raw, "system": system, "template_kwargs": template_kwargs},
        output_format=output.format(),
        is_checked=measure.check,
        fail_under=measure.fail_under,
        page=output.page(),
    )


def _params(sampling: SamplingOptions, models: ArmOptions, *, is_checked: bool) -> SamplingParams:
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
    given = {"temperature": 0.0, "max_tokens": _MAX_TOKENS, "seed": 0, **given, "ignore_eos": True}
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


def _measure(
    llm: "LLM", job: _Job, view: CompareScreen, is_stopped: Callable[[], bool], kept: Kept
) -> dict[str, Any]:
    from spec_cli.bench.launch import compare_texts, encode_prompts, open_session, time_forwards
    from spec_cli.bench.report import build_report

    plan = job.plan
    _check_rows(llm, plan)
    prompts = encode_prompts(llm, job.workload, job.params.max_tokens, **job.template)
    session = open_session(llm, job.config, plan.arms, prompts, job.params, is_stopped)
    head = report_head(llm, plan, job.params, job.workload, prompts)
    view.start(head)
    results = Results()
    found: dict[Any, Any] = {}
    forwards: list[Any] = []

    def report() -> dict[str, Any]:
        made = build_report(
            plan,
            results,
            head=head,
            failures=session.failures,
            forwards=forwards,
            found=found,
            is_checked=job.is_checked,
        )
        return with_memory(made, llm, plan.arms)

    kept.record = report
    _run(llm, job, session, results, view)
    if not results.is_interrupted:
        view.announce("timing the target's forward")
        forwards += time_forwards(llm, session, plan)
        view.announce("comparing the texts")
        try:
            found |= compare_texts(llm, session, plan, results, is_checked=job.is_checked)
        except StoppedError:
            results.is_interrupted = True
    return report()


def _run(llm: "LLM", job: _Job, session: Session, results: Results, view: CompareScreen) -> None:
    """Run the plan; each finished cell is told at once."""
    from spec_cli.bench.report import batch_cell, rate_cell

    def tell(kind: str, load: float, arm: Arm) -> None:
        if kind == "batch":
            cell = batch_cell(results, arm, int(load))
        else:
            cell = rate_cell(job.plan, results, arm, load)
        view.show_cell(kind, load, cell)

    Comparison(
        session=session,
        plan=job.plan,
        report=view.progress,
        tell=tell,
        used_bytes=lambda: llm.assembly.budget.used_bytes,
        results=results,
    ).run()


def _check_rows(llm: "LLM", plan: Plan) -> None:
    limit = llm.config.max_rows or 16
    if plan.batches[-1] > limit:
        raise UsageError(
            f"batch {plan.batches[-1]} is more than the {limit} rows that run at once.",
            hint=f"--max-rows {plan.batches[-1]}",
        )


def _exit(report: dict[str, Any], job: _Job) -> None:
    """End with the code that says what was found."""
    if report["interrupted"]:
        raise typer.Exit(INTERRUPTED)
    if job.is_checked and report["check"]["num_mismatches"]:
        typer.echo("Error: --check found a difference that is no near-tie.", err=True)
        raise typer.Exit(_FAILED_CHECK)
    if job.fail_under is not None:
        slow = {arm: x for arm, x in best_speedup(report).items() if x < job.fail_under}
        if slow:
            listed = ", ".join(f"{arm} {speedup:.2f}x" for arm, speedup in slow.items())
            typer.echo(f"Error: below --fail-under {job.fail_under:g}: {listed}.", err=True)
            raise typer.Exit(_FAILED_CHECK)
    if report["failures"]:
        names = ", ".join(report["failures"])
        typer.echo(f"Error: {names} failed; see the report.", err=True)
        raise typer.Exit(1)
