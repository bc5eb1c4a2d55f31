"""A policy that ends its own sandbox: its episode is over, and what is durable of it is graded.

Issue 16, point 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from swe_rollout.episode import run_episode
from swe_rollout.errors import UnreachableError
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import from_json, to_json
from unit.agent.agent_parts import SUBMIT, bash
from unit.journal.journal_parts import ATTEMPT, Disk, Engine, Life, essence

DESTROY = bash("destroy OOMKilled, exit code 137")


def life(folder: Path, *texts: str, **changes: Any) -> Life:
    """A process, with an engine that plays these texts."""
    return replace(Life(folder, Engine({0: texts})), **changes)


async def played(found: Life) -> Trajectory:
    record = await found.play()
    assert record is not None
    return record


async def test_the_work_of_the_last_durable_turn_is_what_counts(tmp_path: Path) -> None:
    process = life(tmp_path, bash("add a"), bash("add b"), DESTROY, SUBMIT)
    record = await played(process)
    assert record.stop_reason is StopReason.SANDBOX_DESTROYED
    assert record.failure is None
    assert not record.masked
    assert record.stop_evidence == "the sandbox was destroyed: OOMKilled, exit code 137"
    assert record.patch == '{"log": "ab", "prepared": "yes"}'
    assert [turn.index for turn in record.turns] == [0, 1, 2], "the fatal turn is there"
    assert sum(record.loss_mask) == sum(turn.completion_tokens for turn in record.turns)
    assert len(process.disks.started) == 2
    assert all(disk.closed for disk in process.disks.started)


async def test_without_a_durable_turn_nothing_was_done(tmp_path: Path) -> None:
    process = life(tmp_path, DESTROY, SUBMIT)
    record = await played(process)
    assert record.stop_reason is StopReason.SANDBOX_DESTROYED
    assert record.patch == ""
    assert record.failure is None
    assert len(process.disks.started) == 1


async def test_without_a_journal_nothing_was_done(tmp_path: Path) -> None:
    process = life(tmp_path, bash("add a"), bash("add b"), DESTROY)
    record = await run_episode(ATTEMPT, process.context())
    assert record.stop_reason is StopReason.SANDBOX_DESTROYED
    assert record.patch == ""


async def test_it_is_not_tried_again_however_often_a_sample_does_it(tmp_path: Path) -> None:
    process = life(tmp_path, bash("add a"), DESTROY)
    record = await played(process)
    assert record.attempt == 1
    assert record.resumption is None
    assert [turn for _, turn in process.engine.asked] == [0, 1]


async def test_a_sandbox_that_the_platform_lost_is_resumed_as_before(tmp_path: Path) -> None:
    """The same loss without evidence: no stop reason, but another life."""
    deaths = iter([True, False, False])

    @dataclass
    class DiesOnce(Disk):
        dies: bool = False

        async def _run(self, command: str) -> Any:
            if self.dies and command == "add b":
                self.lost = True
            return await super()._run(command)

    process = life(
        tmp_path, bash("add a"), bash("add b"), SUBMIT, make=lambda: DiesOnce(dies=next(deaths))
    )
    record = await played(process)
    assert record.stop_reason is StopReason.SUBMITTED
    assert record.resumption is not None
    assert record.stop_evidence == ""


class Bomb(Disk):
    """Ends each sandbox that shows its state."""

    async def apply(self, delta: Any) -> None:
        await super().apply(delta)
        self.destroyed = "again"

    async def exec(self, command: Any, **options: Any) -> Any:
        self._check()
        return await super().exec(command, **options)


@pytest.mark.parametrize("make", [lambda: Disk(unsaved=("/: too many files",)), Bomb])
async def test_a_state_that_can_not_be_rebuilt_is_no_work(tmp_path: Path, make: Any) -> None:
    record = await played(life(tmp_path, bash("add a"), bash("add b"), DESTROY, make=make))
    assert record.stop_reason is StopReason.SANDBOX_DESTROYED
    assert record.patch == ""


async def test_a_journal_that_is_damaged_is_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = life(tmp_path, bash("add a"), bash("add b"), DESTROY)

    async def damaged(*_: Any) -> bytes:
        return b"nonsense"

    monkeypatch.setattr(process.journals, "chunk", damaged)
    record = await played(process)
    assert record.stop_reason is StopReason.SANDBOX_DESTROYED
    assert record.patch == ""


async def test_a_store_that_is_down_is_the_platforms_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = life(tmp_path, bash("add a"), DESTROY)

    async def down(*_: Any) -> None:
        raise UnreachableError("the store does not respond")

    episodes = await process.episodes()
    monkeypatch.setattr(process.journals, "last", down)
    journal = await episodes._open(ATTEMPT, process.context())
    record = await run_episode(ATTEMPT, process.context(), journal)
    assert record.failure is not None
    assert record.failure.type == "StoreError"
    assert record.failure.retryable


async def test_a_sandbox_that_does_not_start_again_is_the_platforms_failure(
    tmp_path: Path,
) -> None:
    process = life(tmp_path, bash("add a"), DESTROY)
    start = process.disks.start

    async def only_one(request: SandboxRequest) -> Disk:
        assert request.role is Role.AGENT
        if process.disks.started:
            raise OSError("no node")
        return await start(request)

    process.disks.start = only_one  # type: ignore[method-assign]
    episodes = await process.episodes()
    journal = await episodes._open(ATTEMPT, process.context())
    record = await run_episode(ATTEMPT, process.context(), journal)
    assert record.failure is not None
    assert record.failure.type == "SandboxError"
    assert record.reward is None


async def test_evidence_without_end_is_cut(tmp_path: Path) -> None:
    class Talkative(Disk):
        async def _run(self, command: str) -> Any:
            self.destroyed = "x" * 200_000
            return await super()._run(command)

    record = await played(life(tmp_path, bash("add a"), make=Talkative))
    assert len(record.stop_evidence) == 1000


async def test_the_record_keeps_it_and_others_are_as_before(tmp_path: Path) -> None:
    destroyed = await played(life(tmp_path / "1", bash("add a"), DESTROY))
    assert from_json(to_json(destroyed)) == destroyed
    assert essence(destroyed)["stop_evidence"]
    other = await played(life(tmp_path / "2", bash("add a"), SUBMIT))
    assert b"stop_evidence" not in to_json(other)
