"""The ecosystem's reference: `generate()` of transformers, plain, with prompt lookup, and assisted.

It is measured through the same events as the engine's own arms, so all figures mean the same.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spec_cli.bench.arms import Arm
from spec_cli.core.events import (
    EmittedToken,
    Event,
    RequestFinished,
    RequestStarted,
    RowStep,
    SpeculationState,
    StepFinished,
    StepTimes,
    TokensEmitted,
)
from spec_cli.core.sequence import Request
from spec_cli.core.stats import StatsRecorder

if TYPE_CHECKING:
    from spec_cli.engine.assembly import Assembly
    from spec_cli.models.loader import LoadedModel


def load_references(
    assembly: "Assembly", arms: list[Arm], clock: Callable[[], float]
) -> dict[str, "TransformersEngine"]:
    """The models again, as transformers loads them: own attention, weights not packed.

    Args:
        assembly: The models as the engine has them.
        arms: Those that transformers runs.
        clock: Seconds.
    """
    config, draft = assembly.config, assembly.draft
    target = _load(assembly.target, trust=config.trust_remote_code)
    assistant = None
    if draft is not None and any(arm.uses("draft") for arm in arms):
        assistant = _load(draft, trust=config.draft_trust_remote_code)
    return {
        arm.name: TransformersEngine(
            target, arm.num_draft_tokens, clock, assistant if arm.uses("draft") else None
        )
        for arm in arms
    }


def _load(loaded: "LoadedModel", *, trust: bool) -> Any:
    from spec_cli.models.loader import LoadOptions, load_model

    options = LoadOptions(
        device=str(loaded.device),
        dtype=str(loaded.dtype).removeprefix("torch."),
        trust_remote_code=trust,
    )
    return load_model(loaded.files, options, lambda _: None).model


@dataclass(slots=True)
class _Deliveries:
    """A streamer of transformers' that notes when tokens came.

    The first call brings the prompt.
    """

    clock: Callable[[], float]
    seen: list[tuple[float, list[int]]] = field(default_factory=list)
    _has_prompt: bool = False

    def put(self, value: Any) -> None:
        """New tokens."""
        if self._has_prompt:
            self.seen.append((self.clock(), value.flatten().tolist()))
        self._has_prompt = True

    def end(self) -> None:
        """Nothing is held back."""


class TransformersEngine:
    """Answers one request after the other with `generate()`; one call of `step` is one answer."""

    def __init__(
        self,
        model: Any,
        num_draft_tokens: object,
        clock: Callable[[], float],
        assistant: Any = None,
    ) -> None:
        """Wrap a model as transformers loads it.

        Args:
            model: Not shared with an engine of ours.
            num_draft_tokens: Tokens to draft, or None for plain decoding.
            clock: Seconds.
            assistant: The draft model; without one, drafts are looked up in the prompt.
        """
        self._assistant = assistant
        self._model = model
        self._num_draft_tokens = num_draft_tokens
        self._clock = clock
        self._waiting: deque[tuple[Request, float]] = deque()
        self._num_steps = 0

    @property
    def has_work(self) -> bool:
        """Whether a request waits."""
        return bool(self._waiting)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.append((request, self._clock()))

    def abort(self, request_id: str) -> list[Event]:
        """Take a request that waits out of the queue."""
        for entry in list(self._waiting):
            if entry[0].request_id == request_id:
                self._waiting.remove(entry)
        return []

    def step(self) -> list[Event]:
        """Answer the oldest request."""
        request, arrived = self._waiting.popleft()
        started = self._clock()
        deliveries = self._generate(request)
        return self._events(request, arrived, started, deliveries)

    def _generate(self, request: Request) -> list[tuple[float, list[int]]]:
        import torch

        streamer = _Deliveries(self._clock)
        prompt = torch.tensor([request.prompt_token_ids], device=self._model.device)
        options: dict[str, Any] = {}
        if self._assistant is not None:
            settings = self._assistant.generation_config
            settings.num_assistant_tokens = self._num_draft_tokens
            settings.num_assistant_tokens_schedule = "constant"
            settings.assistant_confidence_threshold = 0.0
            options["assistant_model"] = self._assistant
        elif self._num_draft_tokens is not None:
            options["prompt_lookup_num_tokens"] = self._num_draft_tokens
        num_tokens = request.params.max_tokens
        with torch.inference_mode():
            self._model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=num_tokens,
                eos_token_id=None,
                pad_token_id=0,
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                repetition_penalty=None,
                streamer=streamer,
                **options,
            )
        return streamer.seen

    def _events(
        self,
        request: Request,
        arrived: float,
        started: float,
        deliveries: list[tuple[float, list[int]]],
    ) -> list[Event]:
        recorder = StatsRecorder(len(request.prompt_token_ids))
        name, length = request.request_id, len(request.prompt_token_ids)
        events: list[Event] = [RequestStarted(name, started, length, 0)]
        before = started
        for number, (now, token_ids) in enumerate(deliveries):
            tokens = tuple(EmittedToken(token_id, "target", None) for token_id in token_ids)
            events.append(TokensEmitted(name, self._num_steps, now, tokens))
            rows: tuple[RowStep, ...] = ()
            if number:
                recorder.record_pass(num_judged=0, num_accepted=0, num_emitted=len(tokens))
                rows = (RowStep(name, "ngram", (), 0, len(tokens), 0, length),)
            else:
                recorder.num_output_tokens += len(tokens)
            times = StepTimes(0.0, now - before, 0.0, 0.0)
            state = SpeculationState("off", "measured from outside")
            prefill = 0 if number else length
            events.append(StepFinished(self._num_steps, now, rows, prefill, times, state))
            self._num_steps += 1
            length += len(tokens)
            before = now
        first = deliveries[0][0]
        stats = recorder.snapshot(
            queue_s=started - arrived, prefill_s=first - started, decode_s=before - first
        )
        events.append(RequestFinished(name, before, "length", stats))
        return events
