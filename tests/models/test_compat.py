import pytest

from spec_cli.core.errors import DraftIncompatibleError
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.compat import TokenizerView, check_pair, tokenizer_view
from spec_cli.models.model_config import read_config
from spec_cli.models.tokenizer_files import load_tokenizer
from tests.models.model_folders import llama_config, save_tokenizer

WORDS = [f"w{index}" for index in range(36)]


def view(name="target", words=WORDS, rows=36, eos=(2,)):
    return TokenizerView(name, dict(enumerate(words)), rows, frozenset(eos))


def view_of(folder, words, **config):
    llama_config(**config).save_pretrained(folder)
    save_tokenizer(folder, words)
    files = ModelFiles(name=folder.name, path=folder)
    return tokenizer_view(folder.name, load_tokenizer(files), read_config(files))


def test_equal_tokenizers_fit():
    """The same map from two folders fits, with nothing to tell and nothing to mask."""
    report = check_pair(view("a"), view("b"))

    assert (report.tokenizer_ids, report.notices, report.never_propose) == (36, (), ())


def test_d01_padding_fits(tmp_path):
    """Other padding fits: the three numbers are told, and padding rows are never proposed."""
    target = view_of(tmp_path / "target", WORDS, vocab_size=48)
    draft = view_of(tmp_path / "draft", WORDS, vocab_size=40)

    report = check_pair(target, draft)

    assert (report.tokenizer_ids, report.target_rows, report.draft_rows) == (36, 48, 40)
    assert report.never_propose == (36, 37, 38, 39)
    (notice,) = report.notices
    assert all(number in notice for number in ("36", "48", "40"))


def test_draft_with_more_rows_than_the_target():
    """Rows of the draft past the target's are never proposed."""
    report = check_pair(view(rows=36), view("draft", rows=64))

    assert report.never_propose == tuple(range(36, 64))


def test_d03_swapped_ids_are_refused(tmp_path):
    """Two ids swapped is an error with the first of them, both texts, and how many ids agree."""
    swapped = WORDS[:32]
    swapped[5], swapped[6] = swapped[6], swapped[5]
    target = view_of(tmp_path / "target", WORDS[:32])
    draft = view_of(tmp_path / "draft", swapped)

    with pytest.raises(DraftIncompatibleError) as caught:
        check_pair(target, draft)

    message = str(caught.value)
    assert "first differing id: 5  ('w5' vs 'w6')" in message
    assert "ids that agree: 30 of 32" in message
    assert target.digest in message
    assert draft.digest in message
    assert target.digest != draft.digest
    assert "--spec ngram" in str(caught.value.hint)
    assert caught.value.exit_code == 4


def test_d03_other_end_token_is_told():
    """The same map with another end token fits, with a notice that names both."""
    report = check_pair(view(eos=(2, 5)), view("draft", eos=(2,)))

    (notice,) = report.notices
    assert "2 ('w2'), 5 ('w5') in the target, 2 ('w2') in the draft" in notice


def test_ids_of_one_side_are_masked():
    """Ids that only one side has fit, are told, and are never proposed."""
    target, draft = view(words=WORDS[:30], rows=40), view("draft", rows=40)

    assert check_pair(target, draft).never_propose == tuple(range(30, 40))
    assert "30 ('w30')" in check_pair(target, draft).notices[0]
    assert check_pair(draft, target).never_propose == tuple(range(30, 40))


def test_nothing_in_common_is_refused():
    """Tokenizers without a common id are refused."""
    high = TokenizerView("draft", {100: "x"}, 101, frozenset())

    with pytest.raises(DraftIncompatibleError, match="no token id in common"):
        check_pair(view(), high)


def test_added_tokens_are_compared(tmp_path):
    """Tokens added to a tokenizer count like the others."""
    target = view_of(tmp_path / "target", WORDS[:10], vocab_size=12)
    files = ModelFiles(name="draft", path=tmp_path / "target")
    tokenizer = load_tokenizer(files)
    tokenizer.add_tokens(["<think>"])
    draft = tokenizer_view("draft", tokenizer, read_config(files))

    assert draft.vocab[10] == "<think>"
    assert check_pair(target, draft).never_propose == (10, 11)


def test_end_token_of_the_tokenizer_fills_a_gap(tmp_path):
    """Where the config names no end token, the tokenizer's counts."""
    assert view_of(tmp_path / "a", WORDS, eos_token_id=None).eos_ids == {2}
    assert view_of(tmp_path / "b", WORDS, eos_token_id=[3, 4]).eos_ids == {3, 4}
