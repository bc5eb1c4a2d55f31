"""The `Write` tool: create or replace a file with exactly the given text."""

from __future__ import annotations

from collections.abc import Sequence

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import Parameter, ToolSpec
from swe_rollout.agent.tools.claude_code.allowed import AllowedFolders
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.files import find, need_file_or_nothing, write
from swe_rollout.agent.tools.claude_code.text import encoded, snippet
from swe_rollout.agent.tools.paths import PathKind

_ECHO_LINES = 8


class Write(ClaudeCodeTool):
    """Writes a whole file; one that exists keeps its mode."""

    def __init__(self, name: str = "Write", *, folders: Sequence[str] = ()) -> None:
        """Offer the tool under `name`; `folders`: where it may write, all of the sandbox if empty.

        Raises TypeError when these are no paths.
        """
        self._allowed = AllowedFolders.of(folders)
        super().__init__(
            ToolSpec(
                name,
                "Create a file, or replace all of an existing one, with exactly this content. "
                "Missing folders are made.",
                (
                    Parameter("file_path", "The file, such as src/module.py.", required=True),
                    Parameter("content", "The whole content of the file.", required=True),
                ),
            )
        )

    async def call(self, call: Call) -> str:
        info = await find(call, "file_path")
        await need_file_or_nothing(call, info)
        await self._allowed.check(call, info.path)
        data = encoded(call.required("content"), "content")
        await write(call, info, data)
        done = "created" if info.kind is PathKind.MISSING else "replaced"
        shown = await off_loop(snippet, data, 0, 0, around=_ECHO_LINES, most=_ECHO_LINES)
        return f"{done} {info.path}, {len(data)} bytes; {shown}"
