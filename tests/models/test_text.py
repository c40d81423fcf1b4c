"""Text as it streams: whole characters, right spaces, every token counted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

from spec_cli.models.text import TextPiece, TextStream
from spec_cli.models.tokenizer import TextTokenizer
from tests.models.small_tokenizers import BYTES, KINDS, named, sentencepiece_model, verbatim

# Combined and joined characters, right-to-left letters, signs of every UTF-8 length.
HARD = [
    "👩‍👩‍👧",
    "🇫🇷",
    "e\u0301",
    "שלום",
    "مرحبا",
    "東京",
    "é",
    "�",
    " ",
    "  ",
    "\n",
    "▁",
    "the",
    "hello",
]
TEXTS = st.lists(st.one_of(st.sampled_from(HARD), st.text(max_size=6)), max_size=12).map("".join)


def read(stream: TextStream, token_ids: list[int], step: int = 1) -> list[TextPiece]:
    """All pieces of an answer whose tokens come `step` at a time."""
    pieces: list[TextPiece] = []
    for start in range(0, len(token_ids), step):
        for token_id in token_ids[start : start + step]:
            assert not stream.push(token_id)
        pieces += stream.take()
    return pieces + stream.finish()


def joined(pieces: list[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


def counted(pieces: list[TextPiece]) -> int:
    return sum(piece.num_tokens for piece in pieces)


def reference(tokenizer: TextTokenizer, prompt: list[int], answer: list[int]) -> str:
    """What the answer adds to the prompt's text, both decoded whole."""
    return tokenizer.decode(prompt + answer)[len(tokenizer.decode(prompt)) :]


def utf8(data: bytes) -> str:
    """Ill-formed bytes replaced, an incomplete character at the end dropped."""
    for length in (1, 2, 3):
        try:
            data[-length:].decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data" and error.start == 0:
                return data[:-length].decode(errors="replace")
    return data.decode(errors="replace")


def byte_ids(tokenizer: TextTokenizer, data: bytes) -> list[int]:
    """One token per byte."""
    ids = {token: token_id for token_id, token in tokenizer.vocab.items()}
    if BYTES[0] in ids:
        return [ids[BYTES[byte]] for byte in data]
    shifted = [*range(0x21), *range(0x7F, 0xA1), 0xAD]
    return [ids[chr(0x100 + shifted.index(b) if b in shifted else b)] for b in data]


