"""Options of what is asked of a model: its prompt and how the answer is sampled."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from spec_cli.cli.options import option
from spec_cli.cli.prompts import read_text
from spec_cli.core.errors import UsageError

_PROMPT = "Prompt"
_SAMPLING = "Sampling"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """How a prompt is put to a chat model."""

    system: Annotated[
        str | None,
        option("-s", "--system", metavar="TEXT", panel=_PROMPT, help="System message."),
    ] = None
    system_file: Annotated[
        Path | None,
        option("--system-file", metavar="FILE", panel=_PROMPT, help="File of a system message."),
    ] = None
    chat_template_kwargs: Annotated[
        str | None,
        option(
            "--chat-template-kwargs",
            metavar="JSON",
            panel=_PROMPT,
            help="Variables of the chat template, as a JSON object.",
        ),
    ] = None
    think: Annotated[
        bool | None,
        option(
            "--think/--no-think",
            panel=_PROMPT,
            help="Let a model think first, where its chat template has a switch for it.",
        ),
    ] = None

    def system_message(self) -> str | None:
        """The system message, wherever it comes from.

        Raises:
            UsageError: It was given twice, or its file cannot be read.
        """
        if self.system_file is None:
            return self.system
        if self.system is not None:
            raise UsageError("--system and --system-file are two ways to say one thing.")
        return read_text(self.system_file)

    def template_kwargs(self) -> dict[str, Any]:
        """Variables of the chat template.

        Raises:
            UsageError: They are no JSON object, or contradict --think.
        """
        found: Any = {}
        if self.chat_template_kwargs is not None:
            try:
                found = json.loads(self.chat_template_kwargs)
            except ValueError as error:
                raise UsageError(f"--chat-template-kwargs is not valid JSON: {error}.") from error
            if not isinstance(found, dict):
                raise UsageError('--chat-template-kwargs must be a JSON object, such as {"a": 1}.')
        if self.think is None:
            return dict(found)
        if found.setdefault("enable_thinking", self.think) != self.think:
            raise UsageError("--think and --chat-template-kwargs contradict each other.")
        return dict(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How the tokens of an answer are chosen and when it ends."""

    max_tokens: Annotated[
        int | None,
        option(
            "-n",
            "--max-tokens",
            "--max-new-tokens",
            metavar="N",
            panel=_SAMPLING,
            help="Most tokens to generate.",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        option(
            "--temperature",
            "--temp",
            metavar="T",
            panel=_SAMPLING,
            help="0 always takes the likeliest token; higher is more varied.",
        ),
    ] = None
    top_p: Annotated[
        float | None,
        option("--top-p", metavar="P", panel=_SAMPLING, help="Sample from the likeliest P."),
    ] = None
    top_k: Annotated[
        int | None,
        option(
            "--top-k", metavar="N", panel=_SAMPLING, help="Sample from the N likeliest; 0: all."
        ),
    ] = None
    min_p: Annotated[
        float | None,
        option(
            "--min-p",
            metavar="P",
            panel=_SAMPLING,
            help="Sample from tokens at least P times as likely as the likeliest.",
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        option(
            "--repetition-penalty",
            metavar="X",
            panel=_SAMPLING,
            help="Above 1: tokens of prompt and answer become less likely.",
        ),
    ] = None
    presence_penalty: Annotated[
        float | None,
        option(
            "--presence-penalty",
            metavar="X",
            panel=_SAMPLING,
            help="Above 0: tokens of the answer become less likely.",
        ),
    ] = None
    frequency_penalty: Annotated[
        float | None,
        option(
            "--frequency-penalty",
            metavar="X",
            panel=_SAMPLING,
            help="The same, for each time a token was used.",
        ),
    ] = None
    seed: Annotated[
        int | None,
        option("--seed", metavar="N", panel=_SAMPLING, help="Same seed, same text."),
    ] = None
    stop: Annotated[
        list[str] | None,
        option(
            "--stop",
            metavar="TEXT",
            panel=_SAMPLING,
            help="End the answer before this; repeatable.",
        ),
    ] = None
    stop_token_id: Annotated[
        list[int] | None,
        option(
            "--stop-token-id",
            metavar="ID",
            panel=_SAMPLING,
            help="End the answer at this token; repeatable.",
        ),
    ] = None
    ignore_eos: Annotated[
        bool, option("--ignore-eos", panel=_SAMPLING, help="Go on past the model's end tokens.")
    ] = False

    def given(self) -> dict[str, Any]:
        """Fields of `SamplingParams` that were given."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["stop_token_ids"] = values.pop("stop_token_id")
        # By identity: 0 is a seed, and equal to False.
        return {
            name: value
            for name, value in values.items()
            if value is not None and value is not False and value != []
        }
