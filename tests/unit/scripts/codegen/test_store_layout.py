"""The page of a store's layout: every key that the code can make, and who writes it."""

from __future__ import annotations

import ast
import re

import pytest

from checkout import ROOT
from rollout_dev.codegen.store_layout import KEYS, MOVED, ONCE, Key, store_layout_page
from swe_rollout.store import layout

PACKAGE = ROOT / "swe_rollout"


def makers() -> set[str]:
    """The functions of the layout that return keys of objects."""
    names = (name for name in vars(layout) if name.endswith("_key"))
    return {name for name in names if not name.startswith(("_", "parse_", "is_"))}


def writers() -> set[str]:
    """The modules that write objects of a store."""
    call = re.compile(r"\b_?bucket\.(create|move)\(|\bcreate_object\(")
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if call.search(path.read_text("utf-8"))
    }
    return found - {"store/bucket.py"}


def test_every_key_is_on_the_page_and_none_that_is_gone() -> None:
    """Issue 17, point 2: a generated reference of the store's layout."""
    assert {key.function for key in KEYS} == makers()
    page = store_layout_page()
    assert page.count("\n| `") == len(KEYS)
    assert not re.search(r"JOB|INSTANCE|TRAINER|UNIQUE|76543|5{16}", page)


def test_every_module_that_writes_to_a_store_is_a_writer_of_a_key() -> None:
    assert {key.home for key in KEYS} == writers()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.function}-{key.key[:24]}")
def test_a_key_is_written_by_the_module_that_the_page_has_in_mind(key: Key) -> None:
    source = (PACKAGE / key.home).read_text("utf-8")
    names = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute | ast.Name)
    }
    is_named_by_a_caller = key.function == "log_key"  # the record names its log
    assert key.function in names or is_named_by_a_caller
    assert key.how in (ONCE, MOVED)


def test_the_docstring_of_the_layout_has_the_same_folders() -> None:
    doc = layout.__doc__ or ""
    for key in KEYS:
        folders = [part for part in key.key.split("/")[:-1] if part.islower() and part.isalpha()]
        assert all(folder in doc for folder in folders), key.key
