"""A turn of a conversation, and what the cache gave for it."""

from dataclasses import dataclass, field
from typing import Any

from spec_cli.core.sequence import FinishReason
from spec_cli.core.stats import RequestStats


@dataclass(frozen=True, slots=True)
class Reuse:
    """How much of a prompt was in the cache.

    Attributes:
        num_prompt_tokens: All of them.
        num_cached_tokens: Those that were.
        num_lost_tokens: Those of the turn before that could have been and were not.
        reason: Why, or None if none were lost.
    """

    num_prompt_tokens: int
    num_cached_tokens: int
    num_lost_tokens: int = 0
    reason: str | None = None


@dataclass(slots=True)
class Turn:
    """A message and its answer.

    Attributes:
        user: The message.
        text: The answer, reasoning included.
        finish_reason: Why it ended.
        seed: The seed that reproduces it.
        stats: Its figures, or None for a turn that was loaded.
        reuse: What the cache gave, or None for a turn that was loaded.
        prompt: The rendered conversation.
        prompt_token_ids: Its tokens.
        token_ids: Tokens of the answer.
        setting: What else the prompt depends on, by its name in words.
    """

    user: str
    text: str = ""
    finish_reason: FinishReason = "interrupted"
    seed: int = 0
    stats: RequestStats | None = None
    reuse: Reuse | None = None
    prompt: str = ""
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: list[int] = field(default_factory=list)
    setting: dict[str, Any] = field(default_factory=dict)
