"""Write fixes again as others might have written them: other forms that do the same. Pure.

A variant starts from the files of a true fix. Changes of code are made to the functions that the
fix changes, or to all functions of a file whose functions it doesn't change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from rollout_dev.conformance import rewrites
from rollout_dev.conformance.rewrites import Fixed, Rewrite, headed, rewritten

Files = dict[str, str | None]
"""What a variant writes, by path; None deletes."""
_ROWS: Final = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))


def _rewrite(row: Mapping[str, Any]) -> Rewrite:
    if "around" in row:
        return rewrites.around(row["around"], simple=row.get("simple", False))
    if "each" in row:
        return rewrites.each(getattr(rewrites, row["each"]))
    rewrite: Rewrite = getattr(rewrites, row["by"])
    return rewrite


FORMS: Final[Mapping[str, tuple[Rewrite, str]]] = {
    kind: (_rewrite(row), row.get("head", "")) for kind, row in _ROWS["forms"].items()
}


def variants(fixed: list[Fixed]) -> Iterator[tuple[str, Files]]:
    """Yield each variant of a fix: its kind, and the files in which it differs from the fix."""
    for kind, (rewrite, head) in FORMS.items():
        files = {each.path: rewritten(each, rewrite, head=head) for each in fixed}
        if changed := {path: text for path, text in files.items() if text is not None}:
            yield kind, dict(changed)
    first = fixed[0]
    for kind, head in _ROWS["heads"].items():
        yield kind, {first.path: headed(first.after, head)}
    yield "another layout", {each.path: ast.unparse(ast.parse(each.after)) + "\n" for each in fixed}
    yield "comments", {each.path: f"# Changed.\n{each.after}\n# The end.\n" for each in fixed}
    for kind, beside in _ROWS["beside"].items():
        yield kind, dict(beside)
    yield from _with_modules(first)
    if not first.path.endswith("/__init__.py"):
        yield "a module that becomes a package", _as_package(first)


def _with_modules(first: Fixed) -> Iterator[tuple[str, Files]]:
    folder = PurePosixPath(first.path).parent
    package = ".".join(folder.parts[folder.parts[:1] == ("src",) :])
    for name in _ROWS["modules"] if package else ():
        added = f"{folder}/{name}.py"
        if added != first.path:
            importing = headed(first.after, f"from {package}.{name} import NOTHING as _nothing")
            yield f"a new module {name}.py", {first.path: importing, added: "NOTHING = 0\n"}


def _as_package(file: Fixed) -> Files:
    tree = ast.parse(file.after)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            node.level += 1
    return {
        file.path: None,
        file.path.removesuffix(".py") + "/__init__.py": ast.unparse(tree) + "\n",
    }
