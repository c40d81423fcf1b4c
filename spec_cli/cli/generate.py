"""`spec-cli generate`: one prompt or many, as one batch."""

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from spec_cli.cli.answers import Answers
from spec_cli.cli.guard import INTERRUPTED, guard
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.keyboard import silent_keyboard
from spec_cli.cli.model_options import ModelOptions
from spec_cli.cli.output_options import ReportOptions, ScreenOptions
from spec_cli.cli.prompts import PromptOptions
from spec_cli.cli.records import RecordFile, Records, open_trace
from spec_cli.cli.report import RunDescription, describe_run, full_report
from spec_cli.cli.request_options import SamplingOptions, TemplateOptions
from spec_cli.cli.session import open_llm, print_header, print_notices
from spec_cli.cli.statistics import print_statistics
from spec_cli.cli.stdout import write_out
from spec_cli.cli.text_output import TextOutput, title
from spec_cli.cli.view_options import ViewOptions
from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams
from spec_cli.ui.footer import FooterFacts
from spec_cli.ui.live import LiveView

_SEED_BITS = 32


@dataclass(frozen=True, slots=True)
class _Job:
    """What is asked for, checked before anything is loaded."""

    texts: list[str]
    system: str | None
    template_kwargs: dict[str, Any]
    is_raw: bool
    sampling: dict[str, Any]


def generate(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROMPT]...", help="Prompts; - is standard input."),
    ] = None,
    *,
    inputs: PromptOptions,
    template: TemplateOptions,
    models: ModelOptions,
    sampling: SamplingOptions,
    reporting: ReportOptions,
    screen: ScreenOptions,
    view: ViewOptions,
) -> None:
    """Answer prompts: text on stdout, everything else on stderr.

    Text that is piped in is put before the prompt. Several prompts are run as one batch; their
    answers come in the order of the prompts, each under a line ==> N: PROMPT <==
    """
    with (
        guard(reporting.format, debug=screen.debug) as kept,
        Interrupts().handled() as interrupts,
    ):
        reporting.check()
        screen.check()
        view.check(screen, is_text=reporting.format == "text")
        config = models.engine_config()
        job = _job(arguments or [], inputs, template, sampling)
        console = screen.console()
        with _record_files(reporting) as files, open_llm(config, screen, console) as llm:
            params = _seeded(llm.default_params(**job.sampling), len(job.texts))
            run = describe_run("generate", config, llm.assembly, params)
            print_notices(llm, config, screen, console)
            print_header(run, screen, console)
            shown = _live_view(job.texts, run, reporting, screen, view)
            outputs = _Outputs(run, reporting, job.texts, files, shown)
            prompts = [_prompt(llm, job, text) for text in job.texts]
            answers = Answers(llm.assembly.engine.parts.policy.state)
            events = llm.events(prompts, params)
            kept.record = answers.record
            with silent_keyboard(), interrupts.calling(llm.interrupt), outputs:
                for event in events:
                    answers.read(event)
                    outputs.read(event, answers)
            outputs.write_report(full_report(run, list(answers), params, answers.state))
            print_statistics(answers, params, run, screen, console)
        if any(answer.finish_reason == "interrupted" for answer in answers):
            raise typer.Exit(INTERRUPTED)


def _job(
    arguments: list[str],
    inputs: PromptOptions,
    template: TemplateOptions,
    sampling: SamplingOptions,
) -> _Job:
    system, template_kwargs = template.system_message(), template.template_kwargs()
    if inputs.raw and (system is not None or template_kwargs):
        raise UsageError("--raw uses no chat template, so it has no system message and no options.")
    given = {"temperature": 0.0, **sampling.given()}
    SamplingParams(**given)
    return _Job(inputs.collect(arguments), system, template_kwargs, inputs.raw, given)


def _prompt(llm: Any, job: _Job, text: str) -> Any:
    """A text as the model reads it."""
    if job.is_raw:
        return text
    system = [] if job.system is None else [{"role": "system", "content": job.system}]
    messages = [*system, {"role": "user", "content": text}]
    return llm.render(messages, job.template_kwargs)


def _seeded(params: SamplingParams, num_prompts: int) -> list[SamplingParams]:
    """The parameters of each prompt: with the seed given, or one drawn for each."""
    if params.seed is not None:
        return [params] * num_prompts
    if params.is_greedy:
        return [replace(params, seed=0)] * num_prompts
    return [replace(params, seed=secrets.randbits(_SEED_BITS)) for _ in range(num_prompts)]


@contextlib.contextmanager
def _record_files(reporting: ReportOptions) -> Iterator[list[RecordFile]]:
    """Where records go; opened first, so that a bad path fails before anything is loaded."""
    files = [RecordFile(write_out)] if reporting.format == "jsonl" else []
    if reporting.trace is None:
        yield files
        return
    with open_trace(reporting.trace) as trace:
        yield [*files, trace]


def _live_view(
    texts: list[str],
    run: RunDescription,
    reporting: ReportOptions,
    screen: ScreenOptions,
    view: ViewOptions,
) -> LiveView | None:
    """What shows the answers, where it is text on a terminal."""
    if reporting.format != "text" or not view.shows_view(screen):
        return None
    titles = tuple(title(text) for text in texts) if len(texts) > 1 else ()
    console = view.console(screen)
    settings = run.settings
    facts = FooterFacts(settings["ctx_size"], settings["max_tokens"], len(texts), screen.plain)
    return LiveView(console, facts, view.looks(console, screen, titles))


class _Outputs:
    """Where the events of a run go."""

    def __init__(
        self,
        run: RunDescription,
        reporting: ReportOptions,
        texts: list[str],
        files: list[RecordFile],
        view: LiveView | None,
    ) -> None:
        self._run = run
        self._format = reporting.format
        self._files = files
        self._records = Records()
        self._view = view
        is_bare = self._format == "text" and view is None
        self._text = TextOutput(texts, write_out) if is_bare else None
        self._num_prompts = len(texts)

    def __enter__(self) -> "_Outputs":
        """Write the first record."""
        self._record({"event": "start", **self._run.record(), "num_prompts": self._num_prompts})
        if self._view is not None:
            self._view.open()
        return self

    def __exit__(self, *error: object) -> None:
        """End a line that was broken off, and take the footer away."""
        if self._text is not None:
            self._text.close()
        if self._view is not None:
            self._view.close()

    def read(self, event: Any, answers: Answers) -> None:
        """Pass on one event."""
        if self._text is not None and (request_id := getattr(event, "request_id", None)):
            self._text.read(event, answers.of(request_id).index)
        if self._view is not None:
            self._view.read(event)
        if self._files:
            for record in self._records.read(event):
                self._record(record)

    def write_report(self, report: dict[str, Any]) -> None:
        """Write the report, where one is asked for."""
        self._record({"event": "end", "report": report})
        if self._format == "json":
            write_out(json.dumps(report, ensure_ascii=False, indent=2) + "\n")

    def _record(self, record: dict[str, Any]) -> None:
        for file in self._files:
            file.write(record)
