"""Configurations and the proposers they make; texts of the user's to look up in."""

from pathlib import Path
from typing import Any

import pytest

from spec_cli.core.errors import UsageError
from spec_cli.engine.corpus import read_corpus
from spec_cli.engine.guessing import MeasuredPrices
from spec_cli.llm import LLM
from spec_cli.models.tokenizer import TextTokenizer
from spec_cli.policy.cost import CostModel
from spec_cli.policy.surface import CostPrior
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.hybrid import HybridProposer
from spec_cli.proposers.ngram import NgramProposer
from spec_cli.proposers.suffix import SuffixProposer
from tests.folders import save_text_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_text_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def tokenizer(folder: str) -> TextTokenizer:
    with LLM(folder, spec="off") as llm:
        return llm.assembly.tokenizer


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, SuffixProposer),
        ({"spec": "ngram"}, NgramProposer),
        ({"spec": "hybrid", "has_draft": True}, HybridProposer),
        ({"has_draft": True}, HybridProposer),
        ({"has_draft": True, "verify": "rejection", "num_draft_tokens": 3}, HybridProposer),
        ({"has_draft": True, "k_schedule": "1-:2"}, HybridProposer),
        ({"spec": "draft", "has_draft": True}, DraftModelProposer),
    ],
)
def test_proposers(folder: str, options: dict[str, Any], kind: type) -> None:
    """Each way to speculate builds its proposer, and answers."""
    options = dict(options)
    draft = folder if options.pop("has_draft", False) else None
    with LLM(folder, draft_model=draft, **options) as llm:
        (output,) = llm.generate("hello", llm.default_params(max_tokens=24, temperature=0))

        assert isinstance(llm.assembly.engine.parts.proposer, kind)
        assert output.outputs[0].token_ids
        assert llm.assembly.spec == llm.config.proposer


def test_auto_asks_a_draft_model_for_eight_tokens_and_a_schedule_for_its_own(folder: str) -> None:
    """A draft model that is always right drafts 8 at a time by itself, and 20 where told to."""
    with LLM(folder, draft_model=folder, spec="draft") as llm:
        params = llm.default_params(max_tokens=200, temperature=0, ignore_eos=True)
        for schedule, longest in ((None, 8), ("1-:20", 20)):
            llm.speculate(k_schedule=schedule)
            (output,) = llm.generate("hello", params)
            assert output.stats.num_accepted_draft_tokens == output.stats.num_draft_tokens
            assert len(output.stats.drafted_per_position) <= longest
        assert len(output.stats.drafted_per_position) == 20


def test_a_corpus_is_looked_up(folder: str, tmp_path: Path) -> None:
    """An answer that the corpus holds is drafted from it; the notice says what was read."""
    with LLM(folder, spec="off") as llm:
        params = llm.default_params(max_tokens=30, temperature=0)
        (plain,) = llm.generate("hello", params)
    text = tmp_path / "notes.txt"
    text.write_text(plain.prompt + plain.outputs[0].text, encoding="utf-8")
    with LLM(folder, lookup_corpus=text, num_draft_tokens=4) as llm:
        (drafted,) = llm.generate("hello", params)

        assert any("lookup corpus" in notice for notice in llm.assembly.notices)
    assert drafted.outputs[0].token_ids == plain.outputs[0].token_ids


def test_a_folder_is_read_in_order(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    """Text files at any depth are read by name; hidden, empty and binary ones are not."""
    (tmp_path / "deep").mkdir()
    (tmp_path / ".git").mkdir()
    for name, content in {
        "b.txt": b"hello",
        "deep/a.md": b"world",
        ".git/config": b"secret",
        "empty": b"",
        "image.png": b"\x89PNG\xff\xfe\x00",
    }.items():
        (tmp_path / name).write_bytes(content)
    corpus = read_corpus(tmp_path, tokenizer)

    assert list(corpus.texts) == [tokenizer.encode("hello"), tokenizer.encode("world")]
    assert "tokens of 2 files;" in corpus.notice
    assert "; 2 files left out, without text or room." in corpus.notice


def test_a_corpus_is_cut(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    """What is over the limit is left out, and said to be; a cut character is no fault."""
    (tmp_path / "a.txt").write_text("häß" * 200, encoding="utf-8")
    (tmp_path / "b.txt").write_text("more", encoding="utf-8")
    corpus = read_corpus(tmp_path, tokenizer, max_tokens=10)

    assert [len(text) for text in corpus.texts] == [10]
    assert "cut at 10 tokens" in corpus.notice
    assert "; 1 file left out" in corpus.notice


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\xff"])
def test_a_corpus_without_text_is_refused(
    tokenizer: TextTokenizer, tmp_path: Path, content: bytes | None
) -> None:
    """A path that does not exist or holds no text is an error that names it."""
    path = tmp_path / "notes"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(UsageError, match=r"lookup_corpus.*notes"):
        read_corpus(path, tokenizer)


def test_measured_prices() -> None:
    """With more rows a verified token takes more of a row's share; prices follow the costs."""
    target = CostPrior(0.02, 0.0008, 0.0002)
    cost = CostModel(target, CostPrior(0.004, 0.0001, 0.0))
    prices = MeasuredPrices(cost)

    assert prices(1).verified_token == pytest.approx(0.0008 / 0.021, rel=0.05)
    assert prices(8).verified_token > 4 * prices(1).verified_token
    assert 0.1 < prices(1).draft_pass < 0.3
    assert prices(1) is prices(1)
