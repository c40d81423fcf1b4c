"""What a request asks of sampling, validated at the door."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spec_cli.core.errors import UsageError

MAX_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen and when they end.

    Names and meanings follow vLLM.

    Attributes:
        temperature: 0 is greedy (argmax, ties to the lowest id); any finite value >= 0.
        top_k: Keep the k most likely tokens; 0 or -1 keeps all, as does a k past the vocabulary.
        top_p: Keep the smallest set of most likely tokens whose probability reaches top_p,
            never fewer than one; in [0, 1].
        min_p: Keep tokens at least min_p times as likely as the most likely one; in [0, 1].
        repetition_penalty: Divides positive and multiplies negative logits of every token of prompt
            and output (Keskar et al. 2019, CTRL, section 4.1); > 0, and 1 is off.
        presence_penalty: Subtracted from the logit of each token already in the output; in [-2, 2].
        frequency_penalty: Subtracted once per occurrence in the output; in [-2, 2].
        seed: Source of all random numbers of the request, in [0, 2**64); None draws one, which
            is reported.
        max_tokens: Most tokens to generate; at least 1. The context may end an answer earlier.
        stop: Strings that end the answer; none of their text is returned.
        stop_token_ids: Token ids that end the answer, beside the model's own end tokens.
        ignore_eos: Go on past the model's own end tokens.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int = 512
    stop: tuple[str, ...] | list[str] | str = field(default=())
    stop_token_ids: tuple[int, ...] | list[int] = field(default=())
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Normalise and check every field.

        Raises:
            UsageError: A field is out of range or of the wrong type; the message names it.
        """
        self._set("temperature", _number("temperature", self.temperature, 0.0, math.inf))
        self._set("top_k", _integer("top_k", self.top_k, -1, None))
        self._set("top_p", _number("top_p", self.top_p, 0.0, 1.0))
        self._set("min_p", _number("min_p", self.min_p, 0.0, 1.0))
        penalty = _number("repetition_penalty", self.repetition_penalty, 0.0, math.inf)
        if penalty == 0.0:
            raise UsageError("repetition_penalty must be above 0, got 0; 1 is off.")
        self._set("repetition_penalty", penalty)
        for name in ("presence_penalty", "frequency_penalty"):
            self._set(name, _number(name, getattr(self, name), -2.0, 2.0))
        if self.seed is not None:
            self._set("seed", _integer("seed", self.seed, 0, MAX_SEED))
        self._set("max_tokens", _integer("max_tokens", self.max_tokens, 1, None))
        self._set("stop", _strings("stop", self.stop))
        ids = tuple(_integer("stop_token_ids", i, 0, None) for i in self.stop_token_ids)
        self._set("stop_token_ids", ids)
        if not isinstance(self.ignore_eos, bool):
            raise UsageError(f"ignore_eos must be true or false, got {self.ignore_eos!r}.")

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the argmax of its distribution."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def has_penalties(self) -> bool:
        """Whether a distribution depends on more of the text than the model saw."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _number(name: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} must be a number, got {value!r}.")
    number = float(value)
    if math.isnan(number) or math.isinf(number) or not low <= number <= high:
        bound = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise UsageError(f"{name} must be {bound}, got {value!r}.")
    return number


def _integer(name: str, value: Any, low: int, high: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} must be a whole number, got {value!r}.")
    if value < low or (high is not None and value > high):
        bound = f"at least {low}" if high is None else f"between {low} and {high}"
        raise UsageError(f"{name} must be {bound}, got {value}.")
    return value


def _strings(name: str, value: str | Iterable[str]) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else tuple(value)
    for string in strings:
        if not isinstance(string, str) or not string:
            raise UsageError(f"{name} must hold non-empty strings, got {string!r}.")
    return strings
