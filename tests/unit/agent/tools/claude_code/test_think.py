"""The `Think` tool: nothing is run."""

from __future__ import annotations

from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.talk import CLAUDE_THINK
from swe_rollout.testing.extensions.tools import MemorySandbox


async def test_a_thought_runs_nothing_l19() -> None:
    sandbox = MemorySandbox({}, lost=True)

    seen = await CLAUDE_THINK.run({"thought": "x" * 10**6}, sandbox, ToolContext(1, 1024))
    assert seen.text == "noted"
    assert sandbox.uses == 0
