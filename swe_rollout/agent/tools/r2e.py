"""The tools of R2E-Gym by the names and parameters that policies trained with it know."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from pydantic.dataclasses import dataclass

from swe_rollout.agent.tools.base import (
    CONFIGURATION,
    Parameter,
    ParameterType,
    Tool,
    ToolContext,
    ToolError,
    Toolset,
    ToolSpec,
    cut_middle,
    text_argument,
)
from swe_rollout.agent.tools.bash import run_script
from swe_rollout.agent.tools.command_rules import CommandRules
from swe_rollout.agent.tools.grep import Place, Text, search, shown_path
from swe_rollout.agent.tools.search import SKIPS, search_text
from swe_rollout.agent.tools.shell_session import ShellSession
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.types.turn import Observation

_TITLES: Final = ("[STDOUT]", "[STDERR]")
_MOST: Final = 1000


@dataclass(frozen=True, config=CONFIGURATION)
class R2EBash(Tool):
    """Runs a command, given as `cmd` or as `command`."""

    deny: tuple[str, ...] = ("git", "ipython", "jupyter", "nohup")
    """Programs that the policy is not to run; a rule of conduct, not a wall."""
    session: bool = False
    """Whether folder, variables, functions and options carry over from call to call."""

    @property
    def spec(self) -> ToolSpec:
        denied = f" Not to be used: {', '.join(self.deny)}." if self.deny else ""
        return ToolSpec(
            "r2e_bash_executor",
            "Run a bash command in the sandbox and read its output and exit code. There is no "
            f"terminal and no input.{denied}",
            (
                Parameter("cmd", "The command; may have several lines."),
                Parameter("command", "Another name of cmd."),
            ),
        )

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        given = [text_argument(arguments, each) for each in ("cmd", "command")]
        scripts = [each for each in given if each is not None]
        if len(scripts) != 1:
            return Observation("error: give one command, as cmd")
        return await run_script(
            scripts[0],
            sandbox,
            context,
            rules=CommandRules(self.deny),
            session=context.state.of(ShellSession) if self.session else None,
            titles=_TITLES,
        )


class R2ESearch(Tool):
    """Counts a text by file below a folder, or shows its lines in one file."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "r2e_search",
            "Search for a text. In a folder: the files that have it, each with its number of "
            f"lines. In a file: these lines with their numbers. Case matters. {SKIPS}",
            (
                Parameter("search_term", "The text.", required=True),
                Parameter("path", "The file or folder; default: where commands start."),
                Parameter(
                    "python_only",
                    "In a folder: whether to search only files that end in .py; default false.",
                    ParameterType.BOOLEAN,
                ),
            ),
        )

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        path = text_argument(arguments, "path") or "."
        place = Place(path, ("*.py",) if arguments.get("python_only") is True else ())
        try:
            text = Text(text_argument(arguments, "search_term") or "")
            found = await search(sandbox, text, place, timeout_s=context.timeout_s)
            if list(found.counts) == [found.root]:
                return await search_text(text, place, sandbox, context, most=_MOST)
        except ToolError as error:
            return Observation(cut_middle(f"error: {error}", context.output_bytes))
        head = f"{found.total} matching lines in {len(found.counts)} files"
        if len(found.counts) > _MOST:
            head += f"; the first {_MOST} files are shown"
        lines = [head, *(f"note: {each}" for each in found.problems)]
        lines += [
            f"{shown_path(each, sandbox.workdir)} ({count})"
            for each, count in islice(found.counts.items(), _MOST)
        ]
        text_shown = "\n".join(lines)
        shown = cut_middle(text_shown, context.output_bytes)
        return Observation(shown, truncated=shown != text_shown)


class R2EFinish(Tool):
    """Ends the episode."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "r2e_finish",
            "Hand in your work: the changes in the repository as they are now. Ends the session.",
            (
                Parameter("command", "What to do.", required=True, choices=("submit",)),
                Parameter("result", "What you have done, in your own words."),
            ),
            ends_episode=True,
        )

    async def run(
        self,
        arguments: Mapping[str, object],  # noqa: ARG002 - the record has them
        sandbox: Sandbox,  # noqa: ARG002 - nothing is run
        context: ToolContext,  # noqa: ARG002 - nothing is used up
    ) -> Observation:
        return Observation("<<<Finished>>>")


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
