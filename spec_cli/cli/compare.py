"""`spec-cli compare`: the target alone against speculation, on the same work."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cli.bench.arms import Arm, RequestFactory
from spec_cli.bench.comparison import Comparison, Plan, Results
from spec_cli.bench.harness import Session, StoppedError
from spec_cli.bench.tables import best_speedup
from spec_cli.cli.compare_job import Job, make_job
from spec_cli.cli.compare_options import ArmOptions, CompareOutput, WorkOptions
from spec_cli.cli.compare_report import Measured, report_head
from spec_cli.cli.compare_screen import CompareScreen, print_report, rendered, write_page
from spec_cli.cli.compare_servers import EndpointOptions, StopFlag, compare_servers
from spec_cli.cli.guard import INTERRUPTED, Kept, guard
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.measure_options import MeasureOptions
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.request_options import SamplingOptions, TemplateOptions
from spec_cli.cli.session import open_llm, print_notices
from spec_cli.core.errors import UsageError

if TYPE_CHECKING:
    from spec_cli import LLM

_FAILED_CHECK = 7


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
    servers: EndpointOptions,
    output: CompareOutput,
    screen: ScreenOptions,
) -> None:
    """Measure what speculation brings: the target alone against each way and draft length.

    All arms do the same work in turn: equal prompts, seeds and numbers of tokens, end tokens
    ignored. Tables go to stdout, progress to stderr. Ctrl-C keeps what is done.
    """
    with (
        guard(output.error_format, debug=screen.debug) as kept,
        Interrupts().handled() as interrupts,
    ):
        screen.check()
        if servers.endpoint:
            servers.check(models, template, measure)
            compare_servers(
                arguments or [],
                work,
                models,
                sampling,
                measure,
                servers,
                output,
                screen,
                interrupts,
            )
            return
        job = make_job(arguments or [], work, template, models, sampling, measure, output)
        _compare_arms(job, interrupts, screen, kept)


def _compare_arms(job: Job, interrupts: Interrupts, screen: ScreenOptions, kept: Kept) -> None:
    console = screen.console()
    to_load = job.config.to_load(job.plan.arms)
    with open_llm(to_load, screen, console) as llm:
        print_notices(llm, to_load, screen, console)
        view = CompareScreen(job.plan, console, screen, job.output_format)
        is_stopped = StopFlag()
        with interrupts.calling(is_stopped.set), view:
            report = _measure(llm, job, view, is_stopped, kept)
    if job.page is not None:
        write_page(report, job.page)
    print_report(report, job.output_format, screen)
    if job.output_err is not None:
        typer.echo(rendered(report, job.output_err), err=True, nl=False)
    _exit(report, job)


def _measure(
    llm: "LLM", job: Job, view: CompareScreen, is_stopped: Callable[[], bool], kept: Kept
) -> dict[str, Any]:
    from spec_cli.bench.launch import compare_texts, measure_steps, open_session, time_forwards

    plan = job.plan
    _check_rows(llm, plan)
    workloads = _workloads(llm, job)
    session = open_session(
        llm, job.config, plan.arms, workloads[0], job.params, max(plan.batches), is_stopped
    )
    made = Measured(plan, report_head(llm, plan, job.params, job.workload, workloads[0]))

    def report() -> dict[str, Any]:
        return made.report(llm, session.failures, job.lengths, is_checked=job.is_checked)

    view.start(made.head)
    kept.record = report
    _run(llm, plan, session, made.results, view)
    if not made.results.is_interrupted:
        view.announce("timing the target's forward")
        made.forwards += time_forwards(llm, session, plan)
        view.announce("comparing the texts")
        try:
            made.found |= compare_texts(llm, session, plan, made.results, is_checked=job.is_checked)
        except StoppedError:
            made.results.is_interrupted = True
    for prompts, (_, output_len) in zip(workloads[1:], job.lengths[1:], strict=True):
        if not made.results.is_interrupted:
            params = replace(job.params, max_tokens=output_len)
            session.factory = RequestFactory.of(prompts, params)
            part = Results()
            made.parts.append(part)
            _run(llm, plan.for_lengths(), session, part, view)
            made.results.is_interrupted = part.is_interrupted
    if not made.results.is_interrupted:
        view.announce("measuring working memory")
        made.working |= measure_steps(llm, session, [made.results, *made.parts])
    return report()


def _workloads(llm: "LLM", job: Job) -> list[list[tuple[int, ...]]]:
    """Token ids of the prompts for each length, checked to fit before anything runs."""
    from spec_cli.bench.launch import cut_prompts, encode_prompts

    longest = max(output_len for _, output_len in job.lengths)
    is_cut = job.lengths[0][0] is not None
    prompts = encode_prompts(llm, job.workload, 0 if is_cut else longest, **job.template)
    limit = llm.assembly.context_length
    return [cut_prompts(prompts, *lengths, limit) for lengths in job.lengths]


def _run(llm: "LLM", plan: Plan, session: Session, results: Results, view: CompareScreen) -> None:
    """Run a plan; each finished cell is told at once."""
    from spec_cli.bench.report import batch_cell, rate_cell

    def tell(kind: str, load: float, arm: Arm) -> None:
        if kind == "batch":
            cell = batch_cell(results, arm, int(load))
        else:
            cell = rate_cell(plan, results, arm, load)
        view.show_cell(kind, load, cell)

    Comparison(
        session=session,
        plan=plan,
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


def _exit(report: dict[str, Any], job: Job) -> None:
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
