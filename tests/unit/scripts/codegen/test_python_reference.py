"""The page of the Python API: every public name, with its signature and its errors."""

from __future__ import annotations

import re

import swe_rollout
from checkout import ROOT
from rollout_dev.codegen.python_reference import ADAPTERS, SECTIONS, python_page

PAGE = python_page()


def section(name: str) -> str:
    return PAGE.partition(f"\n### {name}\n")[2].partition("\n### ")[0]


def test_every_public_name_stands_in_one_section() -> None:
    """Issue 17, point 2: a generated reference of the Python API."""
    listed = [name for names in SECTIONS.values() for name in names]

    assert sorted(listed) == sorted(set(swe_rollout.__all__) - {"__version__"})
    headings = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    assert headings == [*listed, *(name for names in ADAPTERS.values() for name in names)]


def test_every_name_has_a_signature_and_says_what_it_is() -> None:
    for name in re.findall(r"^### (.+)$", PAGE, re.MULTILINE):
        code, _, told = section(name).partition("```\n\n")
        assert name in code, name
        assert len(told.split()) > 2, name


def test_a_name_shows_its_arguments_units_and_errors() -> None:
    assert "prompts: Sequence[object]" in section("play")
    assert "concurrency: int = 4" in section("play")
    assert "Raises SpecError" in section("play")
    assert "`.from_yaml(path: str | Path" in section("RolloutJob")
    assert "raises SpecError with all problems by line" in section("RolloutJob")
    assert "JobTimeoutError after `timeout_s`" in section("LaunchedJob")
    assert "@reward_term(name: str)" in section("reward_term")


def test_every_adapter_that_a_how_to_imports_is_on_the_page() -> None:
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "how-to").glob("*.md"))
    found = re.findall(
        r"^from swe_rollout\.integrations\.(\w+) import ([\w, ]+)", pages, re.MULTILINE
    )
    used = {(module, name.strip()) for module, names in found for name in names.split(",")}

    assert used
    assert {(m, n) for m, n in used if n not in ADAPTERS.get(m, ())} == set()
