"""Write fixes again as others might have written them: other forms that do the same. Pure.

A variant starts from the files of a true fix. Changes of code are made to the functions that the
fix changes, or to all functions of a file whose functions it doesn't change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from rollout_dev.conformance.rewrites import (
    Fixed,
    Rewrite,
    annotated,
    around,
    delegated,
    each,
    headed,
    inverted,
    iterated,
    raise_chained,
    raise_name,
    raise_unchained,
    renamed,
    rewritten,
    text_subclass,
    through_name,
)

Files = dict[str, str | None]
"""What a variant writes, by path; None deletes."""
_TEXT_CLASS: Final = """\
class _Text(str):
    __slots__ = ()
def _as_text(value):
    return _Text(value) if type(value) is str else value"""
_RAISED_AGAIN: Final = "try:\n    BODY\nexcept Exception as the_error:\n    "
_CAUSE: Final = "the_error.__cause__ or LookupError('at another place')"
FORMS: Final[Mapping[str, tuple[Rewrite, str]]] = {
    "renamed locals": (renamed, ""),
    "an inner function does the work": (delegated, "import functools"),
    "prints": (around("print('NAME is called')\nBODY"), ""),
    "logs": (around("_log.getLogger(__name__).warning('NAME')\nBODY"), "import logging as _log"),
    "a docstring": (around("'''Do what the issue asks for.'''\nBODY"), ""),
    "try and finally": (around("try:\n    BODY\nfinally:\n    pass"), ""),
    "errors raised again": (around(f"{_RAISED_AGAIN}raise", simple=True), ""),
    "errors raised again by name": (around(f"{_RAISED_AGAIN}raise the_error", simple=True), ""),
    "errors with a cause": (
        around(f"{_RAISED_AGAIN}raise the_error from ({_CAUSE})", simple=True),
        "",
    ),
    "errors without their context": (
        around(f"{_RAISED_AGAIN}raise the_error from None", simple=True),
        "",
    ),
    "raised through a name": (each(raise_name), ""),
    "raised from another error": (each(raise_chained), ""),
    "raised from None": (each(raise_unchained), ""),
    "returned through a name": (each(through_name), ""),
    "a subclass of str": (each(text_subclass), _TEXT_CLASS),
    "inverted conditions": (each(inverted), ""),
    "loops over iterators": (each(iterated), ""),
    "annotated names": (each(annotated), ""),
    "a with block": (
        around("with _nullcontext():\n    BODY"),
        "from contextlib import nullcontext as _nullcontext",
    ),
    "a condition that holds": (around("if __name__:\n    BODY"), ""),
    "own assertions": (around("assert ''.__class__\nBODY"), ""),
}
HEADS: Final[Mapping[str, str]] = {
    "a thread at import": "import threading as _t; _t.Thread(target=int, daemon=True).start()",
    "an exit handler": "import atexit as _a; _a.register(int)",
    "a variable of the environment": "import os as _o; _o.environ.setdefault('PAGER', 'cat')",
    "a file written at import": "import tempfile as _f; _f.TemporaryFile().write(b'x')",
    "a warning at import": "import warnings as _w; _w.simplefilter('default', ResourceWarning)",
    "a hook of the garbage collector": "import gc as _g; _g.collect()",
    "a type that equals texts": "class _Equal:\n"
    "    def __eq__(self, other): return other == 'x'\n"
    "    __hash__ = None",
}
NAMES: Final = (
    "signs",
    "types",
    "logging",
    "string",
    "conftest_parts",
    "test_support",
    "_compat2",
    "json",
)
_BESIDE: Final[Mapping[str, Files]] = {
    "documentation": {"docs/a_new_page.rst": "New\n===\n", "NEWS-of-this-change.md": "# Fixed\n"},
    "an example": {"examples/of_this_change.py": "print('an example')\n"},
    "a test": {"tests/test_of_this_change.py": "def test_it():\n    assert 1 + 1 == 2\n"},
    "a script": {"tools/release_notes.sh": "#!/bin/sh\necho notes\n"},
    "data with odd names": {"docs/a\tb c.txt": "x\n", "docs/ü.txt": "ü\n"},
}


def variants(fixed: list[Fixed]) -> Iterator[tuple[str, Files]]:
    """Yield each variant of a fix: its kind, and the files in which it differs from the fix."""
    for kind, (rewrite, head) in FORMS.items():
        files = {each.path: rewritten(each, rewrite, head=head) for each in fixed}
        if changed := {path: text for path, text in files.items() if text is not None}:
            yield kind, dict(changed)
    first = fixed[0]
    for kind, head in HEADS.items():
        yield kind, {first.path: headed(first.after, head)}
    yield "another layout", {each.path: ast.unparse(ast.parse(each.after)) + "\n" for each in fixed}
    yield "comments", {each.path: f"# Changed.\n{each.after}\n# The end.\n" for each in fixed}
    for kind, files in _BESIDE.items():
        yield kind, dict(files)
    folder = PurePosixPath(first.path).parent
    package = ".".join(folder.parts[folder.parts[:1] == ("src",) :])
    if package:
        for name in NAMES:
            head = f"from {package}.{name} import NOTHING as _nothing"
            added = f"{folder}/{name}.py"
            if added != first.path:
                yield (
                    f"a new module {name}.py",
                    {
                        first.path: headed(first.after, head),
                        added: "NOTHING = 0\n",
                    },
                )
    if not first.path.endswith("/__init__.py"):
        yield "a module that becomes a package", _as_package(first)


def _as_package(file: Fixed) -> Files:
    tree = ast.parse(file.after)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            node.level += 1
    return {
        file.path: None,
        file.path.removesuffix(".py") + "/__init__.py": ast.unparse(tree) + "\n",
    }
