"""The first prompt of an episode, and tasks whose prompt leaves no room for a turn.

The policy is not to blame for them: such an episode is a failure of its task, without a reward.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.parts import AgentParts
from swe_rollout.errors import TaskError, UsageError
from swe_rollout.types.instance import Instance

_MEASURED_BYTES: Final = 4 << 20
"""Total size of the prompts to tokenise in advance, which takes a second or two."""


class PromptTooLongError(TaskError):
    """The task's first prompt leaves no room for a turn."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "the first prompt leaves no room for a turn",
            why=why,
            fix="raise spec.limits.contextTokens, as far as the engine allows, shorten the prompts "
            "of spec.agent, or leave the task out by spec.dataset.exclude",
            retryable=False,
        )


@dataclass(frozen=True, slots=True)
class LongPrompts:
    """Tasks whose first prompt is too long."""

    tokens: tuple[tuple[str, int], ...]
    """The id of each task, and the number of tokens in its prompt."""
    limit: int
    """The maximum number of tokens in prompt and completions together."""

    def __str__(self) -> str:
        """Describe the tasks in one line."""
        shown = ", ".join(f"{name} ({size} tokens)" for name, size in self.tokens[:3])
        more = len(self.tokens) - 3
        tasks = (
            "the first prompt of 1 task"
            if len(self.tokens) == 1
            else (f"the first prompts of {len(self.tokens)} tasks")
        )
        return (
            f"{tasks} will not fit into {self.limit} tokens, and their episodes will fail: "
            f"{shown}{f' and {more} more' if more > 0 else ''}; raise spec.limits.contextTokens, "
            "or leave them out by spec.dataset.exclude"
        )


def fits(tokens: int, limit: int) -> bool:
    """Return whether there is room for a turn after this many tokens."""
    # Engines refuse a request that could fill the context to its last token.
    return tokens + 1 < limit


def find_long_prompts(parts: AgentParts, instances: Iterable[Instance]) -> LongPrompts:
    """Return the tasks whose prompt, as `AgentContext.task` presents it, leaves no room for a turn.

    Only texts that may be too long are tokenised, up to a few megabytes of them. Raises UsageError
    if even the prompt of an empty task would not fit.
    """
    limit, renderer = parts.limits.context_tokens, parts.tokens.renderer

    def size(statement: str, workdir: str) -> int:
        first = parts.prompts.messages(statement, workdir)
        return len(renderer.prompt(first, parts.toolbox.specs).ids)

    without_task = size("", "/")
    if not fits(without_task, limit):
        raise UsageError(
            f"a context of {limit} tokens is too small for every task",
            why=f"the prompt has {without_task} tokens without a word of a task",
            fix="raise spec.limits.contextTokens, give the engine more context, or shorten the "
            "prompts and tools of spec.agent",
        )
    found: list[tuple[str, int]] = []
    left = _MEASURED_BYTES
    for each in instances:
        user = parts.prompts.messages(each.problem_statement, each.workdir)[-1].content
        length = len(user.encode(errors="replace"))
        # A token is at least a byte.
        if fits(without_task + length, limit):
            continue
        left -= length
        if left < 0:
            break
        tokens = size(each.problem_statement, each.workdir)
        if not fits(tokens, limit):
            found.append((each.instance_id, tokens))
    return LongPrompts(tuple(found), limit)
