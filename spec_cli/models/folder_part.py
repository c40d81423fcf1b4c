"""What transformers reads from a model's folder beside the weights: config and tokenizer."""

from typing import Any

from spec_cli.core.errors import ModelUnavailableError, first_line
from spec_cli.models.checkpoint import ModelFiles, refuse_untrusted_code
from spec_cli.models.quiet import quiet_transformers


def read_part(
    auto_class: Any, files: ModelFiles, what: str, *, trust_remote_code: bool, hint: str
) -> Any:
    """Let an auto class read its part of a folder, or of a GGUF file.

    Args:
        auto_class: `AutoConfig` or `AutoTokenizer`.
        files: The model's files.
        what: The part, with its path, for the message of a failure.
        trust_remote_code: Allow Python code from the folder to run.
        hint: What to try when it fails.

    Raises:
        UntrustedCodeError: The folder wants to run code without permission.
        ModelUnavailableError: The part is missing or broken.
    """
    refuse_untrusted_code(files, trust_remote_code=trust_remote_code)
    extra = {} if files.gguf_file is None else {"gguf_file": files.gguf_file}
    try:
        with quiet_transformers():
            return auto_class.from_pretrained(
                str(files.path),
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                **extra,
            )
    except Exception as error:
        # Hundreds of config classes and parsers of four formats fail, each in its own ways.
        raise ModelUnavailableError(
            f"{what} cannot be loaded: {first_line(error)}", hint=hint
        ) from error
