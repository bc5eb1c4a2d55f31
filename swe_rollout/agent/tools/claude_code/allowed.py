"""Folders that a job allows a tool to write to: a rule of conduct, which no shell knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.claude_code.call import Call
from swe_rollout.agent.tools.claude_code.files import is_within, real_paths


@dataclass(frozen=True, slots=True)
class AllowedFolders:
    """Folders; none: all of the sandbox."""

    folders: tuple[str, ...]

    @classmethod
    def of(cls, folders: Sequence[str]) -> AllowedFolders:
        """Take what a job configures; TypeError for anything but a list of paths."""
        if isinstance(folders, str) or not all(isinstance(each, str) for each in folders):
            raise TypeError("folders must be a list of paths, such as [src, tests]")
        return cls(tuple(folders))

    async def check(self, call: Call, path: str) -> None:
        """Raise ToolError when a path, links followed, is in none of the folders."""
        if not self.folders:
            return
        target, *allowed = await real_paths(call, [path, *self.folders])
        if not any(is_within(target, each) for each in allowed):
            raise ToolError(f"{path} is not in {' or '.join(self.folders)}, where changes belong")
