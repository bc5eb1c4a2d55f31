"""Names of the built-in tools and toolsets, and where each is. A tool is imported when it is first
named. docs/reference/tools.md is generated from this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from swe_rollout.agent.tools.base import Toolset
from swe_rollout.spec.agent import ToolUse


def _homes(homes: Mapping[str, str]) -> dict[str, str]:
    return {name: f"swe_rollout.agent.tools.{home}" for name, home in homes.items()}


_CLAUDE_CODE: Final = _homes(
    {
        "Bash": "shell:claude_bash",
        "Read": "claude_files:READ",
        "Write": "claude_files:write_face",
        "Edit": "claude_files:edit_face",
        "MultiEdit": "claude_files:multi_edit_face",
        "Glob": "search.listing:GLOB",
        "Grep": "search.claude:grep",
        "LS": "search.listing:LS",
        "NotebookRead": "notebook_faces:NOTEBOOK_READ",
        "NotebookEdit": "notebook_faces:notebook_edit",
        "TodoWrite": "notes:TODO_WRITE",
        "TodoRead": "notes:TODO_READ",
        "MemoryRead": "notes:MEMORY_READ",
        "MemoryWrite": "notes:MEMORY_WRITE",
        "Think": "talk:CLAUDE_THINK",
    }
)
CLAUDE_CODE: Final = tuple(_CLAUDE_CODE)
"""The tools that users of Claude Code know, in the order in which they are offered."""

TOOL_NAMES: Final = {
    **_homes(
        {
            "bash": "shell:bash",
            "bash_executor": "shell:bash_executor",
            "str_replace_editor": "editor_faces:str_replace_editor",
            "file_editor": "editor_faces:file_editor",
            "search": "search.faces:search",
            "calculator": "calculator:calculator",
            "think": "talk:THINK",
            "agent": "talk:SUB_AGENT",
            "architect": "talk:ARCHITECT",
            "submit": "talk:SUBMIT",
            "finish": "talk:FINISH",
            "view_file": "editor_faces:VIEW_FILE",
            "edit_file": "editor_faces:EDIT_FILE",
            "create_file": "editor_faces:CREATE_FILE",
            "search_code": "search.faces:SEARCH_CODE",
            "search_files": "search.faces:SEARCH_FILES",
            "execute_bash": "shell:EXECUTE_BASH",
            "run_tests": "shell:RUN_TESTS",
            "r2e_bash_executor": "shell:r2e_bash",
            "r2e_search": "search.faces:R2E_SEARCH",
            "r2e_finish": "talk:R2E_FINISH",
        }
    ),
    **_CLAUDE_CODE,
}
"""Tools, in the order of the reference."""

TOOLSET_NAMES: Final = _homes(
    {
        "r2e": "names:R2E",
        "r2e_edit": "names:R2E_EDIT",
        "coding": "names:CODING",
        "claude_code": "names:CLAUDE",
    }
)

SOURCE_NAMES: Final = _homes({"bundle": "bundle.tool:bundle", "mcp": "mcp.tool:mcp"})
"""Sources of tools that a job brings, which need parameters."""

OTHER_NAMES: Final = {
    "Architect": TOOL_NAMES["architect"],
    "Calculator": TOOL_NAMES["calculator"],
    "BashExecutor": TOOL_NAMES["bash_executor"],
    "FileEditor": TOOL_NAMES["file_editor"],
    "Search": TOOL_NAMES["search"],
    "Finish": TOOL_NAMES["finish"],
    "R2EBashExecutor": TOOL_NAMES["r2e_bash_executor"],
    "R2ESearch": TOOL_NAMES["r2e_search"],
    **_homes(
        {
            "K8sBashExecutor": "shell:k8s_bash_executor",
            "K8sFileEditor": "editor_faces:k8s_file_editor",
            "K8sSearch": "search.faces:k8s_search",
            "k8s_bash_executor": "shell:k8s_bash_executor",
            "k8s_file_editor": "editor_faces:k8s_file_editor",
            "k8s_search": "search.faces:k8s_search",
            "R2EFileEditor": "editor_faces:r2e_file_editor",
            "R2EStrReplaceEditor": "editor_faces:r2e_str_replace_editor",
            "R2ESubmit": "talk:R2E_SUBMIT",
            "r2e_file_editor": "editor_faces:r2e_file_editor",
            "r2e_str_replace_editor": "editor_faces:r2e_str_replace_editor",
            "r2e_submit": "talk:R2E_SUBMIT",
            "k8s_bash": "shell:k8s_bash",
            "k8s_file_read": "claude_files:K8S_FILE_READ",
            "Replace": "claude_files:replace_face",
            "k8s_file_edit": "claude_files:k8s_file_edit",
            "ReadNotebook": "notebook_faces:READ_NOTEBOOK",
            "NotebookEditCell": "notebook_faces:notebook_edit_cell",
        }
    ),
}
"""Names of the same tools in other systems: they can be loaded, but no message lists them."""

R2E: Final = Toolset(
    (
        "file_editor",
        ToolUse(use="r2e_bash_executor", name="execute_bash"),
        ToolUse(use="r2e_search", name="search"),
        ToolUse(use="r2e_finish", name="finish"),
        "submit",
    )
)
"""R2E-Gym's tools, with the editor that undoes edits and shows skeletons."""
R2E_EDIT: Final = Toolset(
    (
        "str_replace_editor",
        ToolUse(use="r2e_bash_executor", name="execute_bash"),
        "submit",
    )
)
"""R2E-Gym's tools, with `str_replace_editor`."""
CODING: Final = Toolset(
    (
        *("view_file", "edit_file", "create_file", "search_code", "search_files"),
        *("execute_bash", "run_tests"),
    )
)
CLAUDE: Final = Toolset(CLAUDE_CODE)
