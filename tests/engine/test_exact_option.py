"""`exact` from the configuration to the notice, and where it is refused."""

import pytest
from transformers import MixtralConfig

from spec_cli.core.config import EngineConfig
from spec_cli.core.errors import UsageError
from spec_cli.llm import LLM
from spec_cli.models.runner import ModelRunner
from tests.folders import save_text_model, text_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_text_model(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tokens_are_those_of_the_target_alone(folder: str, dtype: str) -> None:
    """With --exact, drafts change no token; the notice says what is done."""
    texts = {}
    for spec, k in (("off", "auto"), ("suffix", 4), ("ngram", 3)):
        with LLM(folder, exact=True, dtype=dtype, spec=spec, num_draft_tokens=k) as llm:  # type: ignore[arg-type]
            params = llm.default_params(max_tokens=24, temperature=1.0, seed=3)
            outputs = llm.generate(["hello", "a longer prompt a longer"], params)
            texts[spec] = [output.outputs[0].token_ids for output in outputs]

            assert any(notice.startswith("exact: ") for notice in llm.assembly.notices)
            runner = llm.assembly.engine.parts.target
            assert isinstance(runner, ModelRunner)
            assert runner.shapes is not None

    assert texts["suffix"] == texts["off"]
    assert texts["ngram"] == texts["off"]


def test_without_it_forwards_have_their_own_shapes(folder: str) -> None:
    """It is off unless asked for."""
    with LLM(folder) as llm:
        runner = llm.assembly.engine.parts.target

        assert isinstance(runner, ModelRunner)
        assert runner.shapes is None


def test_rejection_is_refused() -> None:
    """With rejection the text depends on the drafts, so nothing exact could be promised."""
    with pytest.raises(UsageError, match="exact needs verify coupled"):
        EngineConfig(exact=True, verify="rejection")


def test_a_mixture_of_experts_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The reason is given before the first token."""
    shape = text_config().to_dict()
    kept = (
        *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "intermediate_size", "max_position_embeddings"),
        *("bos_token_id", "eos_token_id"),
    )
    config = MixtralConfig(
        **{name: shape[name] for name in kept}, num_local_experts=4, num_experts_per_tok=2
    )
    folder = save_text_model(tmp_path_factory.mktemp("mixture"), config)

    with pytest.raises(UsageError, match="mixture of experts"):
        LLM(str(folder), exact=True)
