"""Prompts to tokens and tokens to text, with every failure in words."""

import itertools
import os
import re
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from spec_cli.core.errors import UsageError
from spec_cli.models.detokenizer import Detokenizer
from spec_cli.models.text import TextStream

_PROBE = "is this text written?"
_ROLES = ("system", "developer", "user", "assistant", "tool")
# What a template can stumble over besides its own raise_exception.
_TEMPLATE_ERRORS = (TemplateError, AttributeError, LookupError, TypeError, ValueError)
# Set by `render_chat` itself, or meant for the tokenizer rather than the template.
_RESERVED_KWARGS = frozenset(
    {
        *("messages", "conversation", "tools", "documents", "chat_template", "tokenize"),
        *("add_generation_prompt", "continue_final_message", "sanitize_control_tokens"),
        *("padding", "truncation", "max_length", "return_tensors", "return_dict"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs"),
    }
)


class TextTokenizer:
    """The tokenizer of one model.

    Attributes:
        name: The model, as the user named it, for messages.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
        # Prompts are encoded one by one, so threads gain nothing, and they make the library warn
        # when the process forks.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.name = name
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text."""
        token_id: int | None = self._tokenizer.bos_token_id
        return token_id

    @property
    def end_token_ids(self) -> frozenset[int]:
        """End tokens the tokenizer knows of; the model's configuration may name more."""
        eos: int | list[int] | None = self._tokenizer.eos_token_id
        if eos is None:
            return frozenset()
        return frozenset([eos] if isinstance(eos, int) else eos)

    @property
    def has_chat_template(self) -> bool:
        """Whether it can be given a conversation."""
        try:
            self._template()
        except UsageError:
            return False
        return True

    @cached_property
    def vocab(self) -> dict[int, str]:
        """Every token by id, added ones included."""
        return {token_id: token for token, token_id in self._tokenizer.get_vocab().items()}

    def encode(self, text: str) -> list[int]:
        """Tokens of a raw prompt; a begin token where the tokenizer adds one, never two.

        Raises:
            UsageError: There is no token to start from, or the text is not valid Unicode.
        """
        token_ids = self._encode(text, add_special_tokens=True)
        doubled = [self.bos_token_id] * 2
        if token_ids[:2] == doubled and len(token_ids) > len(
            self._encode(text, add_special_tokens=False)
        ):
            # The text begins with the token that the tokenizer adds.
            del token_ids[0]
        return token_ids or self._start()

    def encode_chat(
        self,
        messages: list[dict[str, str]],
        *,
        template_kwargs: dict[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """Tokens of a conversation; a begin token only if the template writes one.

        Raises:
            UsageError: As for `render_chat` and `encode`.
        """
        text = self.render_chat(
            messages, template_kwargs=template_kwargs, add_generation_prompt=add_generation_prompt
        )
        return self._encode(text, add_special_tokens=False) or self._start()

    def render_chat(
        self,
        messages: list[dict[str, str]],
        *,
        template_kwargs: dict[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The conversation as the model's chat template writes it.

        Raises:
            UsageError: A message is malformed, there is no template, it refuses the conversation
                or drops the system message, or it does not know one of `template_kwargs`.
        """
        _check_messages(messages)
        options = template_kwargs or {}
        template = self._template()
        self._check_options(template, options)
        try:
            text = self._render(
                _in_parts(messages) if self._wants_parts else messages,
                chat_template=template,
                add_generation_prompt=add_generation_prompt,
                **options,
            )
        except _TEMPLATE_ERRORS as error:
            roles = ", ".join(message["role"] for message in messages)
            raise UsageError(
                f"The chat template of {self.name} refuses this conversation "
                f"(roles: {roles}): {str(error).rstrip('.')}.",
                hint=_conversation_hint(messages),
            ) from error
        for message in messages:
            if message["role"] == "system" and message["content"].strip() not in text:
                raise UsageError(
                    f"The chat template of {self.name} has no place for a system message: "
                    "it leaves its text out of the prompt.",
                    hint=_conversation_hint(messages),
                )
        return text

    def decode(self, token_ids: list[int]) -> str:
        """Text of tokens at once, special ones left out; an answer's text is that of its stream."""
        return self._detokenizer.decode(token_ids)

    def token_text(self, token_id: int) -> str:
        """One token to show by itself: special tokens by name, parts of characters as `<0xNN>`."""
        form = self._detokenizer.form(token_id)
        if form.is_silent:
            return self.vocab.get(token_id, "")
        if form.raw is not None:
            return "".join(f"<0x{byte:02X}>" for byte in form.raw)
        return self._detokenizer.text_after(self._detokenizer.anchor, token_id)

    def stream(
        self,
        prompt_token_ids: tuple[int, ...] | list[int],
        stop: tuple[str, ...] = (),
        end_token_ids: frozenset[int] = frozenset(),
    ) -> TextStream:
        """Follow the answer to a prompt."""
        return TextStream(self._detokenizer, tuple(prompt_token_ids), stop, end_token_ids)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"The prompt is not valid Unicode: character {error.start} is half of a "
                "surrogate pair.",
                hint="Pass the prompt in UTF-8.",
            ) from error
        # verbose: a prompt longer than the tokenizer's own limit is judged by the model's context.
        encoding = self._tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)
        return list(encoding["input_ids"])

    @cached_property
    def _wants_parts(self) -> bool:
        """Whether the template writes a text only if it comes as a list of parts.

        Those of many multimodal models walk over the parts of a message; given a string, they walk
        over its characters and write nothing.
        """
        message = [{"role": "user", "content": _PROBE}]
        return not self._writes(message) and self._writes(_in_parts(message))

    def _writes(self, messages: list[Any]) -> bool:
        try:
            return _PROBE in self._render(messages)
        except _TEMPLATE_ERRORS:
            return False

    def _render(self, messages: list[Any], **options: Any) -> str:
        text: str = self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
        return text

    def _start(self) -> list[int]:
        if self.bos_token_id is None:
            raise UsageError(
                f"The prompt is empty, and {self.name} has no begin token to start from.",
                hint="Give the prompt at least one character.",
            )
        return [self.bos_token_id]

    def _template(self) -> str:
        try:
            template: str = self._tokenizer.get_chat_template()
        except ValueError as error:
            # Also raised for a set of named templates without a default.
            raise UsageError(
                f"{self.name} has no chat template, so it cannot be given a conversation.",
                hint="--raw sends the text as it is.",
            ) from error
        return template

    def _check_options(self, template: str, options: dict[str, Any]) -> None:
        for option in options:
            if option in _RESERVED_KWARGS:
                raise UsageError(f"The chat template option {option!r} cannot be set from outside.")
            if not re.search(rf"\b{re.escape(option)}\b", template):
                # Jinja would ignore it without a word.
                raise UsageError(
                    f"The chat template of {self.name} does not use the option {option!r}."
                )


def _check_messages(messages: list[dict[str, str]]) -> None:
    if not messages:
        raise UsageError("A conversation needs at least one message, got none.")
    for index, message in enumerate(messages):
        role = message.get("role")
        if role not in _ROLES:
            raise UsageError(
                f"Message {index} has the role {role!r}.", hint=f"Use one of: {', '.join(_ROLES)}."
            )
        if not isinstance(message.get("content"), str):
            raise UsageError(
                f"Message {index} (role {role}) needs a text as content, "
                f"got {message.get('content')!r}."
            )


def _in_parts(messages: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [
        message | {"content": [{"type": "text", "text": message["content"]}]}
        for message in messages
    ]


def _conversation_hint(messages: list[dict[str, str]]) -> str | None:
    roles = [message["role"] for message in messages]
    hints = []
    if "system" in roles:
        hints.append("Leave out the system message, or put its text into the first user message.")
    if any(role == following for role, following in itertools.pairwise(roles)):
        hints.append("Let user and assistant messages alternate.")
    return "\n".join(hints) or None
