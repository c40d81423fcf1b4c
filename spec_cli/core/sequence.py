"""A request and the tokens committed to it."""

from dataclasses import dataclass
from typing import Literal, Protocol

from spec_cli.core.params import SamplingParams

FinishReason = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how to continue it.

    Attributes:
        request_id: Unique among the requests of an engine.
        prompt_token_ids: At least one token id.
        params: Sampling parameters.
        seed: The seed in use: that of `params`, or one drawn when the request was made.
        end_token_ids: Token ids that end the answer: the model's own unless `ignore_eos`, and
            `params.stop_token_ids`.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    end_token_ids: frozenset[int]


class Sequence:
    """The committed tokens of a request: never a draft token (invariant 1).

    Attributes:
        request: What was asked.
        token_ids: Prompt and output; only `commit` appends to it.
        max_length: Most tokens it may reach: prompt + max_tokens, within the context.
        finish_reason: None while it runs.
    """

    __slots__ = ("finish_reason", "max_length", "num_prompt_tokens", "request", "token_ids")

    def __init__(self, request: Request, max_length: int) -> None:
        self.request = request
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.max_length = max_length
        self.finish_reason: FinishReason | None = None

    def __len__(self) -> int:
        """Number of committed tokens, prompt included."""
        return len(self.token_ids)

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def output_token_ids(self) -> list[int]:
        """The generated tokens, an end token included."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_output_tokens(self) -> int:
        """How many tokens were generated."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_remaining(self) -> int:
        """How many more tokens it may gain."""
        return self.max_length - len(self.token_ids)

    def commit(self, token_ids: tuple[int, ...]) -> None:
        """Append verified tokens."""
        self.token_ids.extend(token_ids)


class StopChecker(Protocol):
    """Says, before commit, how much of a step's tokens to keep for the sake of stop strings."""

    def start(self, request: Request) -> None:
        """Begin to follow a request."""

    def keep(self, request_id: str, token_ids: tuple[int, ...]) -> tuple[int, bool]:
        """Read the next tokens of a request, in order.

        Returns:
            How many to keep, and whether the last one kept completes a stop string.
        """

    def finish(self, request_id: str) -> None:
        """Stop following a request."""
