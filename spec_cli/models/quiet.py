"""Transformers without its output: what matters is said by us, once and in our words."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from transformers import modeling_gguf_pytorch_utils as gguf_loading
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence logging, progress bars and Python warnings of the libraries; restore all after."""
    verbosity = transformers_logging.get_verbosity()
    had_bars = transformers_logging.is_progress_bar_enabled()
    # The old GGUF path draws with tqdm itself, past every switch of the library.
    gguf_bar = gguf_loading.tqdm
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers_logging.set_verbosity(logging.CRITICAL)
        transformers_logging.disable_progress_bar()
        gguf_loading.tqdm = partial(gguf_bar, disable=True)
        try:
            yield
        finally:
            gguf_loading.tqdm = gguf_bar
            transformers_logging.set_verbosity(verbosity)
            if had_bars:
                transformers_logging.enable_progress_bar()
