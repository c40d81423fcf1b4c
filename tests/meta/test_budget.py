"""Modules and functions stay short. Raise a bound only in a commit that explains it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 50


def long_functions(source: str) -> list[tuple[str, int]]:
    """Name and length of each function over the bound, `def` line and docstring included."""
    return [
        (node.name, length)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def _sources() -> dict[str, str]:
    paths = sorted((ROOT / "spec_cli").rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def test_modules_are_short() -> None:
    """No module is longer than its shelf."""
    lengths = {path: len(source.splitlines()) for path, source in _sources().items()}

    over = [f"{path}: {n} lines" for path, n in lengths.items() if n > MAX_MODULE_LINES]

    assert not over, f"over {MAX_MODULE_LINES} lines, split by noun: " + "; ".join(over)


def test_functions_are_short() -> None:
    """No function is longer than a page."""
    over = [
        f"{path}: {name} has {length} lines"
        for path, source in _sources().items()
        for name, length in long_functions(source)
    ]

    assert not over, f"over {MAX_FUNCTION_LINES} lines, name the parts: " + "; ".join(over)


def test_long_function_is_found() -> None:
    """The measure itself: 50 lines pass, 51 do not, methods included."""
    body = "\n".join(["        pass"] * (MAX_FUNCTION_LINES - 1))

    assert long_functions(f"class A:\n    def f(self):\n{body}\n") == []
    assert long_functions(f"class A:\n    def f(self):\n{body}\n        pass\n") == [("f", 51)]