@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("sign", ["é", "東", "😀"])
@pytest.mark.parametrize("kind", KINDS)
def test_t03_character_of_several_tokens_appears_whole(kind: str, sign: str, step: int) -> None:
    """A character cut into single bytes is never shown in part, whatever the step size."""
    tokenizer = named(kind)
    answer = byte_ids(tokenizer, f"{sign}{sign}".encode())

    pieces = read(tokenizer.stream(tokenizer.encode("hello")), answer, step)

    assert [piece.text for piece in pieces] == [sign, sign]
    assert [piece.num_tokens for piece in pieces] == [len(answer) // 2] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_t03_answer_cut_inside_a_character_ends_before_it(kind: str) -> None:
    """A limit inside an emoji leaves its bytes out of the text, but counts their tokens."""
    tokenizer = named(kind)
    answer = byte_ids(tokenizer, "é😀".encode()[:-1])

    pieces = read(tokenizer.stream(tokenizer.encode("hello")), answer)

    assert pieces == [TextPiece("é", 2), TextPiece("", 3)]


@pytest.mark.parametrize("kind", KINDS)
@given(prompt=TEXTS, text=TEXTS, step=st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_any_text_streams_as_it_decodes(kind: str, prompt: str, text: str, step: int) -> None:
    """For any prompt and answer the pieces are the text of the whole, and count all tokens."""
    tokenizer = named(kind)
    prompt_ids = tokenizer.encode(prompt)
    answer = tokenizer.encode(text)[1:]

    pieces = read(tokenizer.stream(prompt_ids), answer, step)

    assert joined(pieces) == reference(tokenizer, prompt_ids, answer)
    assert counted(pieces) == len(answer)
    assert all(piece.text for piece in pieces[:-1])


@pytest.mark.parametrize("kind", KINDS)
@given(parts=st.lists(st.one_of(st.binary(max_size=6), st.sampled_from(["hello", "the", "😀"]))))
@settings(deadline=None, max_examples=60)
def test_any_bytes_stream_as_utf8(kind: str, parts: list[bytes | str]) -> None:
    """Ill-formed bytes between words give the replacement characters that UTF-8 asks for."""
    tokenizer = named(kind)
    prompt = tokenizer.encode("hello")
    answer: list[int] = []
    data = b""
    for part in parts:
        if isinstance(part, bytes):
            answer += byte_ids(tokenizer, part)
            data += part
        else:
            ids = tokenizer.encode(part)[1:]
            answer += ids
            data += reference(tokenizer, prompt, ids).encode()

    pieces = read(tokenizer.stream(prompt), answer)

    assert joined(pieces) == utf8(data)
    assert counted(pieces) == len(answer)
    whole = data.decode(errors="replace")
    # Byte fallback as `tokenizers` decodes it gives up a whole run for one ill-formed byte.
    if kind == "byte-level" or "\N{REPLACEMENT CHARACTER}" not in whole:
        assert reference(tokenizer, prompt, answer) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_has_its_token(kind: str) -> None:
    """The test's own table of bytes is right: all characters of Latin-1 come back from it."""
    tokenizer = named(kind)
    text = "".join(map(chr, range(0x100)))
    ids = byte_ids(tokenizer, text.encode())

    assert len(set(byte_ids(tokenizer, bytes(range(256))))) == 256
    assert reference(tokenizer, tokenizer.encode("a"), ids) == text


@pytest.mark.parametrize("kind", ["byte-fallback", "unigram"])
def test_space_between_words_depends_on_what_comes_before(kind: str) -> None:
    """A word keeps its leading space inside a text, after special tokens too, not at its start."""
    tokenizer = named(kind)
    begin, *word = tokenizer.encode("hello")

    assert joined(read(tokenizer.stream([begin]), word * 2)) == "hello hello"
    assert joined(read(tokenizer.stream([begin, *word, begin]), word)) == " hello"
    smile = byte_ids(tokenizer, "😀".encode())
    assert joined(read(tokenizer.stream([begin]), smile + word)) == "😀 hello"
    assert joined(read(tokenizer.stream([begin, *smile]), word)) == " hello"


def test_spaces_of_the_sentencepiece_library_are_right(tmp_path) -> None:
    """Its decoder drops a space at the end of a text; it comes with the next token instead."""
    path = tmp_path / "tokenizer.model"
    path.write_bytes(sentencepiece_model())
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = TextTokenizer(SentencePieceBackend(vocab_file=str(path), **special), "tiny")
    prompt = tokenizer.encode("Hello")
    answer = tokenizer.encode("the 東 dog")
    assert "▁" in [tokenizer.vocab[token_id] for token_id in answer]

    pieces = read(tokenizer.stream(prompt), answer)

    assert joined(pieces) == reference(tokenizer, prompt, answer)
    assert counted(pieces) == len(answer)


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_that_ends_inside_a_character_is_continued(kind: str) -> None:
    """A character begun by the prompt's last tokens appears with the answer's first ones."""
    tokenizer = named(kind)
    smile = byte_ids(tokenizer, "😀".encode())

    pieces = read(tokenizer.stream([*tokenizer.encode("hello"), *smile[:2]]), smile[2:])

    assert pieces == [TextPiece("😀", 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_endless_invalid_bytes_are_shown_as_they_come(kind: str, monkeypatch) -> None:
    """Bytes that can become no character are neither held nor decoded over and over."""
    tokenizer = named(kind)
    stream = tokenizer.stream(tokenizer.encode("hello"))
    invalid, lead = byte_ids(tokenizer, b"\x80\xe6")
    stream.push(invalid)
    stream.push(lead)
    stream.take()
    monkeypatch.setattr(tokenizer._detokenizer, "decode", lambda ids: pytest.fail("decoded again"))

    for _ in range(2000):
        stream.push(lead)
        assert stream.take() == [TextPiece("\N{REPLACEMENT CHARACTER}", 1)]


def test_text_around_an_incomplete_character_flows() -> None:
    """A token that ends inside a character shows its whole characters at once."""
    stream = verbatim("Ġæ", "Ŀ", "±Ġæ", "a", decoder=decoders.ByteLevel()).stream([3])

    shown = []
    for token_id in [0, 1, 2, 1, 2, 3]:
        stream.push(token_id)
        shown.append(stream.take())

    assert [joined(pieces) for pieces in shown] == [" ", "", "東 ", "", "東 ", "�a"]
    assert shown[-1] == [TextPiece("\N{REPLACEMENT CHARACTER}", 1), TextPiece("a", 1)]
    assert [counted(pieces) for pieces in shown] == [0, 0, 2, 0, 2, 2]


def test_replacement_character_of_the_vocabulary_is_text() -> None:
    """A token that really is U+FFFD is shown, and at the end not taken for cut bytes."""
    tokenizer = verbatim("a", "\N{REPLACEMENT CHARACTER}")

    pieces = read(tokenizer.stream([0]), [1, 1])

    assert pieces == [TextPiece("\N{REPLACEMENT CHARACTER}", 1)] * 2


@pytest.mark.parametrize(
    ("decoder", "words"),
    [
        (decoders.WordPiece(), ["un", "##able", "##s", ".", "do", "n't"]),
        (decoders.BPEDecoder(suffix="</w>"), ["un", "able</w>", "s</w>", "a</w>", ".</w>"]),
        (decoders.Metaspace(), ["▁un", "able", "▁", "▁▁", ".", "s"]),
    ],
    ids=["word-piece", "word-end", "metaspace"],
)
@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_spaces_of_other_decoders_are_right(decoder, words: list[str], data) -> None:
    """Vocabularies that mark continuations or ends of words are spaced as they decode whole."""
    tokenizer = verbatim("<unk>", *words, decoder=decoder)
    ids = data.draw(st.lists(st.integers(1, len(words)), min_size=1))

    pieces = read(tokenizer.stream([]), ids)

    assert joined(pieces) == tokenizer.decode(ids)
    assert counted(pieces) == len(ids)


def test_decoder_that_rewrites_across_tokens_cannot_take_text_back() -> None:
    """A space that the decoder would delete with the next token stays: it was shown already."""
    decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(" .", ".")])
    tokenizer = verbatim("a", " ", ".", decoder=decoder)

    assert joined(read(tokenizer.stream([0]), [1, 2])) == " ."


def test_tokens_without_text_are_counted_with_the_next() -> None:
    """Special tokens and ids past the vocabulary write nothing and are counted once."""
    tokenizer = named("byte-level")
    vocab = {token: token_id for token_id, token in tokenizer.vocab.items()}
    silent = [vocab["<|end|>"], 100_000]
    word = vocab["a"]

    pieces = read(tokenizer.stream([word]), [word, *silent, word, *silent])

    assert pieces == [TextPiece("a", 1), TextPiece("a", 3), TextPiece("", 2)]


def test_t06_end_token_has_no_text_even_if_it_is_a_word() -> None:
    """An end token that is no special token leaves the text alone, after cut bytes too."""
    tokenizer = verbatim("a", "<end>", "b")

    assert read(tokenizer.stream([0], (), frozenset({1})), [2, 1]) == [
        TextPiece("b", 1),
        TextPiece("", 1),
    ]
    level = named("byte-level")
    lead, end = byte_ids(level, b"\xe6.")
    assert read(level.stream([end], (), frozenset({end})), [lead, end]) == [TextPiece("", 2)]
