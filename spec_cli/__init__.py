"""Speculative decoding for local language models.

The public names are loaded on first use, so that importing this package loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spec_cli.core.errors import SpecCliError
    from spec_cli.core.events import TextDelta
    from spec_cli.core.outputs import CompletionOutput, RequestOutput
    from spec_cli.core.params import SamplingParams
    from spec_cli.llm import LLM

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "CompletionOutput",
    "RequestOutput",
    "SamplingParams",
    "SpecCliError",
    "TextDelta",
    "__version__",
]

_HOMES = {
    "LLM": "spec_cli.llm",
    "CompletionOutput": "spec_cli.core.outputs",
    "RequestOutput": "spec_cli.core.outputs",
    "SamplingParams": "spec_cli.core.params",
    "SpecCliError": "spec_cli.core.errors",
    "TextDelta": "spec_cli.core.events",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return list(__all__)
