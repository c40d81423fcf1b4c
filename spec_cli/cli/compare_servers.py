"""`spec-cli compare --endpoint`: the load sweep against servers that run already."""

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spec_cli import __version__
from spec_cli.bench.comparison import Plan
from spec_cli.bench.report import build_report, rate_cell
from spec_cli.bench.slo import parse_slo
from spec_cli.bench.workload import WorkPrompt
from spec_cli.cli.compare_job import MAX_SECONDS, NUM_REQUESTS, make_params
from spec_cli.cli.compare_options import ArmOptions, CompareOutput, WorkOptions
from spec_cli.cli.compare_screen import CompareScreen, print_report, rendered, write_page
from spec_cli.cli.guard import INTERRUPTED
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.measure_options import MeasureOptions
from spec_cli.cli.options import option
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.report import SCHEMA
from spec_cli.cli.request_options import SamplingOptions, TemplateOptions
from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams

if TYPE_CHECKING:
    from spec_cli.bench.remote import RemoteSweep

_SERVERS = "Servers"
_RATES = [1.0, 2.0, 4.0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """Servers to compare instead of arms."""

    endpoint: Annotated[
        list[str] | None,
        option(
            "--endpoint",
            metavar="URL",
            panel=_SERVERS,
            help="Send the load to a server with OpenAI's API instead; repeat it, the target-only"
            " server first, to compare several. --rate is 1,2,4 if left out.",
        ),
    ] = None
    api_key: Annotated[
        str | None, option("--api-key", metavar="KEY", panel=_SERVERS, help="Of the servers.")
    ] = None
    stall: Annotated[
        float | None,
        option(
            "--stall",
            metavar="S",
            panel=_SERVERS,
            help="Seconds of silence after which a request has failed; 30.",
        ),
    ] = None

    def check(self, models: ArmOptions, template: TemplateOptions, measure: MeasureOptions) -> None:
        """Refuse options that mean something only where a model is loaded.

        Raises:
            UsageError: The message names one.
        """
        for group in (models, template, measure):
            for name, field in type(group).__dataclass_fields__.items():
                has_effect = name in ("model", "rate", "num_requests", "max_seconds", "slo")
                if not has_effect and getattr(group, name) != field.default:
                    raise UsageError(f"{name} has no effect with --endpoint.")
        if self.stall is not None and not self.stall > 0.0:
            raise UsageError(f"stall must be above 0, got {self.stall:g}.")
        for url in self.endpoint or []:
            if not url.startswith(("http://", "https://")):
                raise UsageError(f"endpoint must be an http or https address, got {url!r}.")


class StopFlag:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """It was."""
        self._is_set = True

    def __call__(self) -> bool:
        """Whether it was."""
        return self._is_set


def compare_servers(
    arguments: list[str],
    work: WorkOptions,
    models: ArmOptions,
    sampling: SamplingOptions,
    measure: MeasureOptions,
    servers: EndpointOptions,
    output: CompareOutput,
    screen: ScreenOptions,
    interrupts: Interrupts,
) -> None:
    """Run the sweep and print its report."""
    # The HTTP client takes long to load, and every command imports this module.
    from spec_cli.bench.endpoint import Endpoint
    from spec_cli.bench.remote import RemoteSweep
    from spec_cli.bench.sender import LoadSender

    urls = servers.endpoint or []
    params = make_params(sampling, models, is_checked=False)
    workload = work.collect(arguments)
    plan = _plan(urls, measure, params)
    page, output_format = output.page(), output.format()
    names = [models.model or _first_model(url, servers.api_key, screen) for url in urls]
    is_stopped, stall_s = StopFlag(), servers.stall or 30.0
    senders = {
        arm.name: LoadSender(
            endpoint=Endpoint(
                url=url, model=name, api_key=servers.api_key, is_raw=work.raw, stall_s=stall_s
            ),
            prompts=workload,
            params=params,
            clock=time.perf_counter,
            is_stopped=is_stopped,
        )
        for arm, url, name in zip(plan.arms, urls, names, strict=True)
    }
    view = CompareScreen(plan, screen.console(), screen, output_format)
    sweep = RemoteSweep(senders, plan, view.progress, lambda *_: None)
    sweep.tell = lambda kind, load, arm: view.show_cell(
        kind, load, rate_cell(plan, sweep.results, arm, load)
    )
    head = _head(sweep, params, workload)
    view.start(head)
    with interrupts.calling(is_stopped.set), view:
        sweep.run()
    report = _report(sweep, head, params)
    if page is not None:
        write_page(report, page)
    _print(report, output, output_format, screen)
    _exit(report)


def _first_model(url: str, api_key: str | None, screen: ScreenOptions) -> str:
    """What to ask a server for; of several models it is said which."""
    from spec_cli.bench.server_facts import offered_models

    name, *others = offered_models(url, api_key)
    if others and not screen.quiet:
        typer.echo(
            f"{url} offers {1 + len(others)} models; {name} is asked. Another: -m NAME.", err=True
        )
    return name


def without_key(words: list[str]) -> list[str]:
    """A command line that can be shown: the key is not written anywhere."""
    kept = []
    is_key = False
    for word in words:
        if not is_key and not word.startswith("--api-key"):
            kept.append(word)
        is_key = word == "--api-key" and not is_key
    return kept


def _print(
    report: dict[str, Any], output: CompareOutput, output_format: str, screen: ScreenOptions
) -> None:
    print_report(report, output_format, screen)
    if output.output_err is not None:
        typer.echo(rendered(report, output.output_err), err=True, nl=False)


def _plan(urls: list[str], measure: MeasureOptions, params: SamplingParams) -> Plan:
    from spec_cli.bench.remote import endpoint_arms

    measure.check_values(has_sweep=True)
    return Plan(
        arms=endpoint_arms(urls),
        batches=[],
        rates=measure.rates() or _RATES,
        repeats=1,
        warmup=0,
        num_prompts=0,
        num_available=0,
        num_requests=measure.num_requests or NUM_REQUESTS,
        max_seconds=measure.max_seconds or MAX_SECONDS,
        seed=params.seed or 0,
        slo=parse_slo(measure.slo),
    )


def _head(
    sweep: "RemoteSweep", params: SamplingParams, workload: list[WorkPrompt]
) -> dict[str, Any]:
    """What is known before anything is sent."""
    from spec_cli.bench.remote import server_record

    plan = sweep.plan
    urls = [sender.endpoint.url for sender in sweep.senders.values()]
    return {
        "schema": SCHEMA,
        "id": f"cmp-{time.time_ns():x}",
        "created": int(time.time()),
        "command": "compare",
        "command_line": ["spec-cli", *without_key(sys.argv[1:])],
        **server_record(sweep),
        "settings": {
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "seed": params.seed,
            "num_requests": plan.num_requests,
            "max_seconds": plan.max_seconds,
            "slo": plan.slo.limits_ms,
        },
        "env": {"endpoints": " ".join(urls), "spec_cli": __version__},
        "workload": {"names": [prompt.name for prompt in workload]},
    }


def _report(sweep: "RemoteSweep", head: dict[str, Any], params: SamplingParams) -> dict[str, Any]:
    from spec_cli.bench.remote import server_record, server_words

    report = build_report(
        sweep.plan,
        sweep.results,
        head=head | server_record(sweep),
        failures={},
        forwards=[],
        found={},
        is_checked=False,
    )
    report["why"]["words"] += server_words(sweep, params.max_tokens)
    return report


def _exit(report: dict[str, Any]) -> None:
    """Exit with 130 after Ctrl-C, and with 1 if no request at all was answered."""
    if report["interrupted"]:
        raise typer.Exit(INTERRUPTED)
    cells = [cell for record in report["sweep"] for cell in record["arms"]]
    if not any(cell["num_completed"] for cell in cells):
        typer.echo("Error: no request was answered; see the report for the reasons.", err=True)
        raise typer.Exit(1)
