"""Every page about an extension: its example is short, loads as its YAML names it, and holds."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkout import ROOT
from doc_steps import blocks
from swe_rollout.agent.parsers import CALL_FORMATS
from swe_rollout.agent.program import AGENTS
from swe_rollout.agent.tools import TOOLS
from swe_rollout.datasets import DATASETS
from swe_rollout.engine.chat.function import CHAT_ENGINES
from swe_rollout.extension import ExtensionPoint, import_file
from swe_rollout.grading.parsers import LOG_PARSERS
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.worker.engines import ENGINES
from swe_rollout.worker.sandboxes import SANDBOXES

OTHERS = {"mcp", "tool-bundles"}
"""Pages about tools that are no Python; `test_tool_docs` runs what they say."""
PAGES = sorted(
    page for page in (ROOT / "docs" / "how-to" / "extend").glob("*.md") if page.stem not in OTHERS
)
POINTS: dict[str, ExtensionPoint[Any]] = {
    "agents": AGENTS,
    "call-formats": CALL_FORMATS,
    "chat-engines": CHAT_ENGINES,
    "datasets": DATASETS,
    "engines": ENGINES,
    "log-parsers": LOG_PARSERS,
    "rewards": REWARD_TERMS,
    "sandboxes": SANDBOXES,
    "tools": TOOLS,
}
MODULE = "my_extensions"
MOST_LINES = 30
MOST_PAGE_LINES = 60
HEADER = """\
import json
from functools import partial
from pathlib import Path

import pytest

import my_extensions

HERE = Path(__file__).parent

"""
TASKS = """[{"id": "one", "problem": "fix it", "image": "image:1", "fix": "diff", "tests": "diff",
"fail_to_pass": ["t.py::test"]}]"""
"""The file that the page of datasets reads."""


def uses(value: object) -> Iterator[tuple[str, dict[str, object]]]:
    """Every reference to the module in a piece of YAML, with its parameters."""
    match value:
        case {"use": str(use), **rest} if use.startswith(MODULE):
            parameters = rest.get("with", {})
            assert isinstance(parameters, dict)
            yield use, parameters
        case dict():
            for each in value.values():
                yield from uses(each)
        case list():
            for each in value:
                yield from uses(each)
        case str() if value.startswith(MODULE):
            yield value, {}


@pytest.fixture
def module(page: Path, tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / f"{MODULE}.py"
    file.write_text(blocks(page, "python")[0])
    yield file
    sys.modules.pop(MODULE, None)


def test_every_kind_of_extension_has_a_page() -> None:
    assert [page.stem for page in PAGES] == sorted(POINTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_example_loads_as_the_page_s_yaml_names_it(page: Path, module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MOST_LINES
    assert len(page.read_text("utf-8").splitlines()) <= MOST_PAGE_LINES
    import_file(module)
    found = [each for text in blocks(page, "yaml") for each in uses(yaml.safe_load(text))]
    assert found
    for use, parameters in found:
        POINTS[page.stem].load(use, parameters)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_contract_of_the_page_holds_for_its_example(page: Path, module: Path) -> None:
    contract = blocks(page, "python")[1]
    if not re.search(r"^    def ", contract, re.MULTILINE):
        # An engine needs a server, a back end an image: both contracts run on ours elsewhere.
        pytest.skip("the page leaves the fixture to its reader: add it there to run it here")
    test = module.with_name("test_my_extensions.py")
    test.write_text(HEADER + contract)
    (test.parent / "tasks.json").write_text(TASKS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider",
         "--rootdir", str(test.parent), str(test)],
        cwd=test.parent, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]
