"""The page of the Python API: every public name, with its signature and its errors."""

from __future__ import annotations

import re

import swe_rollout
from checkout import ROOT
from rollout_dev.codegen.python_reference import ADAPTERS, SECTIONS, python_page

PAGE = python_page()


def test_every_public_name_stands_in_one_section() -> None:
    """Issue 17, point 2: a generated reference of the Python API."""
    listed = [name for names in SECTIONS.values() for name in names]

    assert sorted(listed) == sorted(set(swe_rollout.__all__) - {"__version__"})
    headings = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert headings == [*listed, *(name for names in ADAPTERS.values() for name in names)]


def test_every_adapter_that_a_how_to_imports_is_on_the_page() -> None:
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "how-to").glob("*.md"))
    found = re.findall(
        r"^from swe_rollout\.integrations\.(\w+) import ([\w, ]+)", pages, re.MULTILINE
    )
    used = {(module, name.strip()) for module, names in found for name in names.split(",")}

    assert used
    assert {(m, n) for m, n in used if n not in ADAPTERS.get(m, ())} == set()
