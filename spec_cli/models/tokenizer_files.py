"""The tokenizer in a model folder, loaded before any weight."""

import json
from typing import TYPE_CHECKING

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer
from transformers.utils import is_protobuf_available

from spec_cli.models.checkpoint import ModelFiles, read_json
from spec_cli.models.folder_part import read_part
from spec_cli.models.gguf_header import read_gguf_header

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Pre-tokenizers, as named in GGUF files, that set digits apart before the rule of GPT-2.
# transformers 5.24 knows nothing of the name and applies the rule of GPT-2 alone, which splits the
# spaces before a number otherwise than in training: "a  1" became "a", " ", " ", "1".
_DIGITS_APART = frozenset({"smollm"})

# Older multimodal folders keep their chat template here, where only their processors look.
_PROCESSOR_TEMPLATE = "chat_template.json"


def load_tokenizer(
    files: ModelFiles, *, trust_remote_code: bool = False
) -> "PreTrainedTokenizerBase":
    """Load a folder's tokenizer, whether it is tokenizer.json, tokenizer.model or GGUF metadata.

    Args:
        files: The model's files.
        trust_remote_code: Allow Python code from the folder to run.

    Raises:
        UntrustedCodeError: The folder wants to run code without permission.
        ModelUnavailableError: The folder has no tokenizer that can be loaded, or its
            chat_template.json is broken.
    """
    tokenizer: PreTrainedTokenizerBase = read_part(
        AutoTokenizer,
        files,
        f"The tokenizer of {files.name} in {files.path}",
        trust_remote_code=trust_remote_code,
        hint=_hint(files),
    )
    if files.gguf_file is not None:
        _repair_pre_tokenizer(tokenizer, files)
    elif tokenizer.chat_template is None and (files.path / _PROCESSOR_TEMPLATE).is_file():
        tokenizer.chat_template = read_json(files.path / _PROCESSOR_TEMPLATE).get("chat_template")
    return tokenizer


def _hint(files: ModelFiles) -> str:
    needs_protobuf = (files.path / "tokenizer.model").is_file()
    if needs_protobuf and not is_protobuf_available():
        return "pip install protobuf   (tokenizer.model is read with it)"
    return "The folder needs tokenizer.json or tokenizer.model; fetch the model again."


def _repair_pre_tokenizer(tokenizer: "PreTrainedTokenizerBase", files: ModelFiles) -> None:
    settings = read_gguf_header(files.path / str(files.gguf_file)).settings
    if settings.get("tokenizer.ggml.pre") not in _DIGITS_APART:
        return
    backend = tokenizer.backend_tokenizer
    state = json.loads(backend.to_str())["pre_tokenizer"]
    # Only the known shortcoming is repaired; a later transformers may know the name.
    if state is not None and state["type"] == "ByteLevel":
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
