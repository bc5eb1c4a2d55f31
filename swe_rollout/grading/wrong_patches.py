"""Make patches for a task that resolve nothing: if its tests accept one, the row is bad.

They are made from the base's own files, which come from a dataset and so are only read and parsed.
Files that can't be parsed, or are too large, are left alone.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from swe_rollout.grading.working_tree import read_base
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.patch_text import file_diff, file_diffs, touched_paths
from swe_rollout.types.instance import Instance

_MOST_FILES: Final = 50
_PLAIN_PATH: Final = re.compile(r'(?!/)[^\x00-\x1f\x7f"\\]{1,500}')
"""Matches paths that need no quoting in a diff."""
_HUNK: Final = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_CONFTEST: Final = "conftest.py"
_SKIP_ALL: Final = """

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skip(reason="skipped by an audit"))
"""
_SKIP_MODULE: Final = """

import sys

if "pytest" in sys.modules:
    import pytest

    pytest.skip("skipped by an audit", allow_module_level=True)
if "unittest" in sys.modules:
    import unittest

    raise unittest.SkipTest("skipped by an audit")
"""
_RETURN: Final = "return None"
_SKIP: Final = 'raise __import__("unittest").SkipTest("skipped by an audit")'
"""A statement that skips a test; pytest accepts it, too."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Wrong(StrEnum):
    """A kind of wrong patch, and the name of its check."""

    DELETE_TESTS = "delete_tests"
    """The files of the graded tests are deleted."""
    CONSTANT_RETURN = "constant_return"
    """Every function that the gold patch changes returns None."""
    ALL_SKIPPED = "all_skipped"
    """conftest.py, and each module that the gold patch changes, skip all tests."""
    SKIPPED_CALLS = "skipped_calls"
    """Every function that the gold patch changes skips the test that calls it."""


@dataclass(frozen=True, slots=True)
class WrongPatch:
    """A patch, or the reason why none can be made for the task."""

    kind: Wrong
    text: str = ""
    why_none: str = ""


async def make_wrong_patches(sandbox: Sandbox, instance: Instance) -> tuple[WrongPatch, ...]:
    """Make a task's wrong patches from the files in a new sandbox. Raises what `prepare` raises."""
    if instance.folder is not None:
        why = "the task has folders, and no repository"
        return tuple(WrongPatch(kind, why_none=why) for kind in Wrong)
    base = await repository.prepare(sandbox, instance)
    tests, sources = _test_paths(instance), _source_paths(instance)
    files = await read_base(sandbox, base, (*tests, *sources, _CONFTEST))
    # Parsing takes a moment for large files.
    return await asyncio.to_thread(_made, instance, files, tests, sources)


def _made(
    instance: Instance, files: Mapping[str, str], tests: Collection[str], sources: Collection[str]
) -> tuple[WrongPatch, ...]:
    no_function = "the gold patch changes no Python function that the base has"
    constant, skipped = (
        "".join(_with_bodies(instance.gold_patch, files, body)) for body in (_RETURN, _SKIP)
    )
    return (
        _patch(
            Wrong.DELETE_TESTS,
            "".join(file_diff(path, files.get(path), None) for path in tests),
            "the base has no file of the graded tests",
        ),
        _patch(Wrong.CONSTANT_RETURN, constant, no_function),
        _patch(Wrong.ALL_SKIPPED, _skips(files, sources), "the gold patch changes no Python"),
        _patch(Wrong.SKIPPED_CALLS, skipped, no_function),
    )


def _patch(kind: Wrong, text: str, why_none: str) -> WrongPatch:
    return WrongPatch(kind, text) if text else WrongPatch(kind, why_none=why_none)


def _test_paths(instance: Instance) -> tuple[str, ...]:
    """Return the files of the graded tests: those in the test patch and those named by ids."""
    listed = (*instance.expected.fail_to_pass, *instance.expected.pass_to_pass)
    named = (test.partition("::")[0] for test in listed if "::" in test)
    return _plain((*touched_paths(instance.test_patch), *instance.test_files, *named))


