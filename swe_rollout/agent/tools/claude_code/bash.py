"""The `Bash` tool of the set: one script, with a folder and a time limit a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolError, ToolSpec
from swe_rollout.agent.tools.bash import run_script
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool
from swe_rollout.agent.tools.claude_code.files import check_path
from swe_rollout.agent.tools.command_rules import CommandRules
from swe_rollout.agent.tools.paths import PathKind, look
from swe_rollout.types.turn import Observation

_LEAST_MS = 100


class Bash(ClaudeCodeTool):
    """Runs a script."""

    def __init__(
        self,
        name: str = "Bash",
        *,
        limit_name: str = "timeout",
        deny: Sequence[str] = (),
        deny_patterns: Sequence[str] = (),
    ) -> None:
        """Offer the tool under `name`; `limit_name` is what its time limit is called.

        `deny`: programs that are not to be run; `deny_patterns`: what no command may match. Raises
        ValueError for a pattern that is none.
        """
        self._limit_name = limit_name
        try:
            patterns = tuple(re.compile(each) for each in deny_patterns)
        except re.error as error:
            raise ValueError(f"deny_patterns: {error}") from error
        self._rules = CommandRules(tuple(deny), patterns)
        super().__init__(
            ToolSpec(
                name,
                "Run a bash script in the sandbox and read its output and exit code. Every call is "
                "a new shell: `cd` and variables do not carry over. There is no terminal and no "
                "input." + (f" Not to be used: {', '.join(deny)}." if deny else ""),
                (
                    Parameter("command", "The script; may have several lines.", required=True),
                    Parameter(
                        limit_name,
                        "Time limit in milliseconds; at most that of the session.",
                        ParameterType.INTEGER,
                    ),
                    Parameter("description", "What the script does, in a few words."),
                    Parameter(
                        "working_directory", "The folder to start in; the repository if not given."
                    ),
                ),
            )
        )

    async def call(self, call: Call) -> Observation:
        limit_ms = call.integer(self._limit_name, least=_LEAST_MS)
        folder = await _folder(call)
        longest_s = call.remaining_s
        limit_s = longest_s if limit_ms is None else min(longest_s, limit_ms / 1000)
        return await run_script(
            call.required("command"),
            call.sandbox,
            replace(call.context, timeout_s=limit_s),
            rules=self._rules,
            folder=folder,
        )


async def _folder(call: Call) -> str | None:
    """Return the folder that a call asks for; ToolError when there is none of that name."""
    folder = call.text("working_directory")
    if folder is None:
        return None
    check_path(folder, "working_directory")
    info = await look(call.sandbox, folder, timeout_s=call.remaining_s)
    if info.kind is not PathKind.DIRECTORY:
        raise ToolError(f"{info.path} is not a folder")
    return info.path
