"""The `bash_executor` tool: `bash` with a folder and a time that the policy chooses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from swe_rollout.agent.tools.base import (
    CONFIGURATION,
    Parameter,
    ParameterType,
    Tool,
    ToolContext,
    ToolSpec,
    text_argument,
)
from swe_rollout.agent.tools.bash import COMMAND, run_script
from swe_rollout.agent.tools.command_rules import CommandRules
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

_MIN_S: Final = 0.1


@dataclass(frozen=True, config=CONFIGURATION)
class BashExecutor(Tool):
    """Runs a script in a shell of its own."""

    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds where the policy names none; never more than a call may take."""
    deny: tuple[str, ...] = ()
    """Programs that the policy is not to run; a rule of conduct, not a wall."""
    deny_patterns: tuple[re.Pattern[str], ...] = ()
    """Regular expressions that no command of a script may match."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "bash_executor",
            "Run a bash script in the sandbox and read its output and exit code. Every call is a "
            "new shell. There is no terminal and no input."
            + (f" Not to be used: {', '.join(self.deny)}." if self.deny else ""),
            (
                COMMAND,
                Parameter("working_directory", "The folder in which it starts."),
                Parameter(
                    "timeout",
                    f"Seconds until it is killed; default {self.timeout:g}.",
                    ParameterType.NUMBER,
                ),
                Parameter(
                    "capture_output",
                    "Whether to return its output; default true. The exit code always is.",
                    ParameterType.BOOLEAN,
                ),
            ),
        )

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        wanted = arguments.get("timeout", self.timeout)
        seconds = wanted if isinstance(wanted, int | float) else self.timeout
        seen = await run_script(
            text_argument(arguments, "command") or "",
            sandbox,
            replace(context, timeout_s=min(max(seconds, _MIN_S), context.timeout_s)),
            rules=CommandRules(self.deny, self.deny_patterns),
            folder=text_argument(arguments, "working_directory"),
        )
        if arguments.get("capture_output") is False and seen.exit_code is not None:
            return replace(seen, text=seen.text.partition("\n")[0], truncated=False)
        return seen
