"""What one token writes, given the text before it.

Decoding a growing list of ids again for every token is slow, and decoding ids one by one is wrong:
sentencepiece tokens carry their leading space only inside a text, and byte tokens hold pieces of a
character. Here a token either has text of its own, which at most depends on whether something
stands before it, or raw bytes, which the reader of the stream joins.
"""

import re
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """The letter that stands for each byte in byte-level vocabularies (Radford et al. 2019).

    A printable Latin-1 character stands for its own code; the other bytes take, in order, the
    characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }


_BYTE_OF_LETTER = _byte_alphabet()


@dataclass(frozen=True, slots=True)
class TokenForm:
    """One token of a vocabulary.

    Attributes:
        text: Its text at the very start of a text.
        text_inside: The anchor's text and, after it, that of the token.
        raw: Its bytes if they are not whole characters; None for a token with text.
        is_silent: It writes nothing anywhere: special tokens, ids outside the vocabulary.
    """

    text: str
    text_inside: str
    raw: bytes | None
    is_silent: bool


class Detokenizer:
    """The tokens of one tokenizer, looked up once each and shared by all its streams.

    Attributes:
        anchor: A token with text, to stand for "some text comes before"; None if there is none.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._forms: dict[int, TokenForm] = {}
        self.anchor = self._find_anchor()
        self._inside = [] if self.anchor is None else [self.anchor]
        self._nothing_inside = self.decode(self._inside * 2)

    def decode(self, token_ids: list[int]) -> str:
        """Text of the tokens without special ones.

        Spaces stay as the tokens have them: the clean-up some configurations ask for deletes
        spaces before punctuation, which is wrong for code and would change text already shown.
        """
        text: str = self._tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def form(self, token_id: int) -> TokenForm:
        """How a token writes."""
        form = self._forms.get(token_id)
        if form is None:
            form = self._forms[token_id] = self._read(token_id)
        return form

    def text_after(self, context: int | None, token_id: int) -> str:
        """What a token with text adds after the token `context`, or at the start of a text."""
        alone = self.form(token_id).text
        if context is None:
            return alone
        before = self.form(context).text_inside
        both = self.decode([*self._inside, context, token_id])
        # A decoder that rewrites across tokens cannot take back what was shown.
        return both[len(before) :] if both.startswith(before) else alone

    def _read(self, token_id: int) -> TokenForm:
        text = self.decode([token_id])
        text_inside = self.decode([*self._inside, token_id])
        # Text on both sides: some decoders drop a space at either end.
        is_silent = self.decode([*self._inside, token_id, *self._inside]) == self._nothing_inside
        raw = self._raw_bytes(token_id) if _REPLACEMENT in text else None
        return TokenForm(text, text_inside, raw, is_silent)

    def _raw_bytes(self, token_id: int) -> bytes | None:
        """Bytes of a token that decodes to a replacement character; None if it really is one."""
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if isinstance(token, bytes):
            return token
        if match := _BYTE_TOKEN.fullmatch(token):
            return bytes.fromhex(match[1])
        if all(letter in _BYTE_OF_LETTER for letter in token):
            return bytes(_BYTE_OF_LETTER[letter] for letter in token)
        return None

    def _find_anchor(self) -> int | None:
        for text in ("a", "1", "."):
            token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
            if token_ids and self.decode(token_ids[-1:]).endswith(text):
                return token_ids[-1]
        return None
