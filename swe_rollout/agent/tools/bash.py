"""The `bash` tool: one script in the sandbox; streams apart, exit code stated, output bounded."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Final

from pydantic.dataclasses import dataclass

from swe_rollout.agent.tools.base import (
    CONFIGURATION,
    Parameter,
    ParameterType,
    Tool,
    ToolContext,
    ToolSpec,
    cut_middle,
    text_argument,
)
from swe_rollout.agent.tools.command_rules import NO_RULES, CommandRules
from swe_rollout.agent.tools.outcome import program_observation
from swe_rollout.agent.tools.shell_session import ShellSession
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

_MAX_FOLDER = 200

COMMAND: Final = Parameter("command", "The script; may have several lines.", required=True)
_RESTART: Final = Parameter(
    "restart",
    "true: forget the session's folder, variables and functions before the command runs.",
    ParameterType.BOOLEAN,
)
_EACH_CALL: Final = (
    "Every call is a new shell that starts in the repository: `cd` and variables do not carry over."
)
_SESSION: Final = (
    "The calls are one session: folder, variables, functions and options carry over, also after an "
    "`exit`. A command that is killed leaves the session as it was before."
)


@dataclass(frozen=True, config=CONFIGURATION)
class Bash(Tool):
    """Runs a script: each call in a shell of its own, or all of an episode's in one session."""

    session: bool = False
    """Whether folder, variables, functions and options carry over from call to call."""
    deny: tuple[str, ...] = ()
    """Programs that the policy is not to run; a rule of conduct, not a wall."""
    deny_patterns: tuple[re.Pattern[str], ...] = ()
    """Regular expressions that no command of a script may match."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "bash",
            "Run a bash script in the sandbox and read its output and exit code. "
            f"{_SESSION if self.session else _EACH_CALL} There is no terminal and no input."
            + (f" Not to be used: {', '.join(self.deny)}." if self.deny else ""),
            (COMMAND, _RESTART) if self.session else (COMMAND,),
        )

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        command = text_argument(arguments, "command") or ""
        session = context.state.of(ShellSession) if self.session else None
        if session and arguments.get("restart") is True:
            session.restart()
        return await run_script(
            command,
            sandbox,
            context,
            rules=CommandRules(self.deny, self.deny_patterns),
            session=session,
        )


async def run_script(
    script: str,
    sandbox: Sandbox,
    context: ToolContext,
    *,
    rules: CommandRules = NO_RULES,
    session: ShellSession | None = None,
    folder: str | None = None,
    titles: tuple[str, str] = ("stdout:", "stderr:"),
) -> Observation:
    """Run a script and return what the policy reads of it.

    `folder`: where it starts; none: the sandbox's, or the session's. `titles` stand before the two
    streams.
    """
    if "\0" in script or "\0" in (folder or ""):
        return Observation("error: a command can't hold a NUL character")
    if refusal := rules.refusal(script):
        return Observation(cut_middle(f"error: {refusal}", context.output_bytes))
    if session is None:
        cwd = posixpath.join(sandbox.workdir, folder) if folder else None
        result = await sandbox.exec(script, cwd=cwd, timeout_s=context.timeout_s)
        return program_observation(result, context, titles=titles)
    result, problem = await session.run(sandbox, script, timeout_s=context.timeout_s)
    moved = session.folder not in {"", sandbox.workdir}
    # A path that is not whole would send the policy elsewhere.
    where = f"folder: {session.folder}" if moved and len(session.folder) <= _MAX_FOLDER else ""
    return program_observation(result, context, titles=titles, note=problem or where)
