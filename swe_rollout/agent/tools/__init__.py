"""The tools an agent may call, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.agent.tools.base import Tool, Toolbox
from swe_rollout.agent.tools.bash import Bash
from swe_rollout.agent.tools.str_replace_editor import StrReplaceEditor
from swe_rollout.agent.tools.submit import Submit
from swe_rollout.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["toolbox"]


def toolbox(names: Sequence[str]) -> Toolbox:
    """The tools of these names, in this order; raises UsageError for a name nobody has."""
    known: dict[str, Tool] = {
        tool.spec.name: tool for tool in (Bash(), StrReplaceEditor(), Submit())
    }
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"there is no tool named {', '.join(unknown)}",
            fix=f"choose from {', '.join(known)}",
        )
    return Toolbox([known[name] for name in names])
