"""A module imports only from its own room and from rooms below, and a library only at home."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "spec_cli"

LAYERS = {
    "core": 1,
    "sampling": 2,
    "policy": 2,
    "models": 3,
    "proposers": 4,
    "engine": 5,
    "chat": 6,
    "llm": 7,
    "bench": 8,
    "server": 8,
    "ui": 8,
    "cli": 9,
    "__main__": 10,
}
LIBRARIES = {
    "sampling": {"torch"},
    "models": {
        "accelerate",
        "filelock",
        "gguf",
        "huggingface_hub",
        "jinja2",
        "numpy",
        "platformdirs",
        "safetensors",
        "sentencepiece",
        "tokenizers",
        "torch",
        "tqdm",
        "transformers",
    },
    "proposers": {"torch"},
    "engine": {"torch"},
    "llm": {"torch"},
    "bench": {"httpx", "plotext", "pygal", "torch"},
    "server": {"fastapi", "uvicorn"},
    "ui": {"rich"},
    "cli": {"platformdirs", "prompt_toolkit", "rich", "typer"},
}
EMPTY_NAMES = {"common", "helpers", "types", "utils"}


def violations(module: str, source: str) -> list[str]:
    """What breaks the rules in a module of the package, one sentence each.

    Args:
        module: Dotted name below the package: `core.events`, `llm`, or `` for the package itself.
    """
    parts = module.split(".")
    found = [f"the name {part!r} says nothing" for part in parts if part in EMPTY_NAMES]
    if parts[0] not in {"", *LAYERS}:
        return [*found, f"no layer for {parts[0]!r}: add it to LAYERS"]
    for line, name in sorted(_imports(ast.parse(source))):
        complaint = _complaint(parts[0], name)
        if complaint:
            found.append(f"line {line}: {complaint}")
    return found


def _imports(tree: ast.Module) -> set[tuple[int, str]]:
    """Line and dotted name of every import, those for type checking apart."""
    exempt: set[ast.AST] = set()
    found: set[tuple[int, str]] = set()
    for node in ast.walk(tree):  # parents come before their children
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            exempt.update(child for statement in node.body for child in ast.walk(statement))
        elif node in exempt:
            continue
        elif isinstance(node, ast.Import):
            found.update((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found.update((node.lineno, f"{base}.{alias.name}") for alias in node.names)
    return found


def _complaint(room: str, name: str) -> str | None:
    if name.startswith("."):
        return f"relative import {name}"
    top = name.split(".")[0]
    if top == "spec_cli":
        return _inner_complaint(room, name)
    if top in sys.stdlib_module_names or top in LIBRARIES.get(room, set()):
        return None
    homes = sorted(home for home, libraries in LIBRARIES.items() if top in libraries)
    return f"{top} is at home only in {homes}" if homes else f"no home for {top}: see LIBRARIES"


def _inner_complaint(room: str, name: str) -> str | None:
    target = name.partition(".")[2].partition(".")[0]
    if target == "__version__" or target == room:
        return None
    target = target if target in LAYERS else "llm"  # the public API stands on llm
    if room == "ui" and target != "core":
        return f"ui imports only core, not {name}"
    if LAYERS.get(room, 0) <= LAYERS[target]:
        return f"{room or 'the package itself'} may not import {name}: not a layer below"
    return None


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_keeps_to_its_layer(path: Path) -> None:
    """Every module of the package keeps the rules."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    module = ".".join(part for part in parts if part != "__init__")

    found = violations(module, path.read_text(encoding="utf-8"))

    assert not found, f"{path.relative_to(PACKAGE.parent)}: " + "; ".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.events", "import torch"),
        ("core.events", "from spec_cli.sampling.verify import verify"),
        ("core.events", "from spec_cli import LLM"),
        ("core.events", "def load():\n    import rich"),
        ("policy.base", "import torch.nn"),
        ("policy.base", "from spec_cli.sampling import noise"),
        ("sampling.verify", "from transformers import Cache"),
        ("engine.engine", "import huggingface_hub"),
        ("engine.engine", "import spec_cli.llm"),
        ("proposers.ngram", "if TYPE_CHECKING:\n    pass\nelse:\n    import gguf"),
        ("ui.live", "from spec_cli.engine.engine import Engine"),
        ("ui.live", "import typer"),
        ("bench.harness", "from spec_cli.ui.tables import table"),
        ("llm", "from spec_cli.cli import main"),
        ("llm", "from .core import errors"),
        ("llm", "import requests"),
        ("", "from spec_cli.llm import LLM"),
        ("core.utils", ""),
        ("misc.things", ""),
    ],
)
def test_breach_is_found(module: str, source: str) -> None:
    """The checker sees each kind of breach."""
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.events", "import math\nfrom spec_cli.core.proposal import Proposal"),
        ("core.proposal", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("core.proposal", "import typing\nif typing.TYPE_CHECKING:\n    import torch"),
        ("sampling.verify", "import torch\nfrom spec_cli import core"),
        ("models.hub", "from huggingface_hub import snapshot_download"),
        ("ui.live", "from rich.live import Live\nfrom spec_cli.core.events import Event"),
        ("cli.generate", "import typer\nfrom spec_cli import LLM, __version__"),
        ("engine.engine", "from spec_cli import __version__"),
    ],
)
def test_lawful_import_passes(module: str, source: str) -> None:
    """The checker lets lawful imports be."""
    assert violations(module, source) == []
