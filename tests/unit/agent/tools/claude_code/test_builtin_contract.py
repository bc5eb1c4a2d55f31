"""The tools of the set keep the contract that tools of users are held to."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest
import yaml

from checkout import ROOT
from swe_rollout.agent.tools import load_tool, toolbox
from swe_rollout.agent.tools.base import Tool
from swe_rollout.agent.tools.names import CLAUDE_CODE
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.testing.extensions.tools import ToolContract

NAMES = (
    *CLAUDE_CODE,
    *("k8s_bash", "k8s_file_read", "Replace", "k8s_file_edit", "ReadNotebook", "NotebookEditCell"),
)
CALLS: dict[str, dict[str, object]] = {
    "Bash": {"command": "ls"},
    "Read": {"file_path": "a.py"},
    "Write": {"file_path": "a.py", "content": "x = 1\n"},
    "Edit": {"file_path": "a.py", "old_string": "", "new_string": "x"},
    "MultiEdit": {"file_path": "a.py", "edits": [{"old_string": "", "new_string": "x"}]},
    "Glob": {"pattern": "*.py"},
    "Grep": {"pattern": "x", "-A": 1, "output_mode": "content"},
    "LS": {"path": "."},
    "NotebookRead": {"notebook_path": "a.ipynb"},
    "NotebookEdit": {"notebook_path": "a.ipynb", "cell_number": 0, "new_source": "x"},
    "TodoWrite": {"todos": [{"content": "x", "status": "pending"}]},
    "TodoRead": {},
    "MemoryRead": {},
    "MemoryWrite": {"file_path": "index.md", "content": "x"},
    "Think": {"thought": "x"},
}


class TestSet(ToolContract):
    """Each tool of the set, where every command of the sandbox prints the same."""

    @pytest.fixture(params=[*CLAUDE_CODE])
    def tool(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tool:
        monkeypatch.setattr(type(self), "arguments", CALLS[request.param])
        return load_tool(request.param)

    output: ClassVar = b"missing\n"


def test_the_page_about_the_set_lists_it_and_its_job_loads() -> None:
    page = (ROOT / "docs/how-to/claude-code-tools.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    spec = AgentSpec.model_validate(yaml.safe_load(example)["agent"])
    assert [each.name for each in toolbox(spec.tools).specs] == [*CLAUDE_CODE, "submit"]
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_the_set_is_offered_whole_and_every_name_loads() -> None:
    assert [spec.name for spec in toolbox(CLAUDE_CODE).specs] == list(CLAUDE_CODE)
    # An alias is offered under its own name, or a policy could not call it.
    for name in NAMES:
        assert [spec.name for spec in toolbox([name]).specs] == [name]
