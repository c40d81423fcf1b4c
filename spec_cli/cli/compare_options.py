"""Options of `spec-cli compare`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from spec_cli.bench.arms import (
    OPTIONS_OF,
    Arm,
    CompareConfig,
    DraftLength,
    parse_lengths,
    plan_arms,
)
from spec_cli.bench.workload import (
    SUITES,
    WorkPrompt,
    load_file,
    load_suites,
    plain_prompts,
)
from spec_cli.cli.guard import OutputFormat
from spec_cli.cli.model_options import ModelOptions
from spec_cli.cli.options import option, parse_size
from spec_cli.core.config import Spec
from spec_cli.core.errors import UsageError

_SPECULATION = "Speculation"
_WORK = "Workload"
_OUTPUT = "Output"

Format = Literal["auto", "md", "csv", "json", "jsonl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOptions(ModelOptions):
    """Which models, and which ways to speculate."""

    spec: Annotated[
        str,
        option(
            "--spec",
            metavar="LIST",
            panel=_SPECULATION,
            help="Who guesses, one arm each, such as draft,suffix; auto: draft and hybrid if there"
            " is a draft model, else suffix.",
        ),
    ] = "auto"  # type: ignore[assignment]
    num_draft_tokens: Annotated[
        str,
        option(
            "-k",
            "--num-draft-tokens",
            "--num-speculative-tokens",
            "--spec-tokens",
            "--draft-max",
            metavar="LIST",
            panel=_SPECULATION,
            help="Draft lengths, one arm each, such as 2,4,8,auto.",
        ),
    ] = "4,auto"
    baseline: Annotated[
        Literal["transformers"] | None,
        option(
            "--baseline",
            panel=_SPECULATION,
            help="Also generate() of transformers: plain, with its prompt lookup and with the draft"
            " model, at the first k; greedy only.",
        ),
    ] = None

    def arms(self) -> list[Arm]:
        """Whom to compare.

        Raises:
            UsageError: A name or length does not exist.
        """
        lengths = parse_lengths(self.num_draft_tokens)
        if self.k_schedule is not None:
            lengths.append("schedule")
        arms = plan_arms(self._specs(), lengths)
        if self.baseline is not None:
            arms.append(Arm("transformers", "transformers", None))
            fixed: list[DraftLength] = [each for each in lengths if isinstance(each, int)]
            for length in fixed[:1]:
                arms.append(Arm(f"transformers lookup k={length}", "transformers", length))
                if self.draft_model is not None:
                    name = f"transformers assisted k={length}"
                    arms.append(Arm(name, "transformers-assisted", length))
        return arms

    def config(self, arms: list[Arm]) -> CompareConfig:
        """The options of all arms.

        Raises:
            UsageError: A value is out of range, or an option would have no effect on any arm.
        """
        names = {each.name for each in fields(ModelOptions)} - {"spec", "num_draft_tokens"}
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        size = options.pop("memory")
        options["memory_bytes"] = None if size is None else parse_size(size)
        for kind, members in OPTIONS_OF.items():
            if not any(arm.uses(kind) for arm in arms if not arm.is_reference):
                for name in members:
                    if options[name]:
                        raise UsageError(f"{name} has no effect: no arm uses it; see --spec.")
        config = CompareConfig(options)
        for arm in arms:
            if not arm.is_reference:
                config.of(arm)
        return config

    def _specs(self) -> list[str]:
        known = [name for name in get_args(Spec) if name not in ("auto", "off")]
        found: list[str] = []
        for part in self.spec.split(","):
            word = part.strip()
            if word == "auto":
                found += ["draft", "hybrid"] if self.draft_model is not None else ["suffix"]
            elif word in known:
                found.append(word)
            else:
                raise UsageError(f"spec must be a list of {', '.join(known)}; got {word!r}.")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """What is asked of the arms."""

    prompts: Annotated[
        Path | None,
        option(
            "--prompts",
            metavar="FILE",
            panel=_WORK,
            help="Prompts: JSON lines, ShareGPT or Spec-Bench files as they are, or text lines.",
        ),
    ] = None
    suite: Annotated[
        str | None,
        option(
            "--suite",
            metavar="LIST",
            panel=_WORK,
            help=f"Built-in prompts: {', '.join(SUITES)}; all of them without a prompt.",
        ),
    ] = None
    num_prompts: Annotated[
        int | None,
        option(
            "--num-prompts",
            metavar="N",
            panel=_WORK,
            help="Prompts of the tables: all that are typed, else the first 6.",
        ),
    ] = None
    raw: Annotated[
        bool, option("--raw", panel=_WORK, help="Continue the text: no chat template.")
    ] = False

    def collect(self, arguments: list[str]) -> list[WorkPrompt]:
        """The workload, typed prompts first.

        Raises:
            UsageError: A file or suite cannot be read; the message names the line.
        """
        found = plain_prompts(arguments)
        for text in arguments:
            if not text.strip():
                raise UsageError("a prompt is empty.")
        if self.prompts is not None:
            found += load_file(self.prompts)
        if self.suite is not None:
            found += load_suites([name.strip() for name in self.suite.split(",")])
        return found or load_suites(list(SUITES))

    def num_of(self, workload: list[WorkPrompt], num_typed: int) -> int:
        """How many of the workload the tables use.

        Raises:
            UsageError: The number is below 1 or more than there are.
        """
        if self.num_prompts is None:
            return max(num_typed, min(6, len(workload)))
        if not 1 <= self.num_prompts <= len(workload):
            raise UsageError(
                f"num_prompts must be between 1 and the {len(workload)} there are; "
                f"got {self.num_prompts}."
            )
        return self.num_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOutput:
    """What goes to stdout and to files."""

    output_format: Annotated[
        Format,
        option(
            "-o",
            "--output-format",
            panel=_OUTPUT,
            help="auto: tables on a terminal, else md; jsonl: one event a line as it happens.",
        ),
    ] = "auto"
    output_err: Annotated[
        Literal["md", "csv", "json", "jsonl"] | None,
        option(
            "--output-err",
            panel=_OUTPUT,
            help="Also the report in this format, on stderr; with -q nothing else is there.",
        ),
    ] = None
    html: Annotated[
        Path | None,
        option(
            "--html", metavar="FILE", panel=_OUTPUT, help="Also write a page with curves to a file."
        ),
    ] = None
    json: Annotated[
        bool, option("--json", panel=_OUTPUT, help="The same as --output-format json.")
    ] = False

    @property
    def error_format(self) -> OutputFormat:
        """How an error is told on stdout; `text` tells it on stderr alone."""
        if self.json:
            return "json"
        return self.output_format if self.output_format in ("json", "jsonl") else "text"

    def format(self) -> Format:
        """The output format.

        Raises:
            UsageError: Two were asked for.
        """
        if self.json and self.output_format not in ("auto", "json"):
            raise UsageError(f"two output formats at once: json and {self.output_format}.")
        return "json" if self.json else self.output_format

    def page(self) -> Path | None:
        """Where the page goes; tried before anything runs.

        Raises:
            UsageError: Nothing can be written there.
        """
        if self.html is not None:
            try:
                self.html.open("a", encoding="utf-8").close()
            except OSError as error:
                raise UsageError(f"cannot write {self.html}: {error.strerror}.") from error
        return self.html
