"""A conversation: turns whose tokens are always those of the rendered messages, cached or not."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from spec_cli.core.errors import ContextLengthError, UsageError
from spec_cli.core.events import Event, RequestFinished, RequestStarted, TextDelta, TokensEmitted
from spec_cli.core.params import MAX_SEED, SamplingParams
from spec_cli.core.turn import Reuse, Turn

if TYPE_CHECKING:
    from spec_cli.llm import LLM

Overflow = Literal["error", "stop", "drop-oldest"]

_TEMPERATURE = 0.7
_MAX_TOKENS = 2048
_SEED_BITS = 32
# Room for an answer that a long conversation must leave.
_ROOM_SHARE = 4


class ChatSession:
    """Messages and answers, one model, one way to sample.

    Each turn tokenises the whole conversation anew; what the caches hold of it is reused.

    Attributes:
        system: System message, or None; a change counts from the next turn on.
        params: How answers are sampled.
        template_kwargs: Variables of the chat template.
        ctx_overflow: When the conversation outgrows the context: refuse the message, let the
            answer stop there, or leave out the oldest turns.
        turns: All turns, also those left out.
        num_left_out: How many of the oldest turns the model no longer sees.
        latest: The turn that was begun last, answered or not.
    """

    def __init__(
        self,
        llm: "LLM",
        *,
        system: str | None = None,
        params: SamplingParams | None = None,
        template_kwargs: dict[str, Any] | None = None,
        ctx_overflow: Overflow = "drop-oldest",
    ) -> None:
        self._llm = llm
        self.system = system
        self.params = params or chat_params(llm)
        self.template_kwargs = template_kwargs or {}
        self.ctx_overflow: Overflow = ctx_overflow
        self.turns: list[Turn] = []
        self.num_left_out = 0
        self.latest: Turn | None = None

    @property
    def messages(self) -> list[dict[str, str]]:
        """What the model sees of the conversation."""
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in self.turns[self.num_left_out :]:
            messages.append({"role": "user", "content": turn.user})
            messages.append({"role": "assistant", "content": turn.text})
        return messages

    def check_template(self) -> None:
        """Find out whether the chat template takes the system message and its options.

        Raises:
            UsageError: It does not.
        """
        messages = [*self.messages, {"role": "user", "content": "."}]
        self._llm.render(messages, self.template_kwargs)

    def send(self, text: str) -> Turn:
        """Answer a message.

        Raises:
            SpecCliError: It cannot be answered; the conversation is as before.
        """
        return _last(self.events(text), self)

    def regen(self) -> Turn:
        """Answer the last message again, with another seed.

        Raises:
            UsageError: There is none.
        """
        return _last(self.regen_events(), self)

    def events(self, text: str) -> Iterator[Event | TextDelta]:
        """Answer a message; the turn is part of the conversation when the iterator ends.

        What was written of an answer that is interrupted stays; if nothing was, so does nothing
        of the turn. Turns are left out before this returns, where they have to be.

        Raises:
            SpecCliError: It cannot be answered; the conversation is as before.
        """
        seed = self.params.seed
        return self._begin(text, secrets.randbits(_SEED_BITS) if seed is None else seed)

    def regen_events(self) -> Iterator[Event | TextDelta]:
        """Answer the last message again, with another seed; the old answer goes if one comes.

        Raises:
            UsageError: There is none.
        """
        if not self.turns:
            raise UsageError("there is no answer to write again.")
        old = self.turns.pop()
        self.num_left_out = min(self.num_left_out, len(self.turns))
        drawn = secrets.randbits(_SEED_BITS)
        seed = drawn if self.params.seed is None else (old.seed + 1) % (MAX_SEED + 1)
        try:
            events = self._begin(old.user, seed)
        except BaseException:
            self.turns.append(old)
            raise
        return self._restoring(events, old)

    def undo(self) -> Turn:
        """Remove the last message and its answer.

        Raises:
            UsageError: There is none.
        """
        if not self.turns:
            raise UsageError("there is nothing to undo.")
        turn = self.turns.pop()
        self.num_left_out = min(self.num_left_out, len(self.turns))
        return turn

    def clear(self) -> None:
        """Forget all turns; system message and settings stay."""
        self.turns.clear()
        self.num_left_out = 0

    def _begin(self, text: str, seed: int) -> Iterator[Event | TextDelta]:
        num_before = self.num_left_out
        try:
            prompt = self._fit(text)
            params = replace(self.params, seed=seed)
            events = self._llm.events(prompt, params)
        except BaseException:
            self.num_left_out = num_before
            raise
        turn = Turn(text, seed=seed, prompt=prompt["prompt"])
        turn.prompt_token_ids = tuple(prompt["prompt_token_ids"])
        turn.setting = {
            "the system message": self.system,
            "the template's options": dict(self.template_kwargs),
            "which turns are left out": self.num_left_out,
        }
        self.latest = turn
        return self._follow(events, turn)

    def _fit(self, text: str) -> Any:
        """The prompt of the next turn, old turns left out where there is no room for an answer."""
        limit = self._llm.assembly.context_length
        room = min(self.params.max_tokens, max(1, limit // _ROOM_SHARE))
        while True:
            messages = [*self.messages, {"role": "user", "content": text}]
            prompt: Any = self._llm.render(messages, self.template_kwargs)
            num_tokens = len(prompt["prompt_token_ids"])
            if num_tokens + room <= limit or self.ctx_overflow == "stop":
                return prompt
            if self.ctx_overflow == "error":
                raise ContextLengthError(
                    f"the conversation has {num_tokens:,} tokens; the context holds {limit:,}, "
                    f"of which the answer wants {room:,}.",
                    hint="/undo or /clear, a larger -c, or --ctx-overflow drop-oldest",
                )
            if self.num_left_out == len(self.turns):
                return prompt  # the engine says so if there is no room at all
            self.num_left_out += 1

    def _follow(
        self, events: Iterator[Event | TextDelta], turn: Turn
    ) -> Iterator[Event | TextDelta]:
        """Write the turn down while its events pass."""
        try:
            for event in events:
                if isinstance(event, RequestStarted):
                    turn.reuse = self._reuse(turn, event.num_cached_tokens)
                elif isinstance(event, TokensEmitted):
                    turn.token_ids += [token.token_id for token in event.tokens]
                elif isinstance(event, TextDelta):
                    turn.text += event.text
                elif isinstance(event, RequestFinished):
                    turn.finish_reason, turn.stats = event.reason, event.stats
                yield event
        finally:
            if turn.token_ids:
                self.turns.append(turn)

    def _restoring(
        self, events: Iterator[Event | TextDelta], old: Turn
    ) -> Iterator[Event | TextDelta]:
        num_turns = len(self.turns)
        try:
            yield from events
        finally:
            if len(self.turns) == num_turns:
                self.turns.append(old)

    def _reuse(self, turn: Turn, num_cached: int) -> Reuse:
        """What the cache gave of the turn before, and why not all of it."""
        num_prompt = len(turn.prompt_token_ids)
        before = self.turns[-1] if self.turns else None
        if before is None or not before.prompt_token_ids:
            return Reuse(num_prompt, num_cached)
        held = [*before.prompt_token_ids, *before.token_ids]
        # The last token of an answer was never fed to the model.
        num_lost = min(len(held), num_prompt) - 1 - num_cached
        if num_lost <= 0:
            return Reuse(num_prompt, num_cached)
        shared = _num_shared(held, turn.prompt_token_ids)
        return Reuse(num_prompt, num_cached, num_lost, self._reason(turn, before, shared))

    def _reason(self, turn: Turn, before: Turn, num_shared: int) -> str:
        if num_shared >= len(before.prompt_token_ids) + len(before.token_ids) - 1:
            return "the cache was needed for something else"
        if num_shared < len(before.prompt_token_ids):
            if turn.prompt.startswith(before.prompt):
                return "the text gives other tokens when it is read again"
            for name, now in turn.setting.items():
                if before.setting.get(name) != now:
                    return f"{name} changed"
            return "the chat template writes earlier turns differently"
        if before.finish_reason == "stop" and not turn.prompt.startswith(
            before.prompt + before.text
        ):
            return "the chat template writes the answer differently"
        return "the answer gives other tokens when it is read again"


def chat_params(llm: "LLM", **changes: Any) -> SamplingParams:
    """What the model recommends for chat, with changes of yours; else a temperature of 0.7."""
    recommended = llm.assembly.target.generation_defaults
    defaults: dict[str, Any] = {"max_tokens": _MAX_TOKENS}
    if "temperature" not in recommended and recommended.get("do_sample") is not False:
        defaults["temperature"] = _TEMPERATURE
    return llm.default_params(**{**defaults, **changes})


def _num_shared(a: list[int], b: tuple[int, ...]) -> int:
    limit = min(len(a), len(b))
    return next((i for i in range(limit) if a[i] != b[i]), limit)


def _last(events: Iterator[Event | TextDelta], session: ChatSession) -> Turn:
    for _ in events:
        pass
    return session.turns[-1]
