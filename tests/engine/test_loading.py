"""What weights, their copies and caches may take together."""

from pathlib import Path
from typing import Any

import pytest

from spec_cli.llm import LLM
from tests.folders import save_text_model, text_config

PLENTY = 100_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = text_config(tie_word_embeddings=True)
    return save_text_model(tmp_path_factory.mktemp("model"), config)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"draft": True}])
def test_memory_counts_weights_with_their_copies(
    folder: Path, dtype: str, options: dict[str, Any]
) -> None:
    """--memory less both models' weights, those of copies too, is what caches may take."""
    draft = str(folder) if options.get("draft") else None
    with LLM(str(folder), dtype=dtype, memory_bytes=PLENTY, draft_model=draft) as llm:
        models = [llm.assembly.target, llm.assembly.draft]
        taken = sum(model.weight_bytes for model in models if model is not None)
        assert llm.assembly.target.copy_bytes > 0  # of the tied head at least
        assert llm.assembly.engine.parts.budget.total_bytes == PLENTY - taken


def test_too_little_memory_for_copies_is_told(folder: Path) -> None:
    """Where --memory leaves no room for float32 copies, a notice names what they would need."""
    with LLM(str(folder), dtype="bfloat16") as llm:
        if not llm.assembly.target.copy_bytes > llm.assembly.target.num_bytes:
            pytest.skip("this CPU has instructions for bfloat16, so nothing is copied")
        num_bytes, copy_bytes = llm.assembly.target.num_bytes, llm.assembly.target.copy_bytes
        assert llm.assembly.notices == ()
    with LLM(str(folder), dtype="bfloat16", memory_bytes=num_bytes + 2 * copy_bytes - 2) as llm:
        (notice,) = llm.assembly.notices
        assert "no instructions for bfloat16" in notice
        assert llm.assembly.target.copy_bytes == 0
    with LLM(str(folder), dtype="bfloat16", memory_bytes=num_bytes + 2 * copy_bytes) as llm:
        assert llm.assembly.notices == ()
        assert llm.assembly.target.copy_bytes == copy_bytes
