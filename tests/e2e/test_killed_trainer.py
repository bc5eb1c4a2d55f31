"""A trainer that reads a store is killed at random moments: no group twice, none lost."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from e2e.store_trainer import train, trained
from swe_rollout import Claim, Trajectory, open_store
from swe_rollout.store.store import Store
from unit.training.group_parts import LOST, begin, sample
from waits import block_until

GROUPS, SAMPLES, RANKS, ROUNDS = 60, 2, 2, 7

PROCESSES = get_context("forkserver")
"""The server imports the package once, and each trainer is a fork of it."""


def commit(store: Store, records: list[Trajectory]) -> None:
    """Commit records, each once."""

    async def all_of_them() -> None:
        for record in records:
            assert await store.commit(record)

    asyncio.run(all_of_them())


def shuffled() -> list[Trajectory]:
    """The samples of all groups in any order, as a job on a cluster ends them; some failed."""
    chance = random.Random(1)
    todo = [(f"task-{n}", each) for n in range(GROUPS) for each in range(SAMPLES)]
    chance.shuffle(todo)
    return [
        sample(name, each, failure=LOST if each and chance.random() < 0.1 else None)
        for name, each in todo
    ]


def test_a_trainer_killed_at_random_moments_trains_each_group_exactly_once(tmp_path: Path) -> None:
    chance = random.Random()
    store = Store.open(f"file://{tmp_path}/store")
    asyncio.run(begin(store, *(f"task-{n}" for n in range(GROUPS)), samples=SAMPLES))
    journals = [tmp_path / f"journal-{rank}" for rank in range(RANKS)]
    for journal in journals:
        journal.touch()
    records = shuffled()
    size = len(records) // (ROUNDS + 1)
    committed: Counter[str] = Counter()
    for epoch in range(ROUNDS):
        committed.update(each.episode.instance for each in records[: size + 3])
        commit(store, records[:size])
        del records[:size]
        ranks = _start(store, epoch, journals)
        commit(store, records[:3])
        del records[:3]
        if list(committed.values()).count(SAMPLES) > len(trained(journals)):
            block_until(partial(_has_claimed, store, epoch))
        time.sleep(chance.uniform(0, 0.3))
        for rank in ranks:
            _kill(rank)
    ranks = _start(store, ROUNDS, journals)
    commit(store, records)
    for rank in ranks:
        _end(rank)

    found = trained(journals)
    assert len(found) == len(set(found)), "a group was trained twice"
    assert set(found) == {f"demo/task-{n}" for n in range(GROUPS)}, "a group was lost"
    claims = _claims(store)
    assert {claim.state for claim in claims} == {"trained"}
    assert max(claim.number for claim in claims) > 2, "no kill fell between claim and ack"


def _claims(store: Store) -> tuple[Claim, ...]:
    return open_store(store.uri).job("demo").claims("t1")


def _has_claimed(store: Store, epoch: int) -> bool:
    return any(claim.epoch == epoch for claim in _claims(store))


def _start(store: Store, epoch: int, journals: list[Path]) -> list[ForkServerProcess]:
    """Start all processes of the trainer, and return when each is about to ask for a group."""
    PROCESSES.set_forkserver_preload(["swe_rollout.launcher.stored_job", "e2e.store_trainer"])
    ready = [PROCESSES.Event() for _ in journals]
    ranks = [
        PROCESSES.Process(target=train, args=(store.uri, epoch, journals, rank, ready[rank]))
        for rank in range(len(journals))
    ]
    for process in ranks:
        process.start()
    for each in ready:
        assert each.wait(timeout=120)
    return ranks


def _kill(process: ForkServerProcess) -> None:
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _end(process: ForkServerProcess) -> None:
    process.join(timeout=120)
    assert process.exitcode == 0
