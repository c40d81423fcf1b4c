import warnings

import pytest
from transformers import modeling_gguf_pytorch_utils as gguf_loading
from transformers.utils import logging as transformers_logging

from spec_cli.models.quiet import quiet_transformers


def make_noise():
    warnings.warn("a deprecation", FutureWarning, stacklevel=1)
    transformers_logging.get_logger("transformers.modeling_utils").error("noise")
    list(transformers_logging.tqdm(range(3)))
    list(gguf_loading.tqdm(range(3)))
    raise RuntimeError("after the noise")


def test_libraries_are_silent_and_restored(capsys):
    """Warnings, logs and bars of the libraries are silent inside, and as before after an error."""
    before = (
        transformers_logging.get_verbosity(),
        transformers_logging.is_progress_bar_enabled(),
        gguf_loading.tqdm,
    )

    with pytest.raises(RuntimeError, match="after the noise"), quiet_transformers():
        make_noise()

    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    after = (
        transformers_logging.get_verbosity(),
        transformers_logging.is_progress_bar_enabled(),
        gguf_loading.tqdm,
    )
    assert after == before
