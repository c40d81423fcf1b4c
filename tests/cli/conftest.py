"""Tiny models in folders, saved once for all tests of the command line."""

from pathlib import Path

import pytest

from tests.folders import save_text_model, text_config


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama that writes bytes, with a chat template."""
    return save_text_model(tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with room for an answer that takes a while."""
    config = text_config(max_position_embeddings=100_000)
    return save_text_model(tmp_path_factory.mktemp("models") / "endless", config)
