"""Stop strings over token and step boundaries, and their place before commit."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request, StopChecker
from spec_cli.models.text import TextPiece, TextStream, TextStreams
from tests.models.small_tokenizers import named, verbatim

LETTERS = verbatim("a", "b", "c", "aa", "ab", "ba", "abc", "bca", "caab", "cabcab")
WORDS = LETTERS.vocab
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=3).map(tuple)
TOKENS = st.lists(st.sampled_from(sorted(WORDS)), max_size=16)


def run(stream: TextStream, token_ids: list[int]) -> tuple[list[TextPiece], int, bool]:
    """Pieces, tokens kept, and whether a stop string ended it."""
    pieces: list[TextPiece] = []
    for index, token_id in enumerate(token_ids):
        is_stopped = stream.push(token_id)
        pieces += stream.take()
        if is_stopped:
            return pieces + stream.finish(), index + 1, True
    return pieces + stream.finish(), len(token_ids), False


def joined(pieces: list[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


def first_complete(text: str, stop: tuple[str, ...]) -> tuple[int, int] | None:
    """End and start of the stop string complete first, by looking at every prefix."""
    for end in range(1, len(text) + 1):
        starts = [end - len(string) for string in stop if text[:end].endswith(string)]
        if starts:
            return end, min(starts)
    return None


def request(prompt: list[int], *stop: str, request_id: str = "r") -> Request:
    params = SamplingParams(stop=stop)
    return Request(request_id, tuple(prompt), params, 0, frozenset())


@pytest.mark.parametrize("step", [1, 4])
def test_t04_start_of_a_stop_string_is_not_shown(step: int) -> None:
    """The text before a stop string cut into tokens is all that is ever shown."""
    tokenizer = verbatim("Hello", " E", "ND", "ING", " more")
    streams = TextStreams(tokenizer)
    streams.start(request([0], "ENDING"))
    script = (0, 1, 2, 3, 4)

    kept, is_stopped, shown = 0, False, ""
    while not is_stopped and kept < len(script):
        count, is_stopped = streams.keep("r", script[kept : kept + step])
        kept += count
        shown += joined(streams.take("r"))
    shown += joined(streams.close("r"))

    assert (shown, kept) == ("Hello ", 4)


def test_t04_only_a_true_tail_is_held() -> None:
    """Text that cannot begin a stop string appears with its own token, and a false start after."""
    tokenizer = verbatim("Hello", " E", "ND", "Less")
    stream = tokenizer.stream([0], ("ENDING",))

    shown = []
    for token_id in [0, 1, 2, 3]:
        stream.push(token_id)
        shown.append(stream.take())

    assert shown == [
        [TextPiece("Hello", 1)],
        [TextPiece(" ", 0)],
        [],
        [TextPiece("E", 1), TextPiece("ND", 1), TextPiece("Less", 1)],
    ]


def test_t04_held_text_is_released_at_the_end() -> None:
    """An answer that ends with the start of a stop string keeps it."""
    tokenizer = verbatim("Hello", " E", "ND")

    pieces, kept, is_stopped = run(tokenizer.stream([0], ("ENDING",)), [0, 1, 2])

    assert (joined(pieces), kept, is_stopped) == ("Hello END", 3, False)
    assert pieces[-2:] == [TextPiece("E", 1), TextPiece("ND", 1)]


@pytest.mark.parametrize(
    ("stop", "text", "kept"),
    [
        (("ND", "ENDING"), "Hello E", 3),  # complete first
        (("NDI", "ENDI"), "Hello ", 4),  # complete together: the one that starts first
        (("G", "ND"), "Hello E", 3),
        (("xyz", "lo"), "Hel", 1),  # inside one token
        ((" more", "mor"), "Hello ENDING ", 5),  # complete first, though both in one token
    ],
)
def test_t04_first_complete_stop_string_wins(stop: tuple[str, ...], text: str, kept: int) -> None:
    """Of several stop strings of any length, the one complete first ends the text."""
    tokenizer = verbatim("Hello", " E", "ND", "ING", " more")

    pieces, num_kept, is_stopped = run(tokenizer.stream([0], stop), [0, 1, 2, 3, 4])

    assert (joined(pieces), num_kept, is_stopped) == (text, kept, True)


@given(token_ids=TOKENS, stop=STOPS)
@settings(deadline=None, max_examples=300)
def test_text_ends_where_a_search_of_the_whole_says(
    token_ids: list[int], stop: tuple[str, ...]
) -> None:
    """For any tokens and stop strings the text, the last token and the count are exact."""
    pieces, kept, is_stopped = run(LETTERS.stream([0], stop), token_ids)

    text = "".join(WORDS[token_id] for token_id in token_ids)
    match = first_complete(text, stop)
    assert is_stopped == (match is not None)
    assert joined(pieces) == (text if match is None else text[: match[1]])
    if match is not None:
        lengths = [len("".join(WORDS[i] for i in token_ids[:n])) for n in range(kept + 1)]
        assert lengths[kept - 1] < match[0] <= lengths[kept]
    assert sum(piece.num_tokens for piece in pieces) == kept


@given(token_ids=TOKENS, stop=STOPS)
@settings(deadline=None, max_examples=300)
def test_text_ends_at_the_earliest_find(token_ids: list[int], stop: tuple[str, ...]) -> None:
    """Unless one stop string lies inside another, the cut is where the earliest one is found."""
    assume(not any(a in b for a in stop for b in stop if a != b))
    text = "".join(WORDS[token_id] for token_id in token_ids)
    found = [text.find(string) for string in stop if string in text]

    pieces, _, _ = run(LETTERS.stream([0], stop), token_ids)

    assert joined(pieces) == (text[: min(found)] if found else text)


@given(token_ids=TOKENS, stop=STOPS)
@settings(deadline=None, max_examples=300)
def test_exactly_the_claimed_tail_is_held(token_ids: list[int], stop: tuple[str, ...]) -> None:
    """While no stop string is complete, just the longest tail that begins one is missing."""
    stream = LETTERS.stream([0], stop)
    text = shown = ""
    for token_id in token_ids:
        text += WORDS[token_id]
        if stream.push(token_id):
            break
        shown += joined(stream.take())
        claims = [n for string in stop for n in range(1, len(string)) if text.endswith(string[:n])]
        assert shown == text[: len(text) - max(claims, default=0)]


@given(token_ids=TOKENS)
@settings(deadline=None, max_examples=50)
def test_one_piece_per_token_without_stop_strings(token_ids: list[int]) -> None:
    """A vocabulary of whole characters gives each token its own piece."""
    pieces, _, _ = run(LETTERS.stream([0]), token_ids)

    assert pieces == [TextPiece(WORDS[token_id], 1) for token_id in token_ids]


def test_prompt_and_answer_make_no_stop_string_together() -> None:
    """A stop string begun by the prompt does not end the answer."""
    pieces, _, is_stopped = run(LETTERS.stream([0, 1], ("abc",)), [2])

    assert (joined(pieces), is_stopped) == ("c", False)


def test_s01_streams_keep_tokens_up_to_the_stop_string() -> None:
    """Of a block only the tokens up to the end of a stop string are kept, at every index."""
    for position in range(5):
        streams = TextStreams(LETTERS)
        streams.start(request([0], "bc"))
        block = [0] * 5
        block[position] = 7  # "bca"

        assert streams.keep("r", tuple(block)) == (position + 1, True)
        streams.finish("r")
        pieces = streams.take("r") + streams.close("r")
        assert joined(pieces) == "a" * position
        assert sum(piece.num_tokens for piece in pieces) == position + 1


def test_streams_of_requests_do_not_mix() -> None:
    """Each request has its own text and stop strings, and its text outlives the engine's finish."""
    streams = TextStreams(LETTERS)
    checker: StopChecker = streams
    checker.start(request([0], "cc", request_id="x"))
    checker.start(request([0], request_id="y"))

    assert checker.keep("x", (0, 2)) == (2, False)
    assert checker.keep("y", (2, 2)) == (2, False)
    checker.finish("x")

    assert joined(streams.take("x")) == "a"
    assert streams.close("x") == [TextPiece("c", 1)]
    assert joined(streams.close("y")) == "cc"
    with pytest.raises(KeyError):
        streams.take("x")


def test_empty_block_changes_nothing() -> None:
    """No tokens to read means none to keep."""
    streams = TextStreams(LETTERS)
    streams.start(request([0], "a"))

    assert streams.keep("r", ()) == (0, False)
    assert streams.close("r") == []


def test_stop_string_is_found_with_the_last_byte_of_its_character() -> None:
    """A stop string of a character in several tokens is complete with the last of them."""
    tokenizer = named("byte-level")
    answer = tokenizer.encode("a\u6771b")[1:]

    pieces, kept, is_stopped = run(tokenizer.stream([answer[0]], ("\u6771",)), answer)

    assert (joined(pieces), is_stopped) == ("a", True)
    assert tokenizer.decode(answer[:kept]) == "a\u6771"
