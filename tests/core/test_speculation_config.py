"""Who guesses, and which options mean something to whom."""

from pathlib import Path
from typing import Any

import pytest

from spec_cli.core.config import EngineConfig
from spec_cli.core.errors import UsageError


@pytest.mark.parametrize(
    ("options", "proposer"),
    [
        ({}, "suffix"),
        ({"lookup_corpus": Path("notes")}, "suffix"),
        ({"ngram_max": 4}, "ngram"),
        ({"ngram_min": 2}, "ngram"),
        ({"draft_model": "d"}, "hybrid"),
        ({"draft_model": "d", "lookup_corpus": Path("notes"), "draft_p_min": 0.2}, "hybrid"),
        ({"draft_model": "d", "spec": "draft"}, "draft"),
        ({"draft_model": "d", "spec": "off"}, "off"),
        ({"spec": "ngram"}, "ngram"),
    ],
)
def test_auto(options: dict[str, Any], proposer: str) -> None:
    """Auto is the hybrid with a draft model, else lookup; n-gram sizes ask for n-grams."""
    config = EngineConfig(**options)

    assert config.proposer == proposer
    assert config.uses_draft_model == (proposer in ("draft", "hybrid"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"spec": "hybrid"}, "spec hybrid"),
        ({"spec": "draft"}, "spec draft"),
        ({"spec": "suffix", "draft_model": "d"}, "spec suffix"),
        ({"spec": "ngram", "draft_model": "d"}, "spec ngram"),
        ({"spec": "suffix", "ngram_max": 3}, "ngram_max"),
        ({"spec": "suffix", "draft_p_min": 0.1}, "draft_p_min"),
        ({"draft_model": "d", "ngram_min": 1}, "ngram_min"),
        ({"spec": "ngram", "lookup_corpus": Path("x")}, "lookup_corpus"),
        ({"spec": "draft", "draft_model": "d", "lookup_corpus": Path("x")}, "lookup_corpus"),
        ({"spec": "off", "lookup_corpus": Path("x")}, "lookup_corpus"),
        ({"spec": "off", "k_schedule": "1-:2"}, "k_schedule"),
        ({"spec": "suffix", "draft_trust_remote_code": True}, "draft_trust_remote_code"),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], named: str) -> None:
    """The message names what would be ignored."""
    with pytest.raises(UsageError, match=named):
        EngineConfig(**options)


def test_speculation_can_change_the_corpus() -> None:
    """The corpus belongs to the way of speculating, not to the target."""
    config = EngineConfig().with_speculation(lookup_corpus=Path("notes"))

    assert config.lookup_corpus == Path("notes")
