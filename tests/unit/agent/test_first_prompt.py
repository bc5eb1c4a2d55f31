"""Tasks whose first prompt leaves no room for a turn are known before a job begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swe_rollout.agent import first_prompt
from swe_rollout.agent.first_prompt import find_long_prompts
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Prompts
from swe_rollout.errors import UsageError
from swe_rollout.spec.limits import Limits
from swe_rollout.types.instance import Instance
from unit.agent.agent_parts import RENDERER, TOOLS, player
from unit.worker.work_parts import TASK


def parts(context_tokens: int) -> AgentParts:
    limits = Limits(context_tokens=context_tokens)
    return AgentParts(player(), RENDERER, TOOLS, Prompts(), limits)


def task(name: str, statement: str) -> Instance:
    return replace(TASK, instance_id=name, problem_statement=statement)


def size(instance: Instance) -> int:
    first = Prompts().messages(instance.problem_statement, instance.workdir)
    return len(RENDERER.prompt(first, TOOLS.specs).ids)


def test_exactly_the_tasks_that_do_not_fit_are_named_with_their_size() -> None:
    short, long = task("short", "It fails."), task("long", "It fails. " * 200)
    tasks = [short, long, task("longer", "It fails. " * 300)]
    limit = size(long) + 1

    found = find_long_prompts(parts(limit), tasks)
    assert found.tokens == (("long", size(long)), ("longer", size(tasks[2])))
    assert "the first prompts of 2 tasks" in str(found)
    assert f"long ({size(long)} tokens)" in str(found)
    assert "spec.limits.contextTokens" in str(found)
    assert [name for name, _ in find_long_prompts(parts(limit + 1), tasks).tokens] == ["longer"]
    assert find_long_prompts(parts(32768), tasks).tokens == ()


def test_a_context_that_no_task_fits_into_is_refused() -> None:
    bare = size(task("bare", ""))
    with pytest.raises(UsageError, match="too small for every task") as raised:
        find_long_prompts(parts(bare - 10), [TASK])
    assert "without a word of a task" in raised.value.why


def test_many_long_texts_are_not_all_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_prompt, "_MEASURED_BYTES", 40_000)
    tasks = [task(f"t{number}", "long " * 2000) for number in range(50)]
    found = find_long_prompts(parts(2000), tasks)
    assert 1 <= len(found.tokens) < 5


def test_a_text_that_is_no_unicode_is_measured_too() -> None:
    odd = task("odd", "\udcff" * 4000)
    assert find_long_prompts(parts(2000), [odd]).tokens == (("odd", size(odd)),)
