"""Prompts and parameters as a caller gives them, checked and made into requests."""

import itertools
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from spec_cli.core.errors import SpecCliError, UsageError
from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request
from spec_cli.engine.answers import Answer
from spec_cli.engine.assembly import Assembly

Prompt = str | Mapping[str, Any]
"""Text, or `{"prompt_token_ids": [...]}`."""


class Intake:
    """Makes the answers-to-be of one LLM; their requests are numbered over its life."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def begin(
        self,
        assembly: Assembly,
        prompts: list[Prompt],
        params: SamplingParams | Iterable[SamplingParams],
    ) -> list[Answer]:
        """One answer for each prompt, none of it written yet.

        Raises:
            SpecCliError: A prompt cannot be run; with several, the message names it.
        """
        answers = []
        for index, (prompt, each) in enumerate(
            zip(prompts, _params_for(prompts, params), strict=True)
        ):
            try:
                text, token_ids = _encode(assembly, prompt)
            except SpecCliError as error:
                raise numbered(error, index, len(prompts)) from error
            answers.append(Answer(self._request(assembly, token_ids, each), text, index))
        return answers

    def _request(self, assembly: Assembly, token_ids: list[int], params: SamplingParams) -> Request:
        ends = set(params.stop_token_ids)
        if not params.ignore_eos:
            ends |= assembly.target.end_token_ids
        return Request(
            request_id=f"request-{next(self._numbers)}",
            prompt_token_ids=tuple(token_ids),
            params=params,
            seed=secrets.randbits(32) if params.seed is None else params.seed,
            end_token_ids=frozenset(ends),
        )


def numbered(error: SpecCliError, index: int, num_prompts: int) -> SpecCliError:
    """The same failure, saying which of several prompts it is about."""
    if num_prompts == 1:
        return error
    return type(error)(f"prompt {index + 1} of {num_prompts}: {error}", hint=error.hint)


def _params_for(
    prompts: list[Prompt], params: SamplingParams | Iterable[SamplingParams]
) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * len(prompts)
    listed = list(params)
    if len(listed) != len(prompts):
        raise UsageError(f"{len(prompts)} prompts came with {len(listed)} sampling_params.")
    return listed


def _encode(assembly: Assembly, prompt: Prompt) -> tuple[str, list[int]]:
    tokenizer = assembly.tokenizer
    if isinstance(prompt, str):
        return prompt, tokenizer.encode(prompt)
    token_ids = list(prompt["prompt_token_ids"])
    rows = assembly.engine.parts.target.vocab_size
    if not token_ids or not all(isinstance(i, int) and 0 <= i < rows for i in token_ids):
        raise UsageError(f"prompt_token_ids must be one or more ids below {rows:,}.")
    text = prompt.get("prompt")
    return (tokenizer.decode(token_ids) if text is None else str(text)), token_ids
