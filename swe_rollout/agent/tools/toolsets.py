"""The toolsets: tools that policies of one system know, under the names they know them by."""

from __future__ import annotations

from typing import Final

from swe_rollout.agent.tools.base import Toolset
from swe_rollout.agent.tools.names import CLAUDE_CODE
from swe_rollout.spec.agent import ToolUse

R2E: Final = Toolset(
    (
        "file_editor",
        ToolUse(use="r2e_bash_executor", name="execute_bash"),
        ToolUse(use="r2e_search", name="search"),
        ToolUse(use="r2e_finish", name="finish"),
        "submit",
    )
)
"""With the editor that undoes edits and shows skeletons."""
R2E_EDIT: Final = Toolset(
    (
        "str_replace_editor",
        ToolUse(use="r2e_bash_executor", name="execute_bash"),
        "submit",
    )
)
"""The flavour with `str_replace_editor`."""
CODING: Final = Toolset(
    (
        *("view_file", "edit_file", "create_file", "search_code", "search_files"),
        *("execute_bash", "run_tests"),
    )
)
CLAUDE: Final = Toolset(CLAUDE_CODE)