def _source_paths(instance: Instance) -> tuple[str, ...]:
    return _plain(path for path in touched_paths(instance.gold_patch) if path.endswith(".py"))


def _plain(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the first paths that stay in the repository and need no quotes."""
    kept = (
        path
        for path in dict.fromkeys(paths)
        if _PLAIN_PATH.fullmatch(path) and not {"..", ".git", ""} & set(path.split("/"))
    )
    return tuple(kept)[:_MOST_FILES]


def _skips(files: Mapping[str, str], sources: Collection[str]) -> str:
    if not sources:
        return ""
    parts = [file_diff(_CONFTEST, files.get(_CONFTEST), files.get(_CONFTEST, "") + _SKIP_ALL)]
    parts += [
        file_diff(path, files[path], files[path] + _SKIP_MODULE)
        for path in sources
        if path in files and path != _CONFTEST
    ]
    return "".join(parts)


def _with_bodies(gold_patch: str, files: Mapping[str, str], body: str) -> Iterator[str]:
    """Yield, for each file, the diff that gives this body to the functions that gold changes."""
    for part in file_diffs(gold_patch.encode(errors="replace")):
        for path in part.paths:
            old = files.get(path) if path.endswith(".py") else None
            new = old and with_bodies(old, changed_lines(part.data), body)
            if old and new:
                yield file_diff(path, old, new)
                break


def changed_lines(diff: bytes) -> frozenset[int]:
    """Return the lines of the old file that a diff of one file removes or inserts after."""
    found, at, old, new = set[int](), 0, 0, 0
    for line in diff.split(b"\n"):
        if old <= 0 and new <= 0:
            if match := _HUNK.match(line):
                at, old, new = (int(1 if each is None else each) for each in match.groups())
                # The hunk of a pure insertion names the line before it.
                at += old == 0
            continue
        kind = line[:1]
        if kind == b"-":
            found.add(at)
        elif kind == b"+":
            found.add(max(1, at - 1))
        at += kind in (b"-", b" ", b"")
        old -= kind in (b"-", b" ", b"")
        new -= kind in (b"+", b" ", b"")
    return frozenset(found)


def with_bodies(text: str, lines: Collection[int], body: str) -> str:
    """Return the source with this statement as the body of each function that has these lines.

    Return an empty text when there is no such function or the source can't be parsed.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    around = _innermost(functions)
    chosen = {id(each): each for line in lines if (each := around.get(line)) is not None}
    data, starts = text.encode(), _line_starts(text)
    kept, at = list[bytes](), 0
    for start, end in sorted(_body(each, starts) for each in chosen.values()):
        if start >= at:  # Of nested functions, the outer one counts.
            kept += (data[at:start], body.encode())
            at = end
    new = b"".join((*kept, data[at:])).decode(errors="replace")
    return new if kept and _parses(new) else ""


def _innermost(functions: Iterable[_Function]) -> dict[int, _Function]:
    """Return the innermost function that contains each line. Python limits their nesting."""
    found: dict[int, _Function] = {}
    for each in sorted(functions, key=_first_line):
        found.update(dict.fromkeys(range(_first_line(each), (each.end_lineno or 0) + 1), each))
    return found


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _body(function: _Function, starts: list[int]) -> tuple[int, int]:
    """Return the bytes `[start, end)` of a function's body."""
    first, last = function.body[0], function.body[-1]
    # The `@` of a decorator has the indentation of the `def`.
    start = starts[_first_line(first) - 1] + first.col_offset
    end = starts[(last.end_lineno or last.lineno) - 1] + (last.end_col_offset or 0)
    return start, end


def _line_starts(text: str) -> list[int]:
    """Return the byte at which each of Python's lines begins."""
    found, at = [], 0
    for line in re.split(rb"(?<=\n)|(?<=\r)(?!\n)", text.encode()):
        found.append(at)
        at += len(line)
    return found


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
