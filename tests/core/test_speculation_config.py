"""Who guesses, and which options mean something to whom."""

from pathlib import Path
from typing import Any

import pytest

from spec_cli.core.config import EngineConfig, Spec
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


EVERYTHING = EngineConfig(
    draft_model="d",
    draft_revision="r",
    draft_device="cpu",
    draft_p_min=0.2,
    draft_trust_remote_code=True,
    lookup_corpus=Path("notes"),
    num_draft_tokens=4,
)


@pytest.mark.parametrize("spec", ["auto", "ngram", "draft", "suffix", "hybrid", "off"])
def test_another_way_keeps_what_means_something_to_it(spec: Spec) -> None:
    """Any way can follow any other: options without effect there are left out, no others."""
    config = EVERYTHING.with_spec(spec, draft_model="d")

    uses_draft = spec in ("auto", "draft", "hybrid")
    assert config.spec == spec
    assert config.draft_source == (EVERYTHING.draft_source if uses_draft else config.draft_source)
    assert (config.lookup_corpus is not None) == (spec in ("auto", "suffix", "hybrid"))
    assert (config.draft_p_min is not None) == uses_draft
    assert config.num_draft_tokens == ("auto" if spec == "off" else 4)
    assert EVERYTHING.with_speculation(**config.speculation) == config


def test_auto_without_the_draft_model_is_lookup() -> None:
    """Without a draft model, `auto` is what it is for those who never named one."""
    config = EVERYTHING.with_spec("auto", draft_model=None)

    assert config.proposer == "suffix"
    assert (config.draft_model, config.draft_trust_remote_code) == (None, False)


def test_a_way_that_needs_a_draft_model() -> None:
    """Without one it is refused."""
    with pytest.raises(UsageError, match="needs a draft model"):
        EVERYTHING.with_spec("hybrid", draft_model=None)
