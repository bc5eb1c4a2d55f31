"""Every command and snippet of every page is tried by a test, or the page says why not.

- `sh`, `bash` and `python` run as they stand; `RUN` names the test that does it.
- `yaml` is a job, a part of one, or a manifest: checked here.
- Blocks without a language name addresses, keys and files of the reader's. Of their lines, the
  verbs, options, targets and programs are checked: `swe-rollout` by `test_examples`, the rest here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from checkout import ROOT
from swe_rollout.spec.job import RolloutJob

TESTS = ROOT / "tests"
PAGES = sorted(
    [
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
        *(page for folder in ("docs", "examples") for page in (ROOT / folder).rglob("*.md")),
    ]
)
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE
)
CODE = ("sh", "bash", "python")
SHOWN = ("text", "mermaid", "json")
"""Languages of what is printed, drawn or written; nothing of it runs."""
PART: Final[dict[str, object]] = {
    "dataset": {"releasePairs": {}},
    "policy": {"scripted": {}},
    "store": {"uri": "s3://rollouts"},
}
"""What the parts of a job leave out."""
CONVENTION: Final = "Blocks without a language"
SIGNATURES: Final = "docs/reference/python.md"
"""Made from the code, and no program."""
OTHER_FILES: Final = {
    "docs/how-to/extend/tool-bundles.md": "a bundle's manifest, which unit/test_tool_docs reads",
    "docs/how-to/sandboxes-for-others.md": "a file of Harbor, for trainers/sandboxes",
    "docs/how-to/slime.md": "a file of slime, which unit/integrations/test_trainer_docs reads",
    "docs/how-to/verl.md": "files of verl, which unit/integrations/test_trainer_docs reads",
}
"""YAML of these pages that is no job's."""

RUN: Final[dict[str, str]] = (
    {
        "README.md": "e2e/test_readme.py",
        "docs/tutorial/1-laptop.md": "e2e/test_tutorial.py",
        "docs/tutorial/2-model.md": "sglang/test_tutorial.py",
        "docs/tutorial/3-tasks-and-tools.md": "e2e/test_tutorial.py",
        "docs/tutorial/4-dev-cluster.md": "cluster/test_tutorial.py",
        "docs/tutorial/6-trainer.md": "trainers/trl/test_docs.py",
        "docs/explanation/snapshots.md": "e2e/test_docs_snippets.py",
        "docs/how-to/areal.md": "trainers/generators/test_docs.py",
        "docs/how-to/audit.md": "unit/test_page_facts.py",
        "docs/how-to/check-a-template.md": "e2e/test_docs_snippets.py",
        "docs/how-to/datasets.md": "unit/test_page_facts.py",
        "docs/how-to/extend.md": "e2e/test_docs_snippets.py",
        "docs/how-to/extend/mcp.md": "unit/test_tool_docs.py",
        "docs/how-to/extend/tool-bundles.md": "unit/test_tool_docs.py",
        "docs/how-to/gateway.md": "e2e/test_gateway.py",
        "docs/how-to/generate-server.md": "e2e/test_own_server.py",
        "docs/how-to/notebook.md": "e2e/test_docs_snippets.py",
        "docs/how-to/observe.md": "e2e/test_docs_snippets.py",
        "docs/how-to/python.md": "e2e/test_docs_snippets.py",
        "docs/how-to/run-again.md": "e2e/test_docs_snippets.py",
        "docs/how-to/sandboxes-for-others.md": "sandbox_snippets.py",
        "docs/how-to/skyrl.md": "trainers/generators/test_docs.py",
        "docs/how-to/slime.md": "unit/integrations/test_trainer_docs.py",
        "docs/how-to/strands-in-slime.md": "trainers/strands/test_docs.py",
        "docs/how-to/strands.md": "trainers/strands/test_docs.py",
        "docs/how-to/tinker.md": "trainers/generators/test_docs.py",
        "docs/how-to/train-from-the-store.md": "e2e/test_groups_docs.py",
        "docs/how-to/trl.md": "trainers/trl/test_docs.py",
        "docs/how-to/verifiers.md": "trainers/generators/test_docs.py",
        "docs/how-to/verl.md": "unit/integrations/test_trainer_docs.py",
        "docs/reference/agents.md": "unit/test_agent_docs.py",
        "docs/reference/coming-from.md": "unit/test_agent_docs.py",
        "docs/reference/trajectory.md": "unit/types/test_trajectory_json.py",
    }
    | {
        f"docs/how-to/coming-from/{page.name}": "e2e/test_coming_from.py"
        for page in (ROOT / "docs" / "how-to" / "coming-from").glob("*.md")
    }
    | {
        f"docs/how-to/extend/{page.name}": "unit/test_extension_docs.py"
        for page in (ROOT / "docs" / "how-to" / "extend").glob("*.md")
        if page.stem not in ("mcp", "tool-bundles")
    }
)
"""The test that runs a page's code."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of a page."""

    page: str
    language: str
    text: str


