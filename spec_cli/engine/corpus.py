"""Texts of the user's that lookup may copy from (`--lookup-corpus`)."""

import codecs
from dataclasses import dataclass
from pathlib import Path

from spec_cli.core.errors import UsageError
from spec_cli.models.tokenizer import TextTokenizer
from spec_cli.proposers.suffix import MAX_CORPUS_TOKENS

_MAX_BYTES_PER_TOKEN = 8
"""A file is read up to this many bytes for each token of room: text has about four."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """What was read.

    Attributes:
        texts: Token ids, a list for each file.
        notice: What was read and what was left out, in a sentence.
    """

    texts: tuple[list[int], ...]
    notice: str


def read_corpus(
    path: Path, tokenizer: TextTokenizer, max_tokens: int = MAX_CORPUS_TOKENS
) -> Corpus:
    """Read a file, or every text file in a folder and below it.

    Hidden files are not looked at, nor are files that are no UTF-8 text.

    Args:
        path: A file or a folder.
        tokenizer: The target's.
        max_tokens: Stop when there are so many.

    Raises:
        UsageError: There is no text at the path, or it cannot be read.
    """
    if not path.exists():
        raise UsageError(f"lookup_corpus: there is no file or folder {path}.")
    texts: list[list[int]] = []
    num_skipped = 0
    room = max_tokens
    files = _files(path)
    for number, file in enumerate(files):
        text = _read(file, room * _MAX_BYTES_PER_TOKEN)
        if not text:
            num_skipped += 1
            continue
        token_ids = tokenizer.encode(text)[:room]
        texts.append(token_ids)
        room -= len(token_ids) + 1  # one to tell it from the next
        if room < 1:
            num_skipped += len(files) - number - 1
            break
    if not texts:
        raise UsageError(f"lookup_corpus: {path} has no text in UTF-8.")
    notice = f"lookup corpus: {sum(map(len, texts)):,} tokens of {_count(len(texts))}"
    if room < 1:
        notice += f", cut at {max_tokens:,} tokens"
    if num_skipped:
        notice += f"; {_count(num_skipped)} left out, without text or room"
    return Corpus(tuple(texts), f"{notice}.")


def _count(num_files: int) -> str:
    return f"{num_files:,} file{'s' if num_files != 1 else ''}"


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )


def _read(file: Path, max_bytes: int) -> str | None:
    """The beginning of a text file; None if it is not text.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(max_bytes + 1)
    except OSError as error:
        raise UsageError(f"lookup_corpus: {file} cannot be read: {error.strerror}.") from error
    # Incremental: a cut may go through the last character, which is then left out.
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(raw[:max_bytes], final=len(raw) <= max_bytes)
    except UnicodeDecodeError:
        return None
