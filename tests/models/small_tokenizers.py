"""Real tokenizers, small enough to build in a test."""

import io
from functools import cache

import sentencepiece
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from spec_cli.models.tokenizer import TextTokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and then the dog jumps too.",
    "Hello there! Well, hello again; all the other words are here as well.",
    "def add(a, b):\n    return a + b\n",
    "déjà vu, naïve café, 東京 and 😀 smile",
]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def wrap(tokenizer: Tokenizer, **options) -> PreTrainedTokenizerBase:
    """As transformers loads it, with `<s>` and `</s>` as begin and end unless told otherwise."""
    options = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": None} | options
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def _with_begin(tokenizer: Tokenizer) -> None:
    begin = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", begin)]
    )


def byte_level(*, adds_begin: bool = True) -> PreTrainedTokenizerBase:
    """Byte-level BPE in the manner of GPT-2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if adds_begin:
        _with_begin(tokenizer)
    return wrap(tokenizer, additional_special_tokens=["<|end|>"])


def byte_fallback_bpe() -> PreTrainedTokenizerBase:
    """BPE with byte fallback and a leading space, in the manner of Llama 2."""
    words = ["▁", *"helowrdtma,.", "he", "ll", "hell", "hello", "▁hello", "or", "▁the", "th", "the"]
    pieces = ["<unk>", "<s>", "</s>", *BYTES, *words]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "hello"), ("o", "r")]
    merges += [("t", "h"), ("th", "e"), ("▁", "the")]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = sentencepiece_decoder()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<unk>", "<s>", "</s>")])
    _with_begin(tokenizer)
    return wrap(tokenizer, unk_token="<unk>")


def sentencepiece_decoder() -> decoders.Decoder:
    """Spaces back from ▁, bytes joined, the space before the first word taken off."""
    return decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )


@cache
def sentencepiece_model() -> bytes:
    """A unigram model trained by the sentencepiece library."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 4),
        model_writer=model,
        vocab_size=330,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def unigram() -> PreTrainedTokenizerBase:
    """The sentencepiece model as `tokenizers` runs it."""
    model = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model())
    pieces = [(model.id_to_piece(i), model.get_score(i)) for i in range(model.get_piece_size())]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=model.unk_id(), byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = sentencepiece_decoder()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<unk>", "<s>", "</s>")])
    _with_begin(tokenizer)
    return wrap(tokenizer, unk_token="<unk>")


def verbatim(*words: str, decoder: decoders.Decoder | None = None) -> TextTokenizer:
    """Token i is `words[i]`, written as it stands."""
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=words[0]))
    tokenizer.decoder = decoder or decoders.Fuse()
    return TextTokenizer(wrap(tokenizer, bos_token=None, eos_token=None), "tiny")


@cache
def named(name: str) -> TextTokenizer:
    """One of the three kinds of vocabulary, built once."""
    build = {"byte-level": byte_level, "byte-fallback": byte_fallback_bpe, "unigram": unigram}
    return TextTokenizer(build[name](), name)


KINDS = ["byte-level", "byte-fallback", "unigram"]