def blocks_of(text: str, page: str) -> list[Block]:
    """Return the blocks of a page, without the blanks that indent them."""
    return [
        Block(page, found["language"], unindented(found["text"], found["indent"]))
        for found in BLOCK.finditer(text)
    ]


def unindented(text: str, indent: str) -> str:
    return re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


BLOCKS = [
    block
    for page in PAGES
    for block in blocks_of(page.read_text("utf-8"), str(page.relative_to(ROOT)))
]


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages and block.page != SIGNATURES]


def names(page: str) -> set[str]:
    """Return how a test may name a page: its file, or its stem in quotes."""
    path = Path(page)
    folder = path.parent.name
    return {path.name, f'"{path.stem}"', f'"{folder}").glob("*.md")'}


def not_run(page: str) -> str:
    """Return why the code of a page is run by no test; empty: one does."""
    if page not in RUN:
        return f"{page}: name the test that runs its code in RUN"
    test = TESTS / RUN[page]
    if not test.is_file():
        return f"{page}: there is no {RUN[page]}"
    text = test.read_text("utf-8")
    return "" if any(name in text for name in names(page)) else f"{RUN[page]} names no {page}"


def problem_of(part: Any) -> str:
    """Return what is wrong with a document of YAML; empty: nothing."""
    if not isinstance(part, dict):
        return "neither a job, nor a part of one, nor a manifest"
    if part.get("kind", "RolloutJob") != "RolloutJob":
        return "" if {"apiVersion", "kind"} <= part.keys() else "a manifest without apiVersion"
    part = {"agent": part} if "tools" in part else part
    spec = part.get("spec", {key: value for key, value in part.items() if key != "metadata"})
    whole = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        **part,
        "metadata": {"name": "demo", **part.get("metadata", {})},
        "spec": spec if "apiVersion" in part else PART | spec,
    }
    allowed = {key: whole[key] for key in ("apiVersion", "kind", "metadata", "spec")}
    try:
        RolloutJob.model_validate(allowed)
    except ValueError as error:
        return str(error)
    return ""


def missing_programs(text: str) -> Iterator[str]:
    """Yield the targets of make and the programs of this repository that do not exist."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for line in text.replace("\\\n", " ").splitlines():
        for words in re.findall(r"(?:^|&& |\$\(|; )make((?: [\w=,-]+)+)", line):
            named = (word for word in words.split() if "=" not in word)
            yield from (f"make {word}" for word in named if word not in targets)
        for path in re.findall(r"(?:^|[ \"(])(?:\.\./)?((?:scripts|examples)/[\w./-]+)", line):
            if not (ROOT / path).exists():
                yield path


def test_pages_have_the_languages_that_are_checked() -> None:
    known = {"", "yaml", *CODE, *SHOWN}
    assert {block.language for block in BLOCKS} <= known
    assert len(of(*CODE)) > 80
    assert len(of("yaml")) > 40


@pytest.mark.parametrize("page", sorted({block.page for block in of(*CODE)}))
def test_the_code_of_a_page_is_run_by_a_test(page: str) -> None:
    assert not_run(page) == ""


def test_no_page_is_named_in_vain() -> None:
    assert set(RUN) - {block.page for block in of(*CODE)} == set()


@pytest.mark.parametrize(
    "block",
    [block for block in of("yaml") if block.page not in OTHER_FILES],
    ids=lambda block: block.page,
)
def test_yaml_is_a_job_or_a_part_of_one_or_a_manifest(block: Block) -> None:
    found = [problem_of(each) for each in yaml.safe_load_all(block.text)]
    assert found == [""] * len(found)


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS}))
def test_programs_of_this_repository_that_a_page_names_exist(page: str) -> None:
    texts = [block.text for block in of("", *CODE) if block.page == page]
    assert list(missing_programs("\n".join(texts))) == []


def test_the_first_page_says_which_blocks_are_not_run() -> None:
    assert CONVENTION in (ROOT / "docs" / "index.md").read_text("utf-8")


def test_what_is_not_tried_would_be_found() -> None:
    page = "# New\n```python\nimport this\n```\n1. x\n   ```yaml\n   limits: {turn: 3}\n   ```\n"
    code, part = blocks_of(page, "docs/new.md")
    assert (code.language, part.text) == ("python", "limits: {turn: 3}\n")
    assert "name the test that runs its code" in not_run(code.page)
    assert "turn" in problem_of(yaml.safe_load(part.text))
    assert problem_of({"kind": "Deployment"}) != ""
    wrong = "make frobnicate && scripts/no-such up\n../scripts/bench\n"
    assert list(missing_programs(wrong)) == ["make frobnicate", "scripts/no-such"]
