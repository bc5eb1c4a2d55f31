"""Find test functions in files without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path


def missing_tests(root: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of `path::function` that no file defines. Parameters in `[…]` do not count."""
    return tuple(name for name in names if not _exists(root, name))


def _exists(root: Path, name: str) -> bool:
    path, _, function = name.partition("::")
    return function.partition("[")[0] in _functions(root / path)


@cache
def _functions(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, defined))
