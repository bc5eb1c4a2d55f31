"""Attaching to the sandbox of a process that died: only where it is as the journal says."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.journal.entries import decode
from swe_rollout.spec.limits import Resume, RetrySpec
from swe_rollout.types.episode import Resumption
from swe_rollout.types.trajectory import Trajectory
from unit.agent.agent_parts import SUBMIT, bash
from unit.journal.journal_parts import EPISODE, Death, Engine, essence, undisturbed
from unit.journal.living_parts import Cluster, LivingLife

SERVES = (bash("serve server.py"), bash("add a"), bash("add b"), SUBMIT)
SAMPLING, IN_CALL = 5, 6
"""Calls of the world at which a process dies: the engine's third, and the third command."""


def life(
    folder: Path,
    cluster: Cluster,
    *texts: str,
    death: Death | None = None,
    resume: Resume = Resume.EXACT,
) -> LivingLife:
    retry = RetrySpec(attempts=3, backoff_seconds=0.001, resume=resume)
    made = LivingLife(folder, Engine({0: texts or SERVES}), retry=retry, cluster=cluster)
    return made if death is None else replace(made, death=death)


async def killed(folder: Path, cluster: Cluster, at: int, *texts: str) -> LivingLife:
    dead = life(folder, cluster, *texts, death=Death(at))
    assert await dead.play() is None
    return dead


async def same_as_undisturbed(folder: Path, found: Trajectory | None, *texts: str) -> None:
    assert found is not None
    alone = await undisturbed(life(folder / "alone", Cluster(), *texts))
    assert essence(found) == essence(alone)


async def test_a_process_killed_while_the_engine_samples_costs_no_process_of_the_agent(
    tmp_path: Path,
) -> None:
    """Issue 16, point 2: under `resume: exact`, with a server that the agent left running."""
    cluster = Cluster()
    await killed(tmp_path, cluster, SAMPLING)
    second = life(tmp_path, cluster)
    found = await second.play()
    assert found is not None
    assert found.resumption == Resumption(1, (), attached=1)
    assert second.living.started == []
    assert second.living.attached[0].ended == ("server.py",)
    assert [turn for _, turn in second.engine.asked] == [2, 3]
    await same_as_undisturbed(tmp_path, found)


@pytest.mark.parametrize("resume", [Resume.EXACT, Resume.BEST])
async def test_a_command_that_ran_for_the_turn_that_is_lost_is_rolled_back(
    tmp_path: Path, resume: Resume
) -> None:
    cluster = Cluster(dies_late=True)
    # Two calls of the world for each command now: the process dies when the third one has run.
    await killed(tmp_path, cluster, 9)
    assert cluster.disks[0].files["log"] == "ab"
    second = life(tmp_path, cluster, resume=resume)
    found = await second.play()
    assert second.living.attached == []
    assert cluster.disks[0].closed
    assert cluster.disks[-1].files["log"] == "ab"
    expected = None if resume is Resume.EXACT else Resumption(1, ("process: server.py",))
    assert found is not None
    assert found.resumption == expected
    await same_as_undisturbed(tmp_path, found)


async def test_a_sandbox_that_does_not_answer_is_rebuilt_and_ended(tmp_path: Path) -> None:
    cluster = Cluster(reachable=False)
    texts = (bash("add a"), bash("add b"), bash("add c"), SUBMIT)
    await killed(tmp_path, cluster, SAMPLING, *texts)
    found = await life(tmp_path, cluster, *texts).play()
    assert found is not None
    assert found.resumption == Resumption(1)
    assert cluster.left == []
    await same_as_undisturbed(tmp_path, found, *texts)


async def test_no_two_lives_of_an_attempt_have_one_number(tmp_path: Path) -> None:
    """It separates their frames: what a command recorded of one life is no use in another one."""
    cluster = Cluster(reachable=False)
    texts = (bash("add a"), bash("add b"), bash("add c"), SUBMIT)
    lives: list[int] = []
    for at in (SAMPLING, 1, 2, 1, 2):
        dead = await killed(tmp_path, cluster, at, *texts)
        lives += dead.living.lives
    assert lives == sorted(set(lives))
    assert min(lives) > 0


async def test_what_was_lost_stays_in_the_record_when_a_later_process_attaches(
    tmp_path: Path,
) -> None:
    cluster = Cluster()
    await killed(tmp_path, cluster, SAMPLING)
    cluster.disks[0].closed = True
    middle = life(tmp_path, cluster, resume=Resume.BEST, death=Death(3))
    assert await middle.play() is None
    last = life(tmp_path, cluster, resume=Resume.BEST)
    found = await last.play()
    assert found is not None
    assert found.resumption == Resumption(2, ("process: server.py",), attached=1)


async def test_a_journal_has_a_mark_for_each_turn_and_no_key(tmp_path: Path) -> None:
    await killed(tmp_path, Cluster(), SAMPLING)
    paths = sorted((tmp_path / "job/journals/one/0/1").glob("*.msgpack.zst"))
    marks = [decode(path.read_bytes()).mark for path in paths]
    assert [mark and mark.effects for mark in marks] == [1, 2]


COMMANDS = st.sampled_from(["add a", "add b", "serve one", "serve two", "look"])


@settings(max_examples=50, deadline=None)
@given(
    commands=st.lists(COMMANDS, max_size=5),
    deaths=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    dies_late=st.booleans(),
    reachable=st.lists(st.booleans(), min_size=5, max_size=5),
    finishes_writes=st.booleans(),
)
async def test_attached_or_rebuilt_each_command_counts_once_and_nothing_is_left(
    commands: list[str],
    deaths: list[int],
    dies_late: bool,  # noqa: FBT001 - hypothesis gives it by name
    reachable: list[bool],
    finishes_writes: bool,  # noqa: FBT001
) -> None:
    """Issue 16, point 2, for every moment at which a process dies, and every chain of them."""
    texts = (*map(bash, commands), SUBMIT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = life(folder / "alone", Cluster(), *texts)
        expected = await undisturbed(alone)
        cluster = Cluster(dies_late=dies_late)
        lives = [Death(at, finishes_writes=finishes_writes) for at in deaths]
        for death, cluster.reachable in zip([*lives, Death()], reachable, strict=False):
            process = life(folder / "killed", cluster, *texts, death=death)
            if not await process.journals.listed():  # as a worker does when it starts
                await process.living.delete_orphans([EPISODE])
            if (found := await process.play()) is not None:
                break
        assert found is not None
        assert essence(found) == essence(expected)
        assert cluster.left == []
        if used := [*process.living.attached, *process.living.started]:
            # What its processes and files are is what one life would have made of them.
            original = alone.living.started[-1]
            assert (used[-1].files, used[-1].ended) == (original.files, original.ended)
