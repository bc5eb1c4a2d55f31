"""Names: what a job may call a tool, and that each built-in tool keeps the contract (R4)."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest
import yaml

from checkout import ROOT
from swe_rollout.agent.tools import TOOLS, load_tool, toolbox
from swe_rollout.agent.tools.base import Tool
from swe_rollout.agent.tools.names import CLAUDE_CODE, OTHER_NAMES, TOOL_NAMES, TOOLSET_NAMES
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.testing.extensions.tools import ToolContract
from swe_rollout.testing.tool_cases import CASES, ToolCase

OF_ARL = {
    "Calculator": "calculator",
    "BashExecutor": "bash_executor",
    "FileEditor": "file_editor",
    "Search": "search",
    "Finish": "finish",
    "K8sBashExecutor": "k8s_bash_executor",
    "K8sFileEditor": "k8s_file_editor",
    "K8sSearch": "k8s_search",
    "R2EBashExecutor": "r2e_bash_executor",
    "R2ESearch": "r2e_search",
    "R2EFileEditor": "r2e_file_editor",
    "R2EStrReplaceEditor": "r2e_str_replace_editor",
    "R2ESubmit": "r2e_submit",
    "Architect": "architect",
}
SETS = {
    "r2e": {
        "file_editor": [
            *("command", "path", "file_text", "old_str", "new_str", "insert_line"),
            *("view_range", "concise"),
        ],
        "execute_bash": ["cmd", "command"],
        "search": ["search_term", "path", "python_only"],
        "finish": ["command", "result"],
        "submit": [],
    },
    "coding": {
        "view_file": ["file_path", "start_line", "end_line"],
        "edit_file": ["file_path", "old_content", "new_content", "line_number"],
        "create_file": ["file_path", "content"],
        "search_code": ["query", "file_pattern", "case_sensitive"],
        "search_files": ["pattern", "directory"],
        "execute_bash": ["command", "working_dir"],
        "run_tests": ["test_command", "test_file", "working_dir"],
    },
}


@pytest.mark.parametrize("name", [*TOOL_NAMES, *OTHER_NAMES])
def test_a_policy_is_offered_the_name_that_it_knows_with_descriptions(name: str) -> None:
    spec = load_tool(name).spec

    assert spec.name == OF_ARL.get(name, name)
    assert spec.description
    assert all(parameter.description for parameter in spec.parameters)


def test_other_names_are_not_listed_and_can_not_be_taken() -> None:
    assert not set(OTHER_NAMES) & set(TOOLS.names())
    assert {*TOOL_NAMES, *TOOLSET_NAMES} <= set(TOOLS.names())
    with pytest.raises(ExtensionError, match="already a tool named Calculator"):
        TOOLS.register("Calculator")(lambda: None)


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_the_parameters_of_its_prompts_l6_l21(name: str) -> None:
    specs = toolbox([name]).specs
    assert {spec.name: list(spec.arguments.properties) for spec in specs} == SETS[name]


def test_the_page_about_claude_code_s_set_lists_it_and_its_job_loads() -> None:
    page = (ROOT / "docs/how-to/claude-code-tools.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    spec = AgentSpec.model_validate(yaml.safe_load(example)["agent"])
    assert [each.name for each in toolbox(spec.tools).specs] == [*CLAUDE_CODE, "submit"]
    others = ("k8s_bash", "k8s_file_read", "Replace", "k8s_file_edit", "ReadNotebook")
    assert [name for name in (*CLAUDE_CODE, *others) if f"`{name}`" not in page] == []
    assert [each.name for each in toolbox(["claude_code"]).specs] == list(CLAUDE_CODE)


@pytest.mark.parametrize("case", [case for case in CASES if not case.tool], ids=str)
class TestBuiltIn(ToolContract):
    """Each built-in tool, where every command of the sandbox prints the same."""

    output: ClassVar = b"missing\n"

    @pytest.fixture
    def tool(self, case: ToolCase, monkeypatch: pytest.MonkeyPatch) -> Tool:
        monkeypatch.setattr(type(self), "arguments", dict(case.arguments))
        return load_tool(case.use)
