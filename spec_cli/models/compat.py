"""Do a target and a draft mean the same by a token id? Compared before weights are loaded."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec_cli.core.errors import DraftIncompatibleError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class TokenizerView:
    """What decides whether two models can share token ids.

    Attributes:
        name: The model as the user named it.
        vocab: Text of every token id, added tokens included.
        vocab_rows: Rows of the output layer; padding makes them more than the tokens.
        eos_ids: Ids that end an answer.
    """

    name: str
    vocab: dict[int, str]
    vocab_rows: int
    eos_ids: frozenset[int]

    @property
    def digest(self) -> str:
        """Short hash of the vocabulary, to tell tokenizers apart in messages."""
        lines = "\n".join(f"{token_id} {text}" for token_id, text in sorted(self.vocab.items()))
        return hashlib.sha256(lines.encode("utf-8", errors="surrogatepass")).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class PairReport:
    """How a target and a draft that fit together differ.

    Attributes:
        tokenizer_ids: Token ids that both tokenizers have.
        target_rows: Rows of the target's output layer.
        draft_rows: Rows of the draft's output layer.
        never_propose: Rows of the draft that mean no token of both; their scores must be masked.
        notices: Differences worth telling, one sentence each.
    """

    tokenizer_ids: int
    target_rows: int
    draft_rows: int
    never_propose: tuple[int, ...]
    notices: tuple[str, ...]


def tokenizer_view(
    name: str, tokenizer: "PreTrainedTokenizerBase", config: "PreTrainedConfig"
) -> TokenizerView:
    """Take the view of one model from its tokenizer and config.

    The tokenizer's own end token counts only where the config names none: some configs carry ids of
    a family's default that the tokenizer does not use, and the engine goes by the config.
    """
    vocab = {token_id: text for text, token_id in tokenizer.get_vocab().items()}
    vocab_rows = int(config.get_text_config(decoder=True).vocab_size)
    eos = config_end_ids(config) or as_id_set(tokenizer.eos_token_id)
    return TokenizerView(name, vocab, vocab_rows, eos)


def config_end_ids(config: "PreTrainedConfig") -> frozenset[int]:
    """Ids that end an answer, by a config; of a multimodal one, by the whole and by its text."""
    parts = (config, config.get_text_config(decoder=True))
    return frozenset().union(*(as_id_set(getattr(part, "eos_token_id", None)) for part in parts))


def as_id_set(ids: int | list[int] | None) -> frozenset[int]:
    """Token ids of a config field that holds none, one or several."""
    if ids is None:
        return frozenset()
    return frozenset([ids] if isinstance(ids, int) else ids)


def check_pair(target: TokenizerView, draft: TokenizerView) -> PairReport:
    """Compare two tokenizers id by id.

    Raises:
        DraftIncompatibleError: An id that both have means different texts, or none is shared.
    """
    shared = target.vocab.keys() & draft.vocab.keys()
    differing = [token_id for token_id in shared if target.vocab[token_id] != draft.vocab[token_id]]
    if differing or not shared:
        raise _mismatch(target, draft, min(differing, default=None), len(shared) - len(differing))
    usable = {token_id for token_id in shared if token_id < target.vocab_rows}
    never = tuple(row for row in range(draft.vocab_rows) if row not in usable)
    return PairReport(
        tokenizer_ids=len(shared),
        target_rows=target.vocab_rows,
        draft_rows=draft.vocab_rows,
        never_propose=never,
        notices=_notices(target, draft, len(shared)),
    )


def _notices(target: TokenizerView, draft: TokenizerView, num_shared: int) -> tuple[str, ...]:
    notices = []
    if target.vocab_rows != draft.vocab_rows:
        notices.append(
            f"Same tokenizer, other padding: {num_shared:,} token ids,"
            f" {target.vocab_rows:,} rows in the target and {draft.vocab_rows:,} in the draft."
        )
    for lacking, having in ((draft, target), (target, draft)):
        extra = having.vocab.keys() - lacking.vocab.keys()
        if extra:
            first = min(extra)
            notices.append(
                f"{len(extra):,} token ids of {having.name} are unknown to {lacking.name}, the"
                f" first is {first} ({having.vocab[first]!r}); they are never drafted."
            )
    if target.eos_ids != draft.eos_ids:
        notices.append(
            f"End tokens differ: {_ids(target)} in the target, {_ids(draft)} in the draft;"
            " the target's end an answer."
        )
    return tuple(notices)


def _ids(view: TokenizerView) -> str:
    named = [f"{token_id} ({view.vocab.get(token_id)!r})" for token_id in sorted(view.eos_ids)]
    return ", ".join(named) or "none"


def _mismatch(
    target: TokenizerView, draft: TokenizerView, first: int | None, num_equal: int
) -> DraftIncompatibleError:
    width = max(len(target.name), len(draft.name))
    lines = ["draft model does not share the target's tokenizer."]
    for role, view in (("target", target), ("draft", draft)):
        lines.append(
            f"  {role:<6}  {view.name:<{width}}  vocab {len(view.vocab):>9,}"
            f"   (tokenizer {view.digest})"
        )
    if first is None:
        lines.append("  the two have no token id in common")
    else:
        lines.append(
            f"  first differing id: {first}  ({target.vocab[first]!r} vs {draft.vocab[first]!r});"
            f"  ids that agree: {num_equal:,} of {len(draft.vocab):,}"
        )
    return DraftIncompatibleError(
        "\n".join(lines),
        hint="-d MODEL           a smaller model of the target's family (same tokenizer)\n"
        "--spec ngram       (needs no draft model)",
    )
