"""Names of the built-in tools and toolsets, and where each is. Nothing is imported before it is
named; docs/reference/tools.md is made from this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from swe_rollout.agent.tools import claude_code

_HERE: Final = "swe_rollout.agent.tools"

TOOL_NAMES: Final[Mapping[str, str]] = {
    "bash": f"{_HERE}.bash:Bash",
    "bash_executor": f"{_HERE}.executor:BashExecutor",
    "str_replace_editor": f"{_HERE}.editor:StrReplaceEditor",
    "file_editor": f"{_HERE}.editor:FileEditor",
    "search": f"{_HERE}.search:Search",
    "calculator": f"{_HERE}.calculator:Calculator",
    "think": f"{_HERE}.finish:Think",
    "agent": f"{_HERE}.sub_agent:SubAgent",
    "architect": f"{_HERE}.sub_agent:Architect",
    "submit": f"{_HERE}.submit:Submit",
    "finish": f"{_HERE}.finish:Finish",
    "view_file": f"{_HERE}.coding:VIEW_FILE",
    "edit_file": f"{_HERE}.coding:EDIT_FILE",
    "create_file": f"{_HERE}.coding:CREATE_FILE",
    "search_code": f"{_HERE}.coding:SEARCH_CODE",
    "search_files": f"{_HERE}.coding:SEARCH_FILES",
    "execute_bash": f"{_HERE}.coding:EXECUTE_BASH",
    "run_tests": f"{_HERE}.coding:RUN_TESTS",
    "r2e_bash_executor": f"{_HERE}.r2e:R2EBash",
    "r2e_search": f"{_HERE}.r2e:R2ESearch",
    "r2e_finish": f"{_HERE}.r2e:R2EFinish",
    **claude_code.TOOL_NAMES,
}
"""Tools, in the order of their reference."""

TOOLSET_NAMES: Final[Mapping[str, str]] = {
    "r2e": f"{_HERE}.r2e:R2E",
    "r2e_edit": f"{_HERE}.r2e:R2E_EDIT",
    "coding": f"{_HERE}.coding:CODING",
    "claude_code": f"{_HERE}.claude_code.toolset:TOOLSET",
}

SOURCE_NAMES: Final[Mapping[str, str]] = {
    "bundle": f"{_HERE}.bundle.tool:bundle",
    "mcp": f"{_HERE}.mcp.tool:mcp",
}
"""Tools that a job brings: these need parameters."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "Architect": TOOL_NAMES["architect"],
    "Calculator": TOOL_NAMES["calculator"],
    "BashExecutor": TOOL_NAMES["bash_executor"],
    "FileEditor": TOOL_NAMES["file_editor"],
    "Search": TOOL_NAMES["search"],
    "Finish": TOOL_NAMES["finish"],
    "K8sBashExecutor": f"{_HERE}.other_names:k8s_bash_executor",
    "K8sFileEditor": f"{_HERE}.other_names:k8s_file_editor",
    "K8sSearch": f"{_HERE}.other_names:k8s_search",
    "k8s_bash_executor": f"{_HERE}.other_names:k8s_bash_executor",
    "k8s_file_editor": f"{_HERE}.other_names:k8s_file_editor",
    "k8s_search": f"{_HERE}.other_names:k8s_search",
    "R2EBashExecutor": TOOL_NAMES["r2e_bash_executor"],
    "R2ESearch": TOOL_NAMES["r2e_search"],
    "R2EFileEditor": f"{_HERE}.other_names:r2e_file_editor",
    "R2EStrReplaceEditor": f"{_HERE}.other_names:r2e_str_replace_editor",
    "R2ESubmit": f"{_HERE}.other_names:r2e_submit",
    "r2e_file_editor": f"{_HERE}.other_names:r2e_file_editor",
    "r2e_str_replace_editor": f"{_HERE}.other_names:r2e_str_replace_editor",
    "r2e_submit": f"{_HERE}.other_names:r2e_submit",
    **claude_code.OTHER_NAMES,
}
"""Names of the same tools elsewhere: loaded like any, listed in no message."""
