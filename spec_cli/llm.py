"""Text in, text out: the public Python API.

Familiar to vLLM's users on purpose. The command line uses only what is here.
"""

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Literal

from spec_cli.chat import ChatSession
from spec_cli.core.config import EngineConfig
from spec_cli.core.errors import SpecCliError, UsageError
from spec_cli.core.events import Event, RequestFinished, TextDelta
from spec_cli.core.outputs import RequestOutput
from spec_cli.core.params import SamplingParams
from spec_cli.core.progress import ReportStage, Stage
from spec_cli.engine.answers import Answers
from spec_cli.engine.assembly import Assembly, assemble, reassemble
from spec_cli.engine.intake import Intake, Prompt, numbered

Message = dict[str, str]


class LLM:
    """A target model, a way to guess, and the engine that runs them.

    Use it as a context manager, or call `close`, to free the memory.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        draft_model: str | None = None,
        num_draft_tokens: int | Literal["auto"] = "auto",
        report: ReportStage | None = None,
        **options: Any,
    ) -> None:
        """Load the models.

        Args:
            model: Hub name, folder or .gguf file of the target; None is the default model.
            draft_model: The same of a draft model with the target's tokenizer.
            num_draft_tokens: Draft length, 1 to 32, or `auto`.
            report: Told of downloads and loading.
            **options: Other fields of `EngineConfig`, such as `spec`, `dtype` or `ctx_size`; and
                vLLM's names `speculative_model` and `num_speculative_tokens`.

        Raises:
            TypeError: An option does not exist.
            SpecCliError: The models cannot be run as asked; the message says what to do.
        """
        config = EngineConfig.from_options(
            model=model, draft_model=draft_model, num_draft_tokens=num_draft_tokens, **options
        )
        self._assembly: Assembly | None = assemble(config, report or _ignore_stage)
        self._ways = {config: self._assembly}
        self._answers = Answers(self._assembly.texts)
        self._intake = Intake()
        self._is_interrupted = False

    def __enter__(self) -> "LLM":
        """Return itself: the constructor loaded everything."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the memory."""
        self.close()

    @property
    def assembly(self) -> Assembly:
        """The loaded models and what is known of them."""
        if self._assembly is not None:
            return self._assembly
        raise UsageError("this LLM is closed.")

    def close(self) -> None:
        """Free the models and their caches; a second call does nothing."""
        self._assembly = None
        self._ways = {}

    @property
    def config(self) -> EngineConfig:
        """What it was built from, `speculate` included."""
        return self.assembly.config

    def speculate(self, *, report: ReportStage | None = None, **changes: Any) -> None:
        """Speculate in another way; the target is not loaded again and its cache is kept.

        The way back is free: draft models stay loaded until `forget_other_ways`, and what was
        learnt about how much to draft is kept. All ways look up in the same earlier answers.

        Args:
            report: Told of the loading of another draft model.
            **changes: Fields of `EngineConfig` about speculation, such as `spec`.

        Raises:
            TypeError: A field is not about speculation.
            SpecCliError: It cannot be done; what was set before goes on.
        """
        if self._answers:
            raise UsageError("speculation cannot be changed while an answer is being written.")
        config = self.config.with_speculation(**changes)
        self._adopt(self._ways.get(config) or self._new_way(config, report or _ignore_stage))

    @contextlib.contextmanager
    def speculating(self, **changes: Any) -> Iterator[None]:
        """Speculate in another way inside a `with`; after it, go on as before.

        Args:
            **changes: As for `speculate`.

        Raises:
            SpecCliError: As for `speculate`.
        """
        before = self.assembly
        self.speculate(**changes)
        try:
            yield
        finally:
            self._adopt(before)

    def forget_other_ways(self) -> None:
        """Free draft models that were in use before and are not now."""
        self._ways = {self.config: self.assembly}

    def chat_session(self, *, system: str | None = None, **options: Any) -> ChatSession:
        """Begin a conversation whose turns reuse the caches.

        Args:
            system: System message.
            **options: Of `ChatSession`.
        """
        return ChatSession(self, system=system, **options)

    def default_params(self, **changes: Any) -> SamplingParams:
        """The model's recommended sampling parameters, with changes of yours.

        `do_sample: false` in generation_config.json means temperature 0.
        """
        recommended = dict(self.assembly.target.generation_defaults)
        if recommended.pop("do_sample", None) is False:
            recommended["temperature"] = 0.0
        return SamplingParams(**{**recommended, **changes})

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Continue raw prompts, all in one batch.

        Args:
            prompts: One or several; no chat template is applied.
            sampling_params: For all, or one for each; None is `default_params()`.

        Returns:
            One output per prompt, in their order.
        """
        return self._collect(self.events(prompts, sampling_params))

    def chat(
        self,
        messages: Iterable[Message] | Iterable[Iterable[Message]],
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
        *,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or several in one batch.

        Args:
            messages: `{"role": ..., "content": ...}` in order.
            sampling_params: As in `generate`.
            chat_template_kwargs: Extra variables of the model's chat template.
        """
        listed: list[Any] = list(messages)
        conversations = [listed] if listed and isinstance(listed[0], Mapping) else listed
        prompts = [self.render(each, chat_template_kwargs) for each in conversations]
        return self._collect(self.events(prompts, sampling_params))

    def render(
        self, messages: Iterable[Message], chat_template_kwargs: dict[str, Any] | None = None
    ) -> Prompt:
        """Turn a conversation into a prompt for `generate`, `stream` and `events`.

        Raises:
            UsageError: The model has no chat template, or its template refuses the messages.
        """
        tokenizer = self.assembly.tokenizer
        listed = list(messages)
        text = tokenizer.render_chat(listed, template_kwargs=chat_template_kwargs)
        token_ids = tokenizer.encode_chat(listed, template_kwargs=chat_template_kwargs)
        return {"prompt": text, "prompt_token_ids": token_ids}

    def stream(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
    ) -> Generator[TextDelta, None, None]:
        """Like `generate`, text as it comes, each piece with its origin."""
        for event in self.events(prompts, sampling_params):
            if isinstance(event, TextDelta):
                yield event

    def events(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
    ) -> Generator[Event | TextDelta, None, None]:
        """Everything the engine tells, with the text of the answers.

        Prompts are checked at once. Leaving the iterator early ends the requests.

        Raises:
            SpecCliError: A prompt cannot be run; with several, the message names it.
        """
        if self._answers:
            raise UsageError("this LLM is busy: finish or close the iterator that is running.")
        listed = [prompts] if isinstance(prompts, str | Mapping) else list(prompts)
        params = self.default_params() if sampling_params is None else sampling_params
        answers = self._intake.begin(self.assembly, listed, params)
        self._is_interrupted = False
        self.assembly.calibrate(len(answers))
        try:
            for answer in answers:
                self.assembly.engine.add(answer.request)
                self._answers.add(answer)
        except SpecCliError as error:
            index = len(self._answers.request_ids)
            self._drop_all()
            raise numbered(error, index, len(listed)) from error
        return self._run()

    def interrupt(self) -> None:
        """End what is running after the current step; callable from a signal handler."""
        self._is_interrupted = True

    def _new_way(self, config: EngineConfig, report: ReportStage) -> Assembly:
        """Another assembly on the same target, with a draft model that is loaded already if any."""
        base = self.assembly
        for way in self._ways.values():
            if way.draft_model is not None and way.config.draft_source == config.draft_source:
                base = way
        return reassemble(base, config, report)

    def _adopt(self, assembly: Assembly) -> None:
        self._assembly = self._ways[assembly.config] = assembly
        self._answers = Answers(assembly.texts)

    def _run(self) -> Generator[Event | TextDelta, None, None]:
        engine = self.assembly.engine
        try:
            while engine.has_work:
                if self._is_interrupted:
                    events: list[Event] = []
                    for request_id in self._answers.request_ids:
                        events += engine.abort(request_id)
                else:
                    events = engine.step()
                for event in events:
                    yield from self._answers.with_text(event)
        finally:
            self._drop_all()

    def _drop_all(self) -> None:
        """End whatever still runs, so that the engine is idle."""
        for request_id in self._answers.request_ids:
            if self._assembly is not None:
                self._assembly.engine.abort(request_id)
        self._answers.clear()

    def _collect(self, events: Iterator[Event | TextDelta]) -> list[RequestOutput]:
        outputs: dict[int, RequestOutput] = {}
        for event in events:
            if isinstance(event, RequestFinished):
                answer = self._answers[event.request_id]
                outputs[answer.index] = answer.output(event)
        return [outputs[index] for index in sorted(outputs)]


def _ignore_stage(_: Stage) -> None:
    """Progress goes nowhere."""
