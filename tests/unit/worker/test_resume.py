"""Resuming: whose journal it is, what it takes to go on with one, and what becomes of it."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import zstandard

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.function import FunctionTool
from swe_rollout.errors import StoreError, UnreachableError
from swe_rollout.events import TurnEnded
from swe_rollout.journal import writer as writer_module
from swe_rollout.journal.entries import (
    FORMAT,
    Chunk,
    Done,
    Entry,
    Sampled,
    compress,
    decode,
    encode,
)
from swe_rollout.journal.reading import read
from swe_rollout.journal.restoring import why_not
from swe_rollout.journal.writer import TakenOverError
from swe_rollout.spec.limits import FailureBudget, Limits, Resume, RetrySpec
from swe_rollout.store.journals import JournalRef
from swe_rollout.store.store import Store
from swe_rollout.text import redaction
from swe_rollout.types import deadline
from swe_rollout.types.episode import EpisodeId, Resumption, StopReason
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker import scheduler as scheduler_module
from swe_rollout.worker.backlog import Backlog, Episodes
from swe_rollout.worker.resume import ResumableEpisodes, open_journals
from swe_rollout.worker.scheduler import EpisodeScheduler
from unit.agent.agent_parts import SUBMIT, bash
from unit.journal.fork_parts import job
from unit.journal.journal_parts import (
    ATTEMPT,
    DAMAGE,
    EPISODE,
    TASK,
    Death,
    Disk,
    Engine,
    Life,
    essence,
    undisturbed,
)
from unit.worker.worker_parts import Listener

TEXTS = (bash("add a"), bash("add b"), bash("add c"), SUBMIT)


def life(folder: Path, *texts: str, **changes: Any) -> Life:
    """A process, with an engine that plays these texts."""
    made = Life(folder, Engine({0: texts or TEXTS}))
    return replace(made, **changes)


def chunks(folder: Path, journal: int = 1) -> list[Path]:
    """The files of a journal, in order."""
    found = (folder / "job/journals/one/0" / str(journal)).glob("*.msgpack.zst")
    return sorted(found, key=lambda path: int(path.name.partition(".")[0]))


async def killed(folder: Path, at: int, *texts: str, **changes: Any) -> Life:
    """A process that died at this call of the world; what it wrote is there."""
    dead = life(folder, *texts, death=Death(at), **changes)
    assert await dead.play() is None
    return dead


async def same_as_undisturbed(tmp_path: Path, found: Trajectory | None, *texts: str) -> None:
    assert found is not None
    assert essence(found) == essence(await undisturbed(life(tmp_path / "alone", *texts)))


async def test_an_episode_goes_on_and_says_so(tmp_path: Path) -> None:
    await killed(tmp_path, 6)
    second = life(tmp_path)
    found = await second.play()
    assert found is not None
    assert found.resumption == Resumption(1)
    assert [turn for _, turn in second.engine.asked] == [2, 3]
    await same_as_undisturbed(tmp_path, found)


async def test_a_turn_costs_one_write_and_the_first_none_more(tmp_path: Path) -> None:
    alone = life(tmp_path)
    await undisturbed(alone)
    assert alone.journals.written == len(TEXTS)


@pytest.mark.parametrize("killed_at", [None, 6])
async def test_durable_turns_are_told_and_that_somebody_goes_on_is_none(
    tmp_path: Path, killed_at: int | None
) -> None:
    if killed_at is not None:
        await killed(tmp_path, killed_at)
    told = list[int]()
    now = life(tmp_path)
    there = dict(await now.journals.listed())
    episodes = ResumableEpisodes(now.journals, there, on_turn=lambda: told.append(1))

    await episodes.play(ATTEMPT, now.context())

    assert len(told) == len(now.engine.asked)


async def test_an_agent_that_had_ended_is_not_played_again(tmp_path: Path) -> None:
    first = life(tmp_path)
    expected = await undisturbed(first)
    second = life(tmp_path)
    found = await second.play()
    assert found is not None
    assert essence(found) == essence(expected)
    assert (second.engine.asked, second.disks.started) == ([], [])


async def test_every_start_of_a_chain_of_deaths_counts(tmp_path: Path) -> None:
    await killed(tmp_path, 4)
    await killed(tmp_path, 2)
    found = await life(tmp_path).play()
    assert found is not None
    assert found.resumption == Resumption(2)


LONG = (*TEXTS[:-1], bash("add d"), bash("add e"), SUBMIT)


def rewritten(path: Path, **fields: object) -> None:
    """Change fields of a chunk, whose checksum is right again."""
    chunk = msgspec.structs.replace(decode(path.read_bytes()), **fields)
    path.write_bytes(compress(encode(chunk)))


def with_odd_ids(path: Path) -> tuple[Entry, ...]:
    """The answers of a chunk, whose sampled ids do not fit their logprobs."""
    entries = decode(path.read_bytes()).entries
    return tuple(
        msgspec.structs.replace(
            each, answer=msgspec.structs.replace(each.answer, ids=each.answer.ids[:-4])
        )
        if isinstance(each.answer, Sampled)
        else each
        for each in entries
    )


@pytest.mark.parametrize(
    "broken",
    [
        *DAMAGE,
        *("header", "gap", "first", "swapped", "twice"),
        *("another sample's", "no files", "odd ids"),
    ],
)
async def test_a_damaged_journal_is_kept_aside_and_the_episode_begins_anew(
    tmp_path: Path, broken: str
) -> None:
    """Nobody waits for an owner that there is not, and no attempt is charged."""
    await killed(tmp_path, 10, *LONG)
    there = chunks(tmp_path)
    data = [path.read_bytes() for path in there]
    match broken:
        case "header":
            there[1].write_bytes(data[0])
        case "gap":
            there[1].unlink()
        case "first":
            there[0].unlink()
        case "swapped":
            there[1].write_bytes(data[2])
            there[2].write_bytes(data[1])
        case "twice":
            there[-1].with_name(f"{len(there)}.msgpack.zst").write_bytes(data[-1])
        case "another sample's":
            other = Life(tmp_path, Engine({0: (bash("add x"), *LONG[1:])}), death=Death(10))
            assert await other.play(replace(ATTEMPT, episode=EpisodeId("job", "one", 1))) is None
            folder = tmp_path / "job/journals/one"
            shutil.copytree(folder / "1", folder / "0", dirs_exist_ok=True)
        case "no files":
            rewritten(there[-1], delta=None)
        case "odd ids":
            rewritten(there[1], entries=with_odd_ids(there[1]))
        case _:
            there[1].write_bytes(DAMAGE[broken](data[1]))
    second = life(tmp_path, *LONG)
    found = await second.play()
    assert found is not None
    assert (found.attempt, found.resumption) == (1, None)
    await same_as_undisturbed(tmp_path, found, *LONG)
    assert not [path for path in chunks(tmp_path) if path.exists()]
    aside = list((tmp_path / "job/damaged/one/0").iterdir())
    assert len(aside) == len(there) + {"gap": -1, "first": -1, "twice": 1}.get(broken, 0)


async def test_a_journal_of_another_format_is_not_gone_on_with(tmp_path: Path) -> None:
    await killed(tmp_path, 6)
    header = decode(chunks(tmp_path)[0].read_bytes()).header
    assert header is not None
    rewritten(chunks(tmp_path)[0], header=msgspec.structs.replace(header, format=FORMAT + 1))
    found = await life(tmp_path).play()
    assert found is not None
    assert found.resumption is None
    await same_as_undisturbed(tmp_path, found)


async def test_a_journal_that_another_process_removes_meanwhile_stops_nobody(
    tmp_path: Path,
) -> None:
    """It has committed the episode between the listing and the reading of its chunks."""
    await killed(tmp_path, 6)
    second = life(tmp_path)
    read = second.journals.read

    async def removed(ref: JournalRef) -> Sequence[bytes]:
        await second.journals.remove([EPISODE])
        return await read(ref)

    second.journals.read = removed  # type: ignore[method-assign]
    found = await second.play()
    assert found is not None
    await same_as_undisturbed(tmp_path, found)
    assert not (tmp_path / "job/damaged").exists()


@pytest.mark.parametrize("change", ["dropped", "swapped", "answered otherwise"])
async def test_a_journal_that_does_not_fit_is_no_part_of_the_record(
    tmp_path: Path, change: str
) -> None:
    await killed(tmp_path, 6)
    first, second = chunks(tmp_path)[:2]
    data = [decode(path.read_bytes()) for path in (first, second)]
    entries = [*data[0].entries, *data[1].entries]
    match change:
        case "dropped":
            del entries[1]
        case "swapped":
            entries[0], entries[2] = entries[2], entries[0]
        case _:
            entries[1] = msgspec.structs.replace(entries[1], answer=Done())
    first.write_bytes(compress(encode(msgspec.structs.replace(data[0], entries=tuple(entries)))))
    second.write_bytes(compress(encode(msgspec.structs.replace(data[1], entries=()))))
    found = await life(tmp_path).play()
    assert found is not None
    assert found.resumption is None
    await same_as_undisturbed(tmp_path, found)
    assert decode(chunks(tmp_path)[-1].read_bytes()).closes


@pytest.mark.parametrize(
    "changes",
    [
        {"spec_digest": "ffffffffffff"},
        {"limits": Limits(turns=12, context_tokens=4096, max_new_tokens=200)},
    ],
)
async def test_an_episode_of_another_configuration_begins_anew(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    await killed(tmp_path, 6)
    found = await life(tmp_path, **changes).play()
    assert found is not None
    assert found.resumption is None
    expected = await undisturbed(life(tmp_path / "alone", **changes))
    assert essence(found) == essence(expected)


async def test_a_journal_is_gone_on_with_by_the_same_attempt_alone(tmp_path: Path) -> None:
    await killed(tmp_path, 6)
    context = life(tmp_path).context()
    (ref,) = (await life(tmp_path).journals.listed()).values()
    earlier = await read(ref, [path.read_bytes() for path in chunks(tmp_path)])
    assert why_not(earlier, ATTEMPT, context) == ""
    other = replace(ATTEMPT, instance=replace(TASK, problem_statement="another"))
    for named, attempt, now in (
        ("attempt", replace(ATTEMPT, number=2), context),
        ("instance", other, context),
        ("spec", ATTEMPT, replace(context, spec_digest="another")),
        ("policy", ATTEMPT, replace(context, policy=lambda _: "another")),
    ):
        assert why_not(earlier, attempt, now) == f"it is of another {named}"


async def test_another_attempt_does_not_go_on_with_the_one_before(tmp_path: Path) -> None:
    await killed(tmp_path, 6)
    found = await life(tmp_path).play(replace(ATTEMPT, number=2))
    assert found is not None
    assert (found.attempt, found.resumption) == (2, None)


async def test_the_number_of_the_attempt_is_that_of_its_journal(tmp_path: Path) -> None:
    dead = life(tmp_path, death=Death(6))
    assert await dead.play(replace(ATTEMPT, number=2)) is None
    episodes = await life(tmp_path).episodes()
    assert (await episodes.first(ATTEMPT)).number == 2


SERVES = (bash("serve server.py"), bash("add a"), bash("add b"), SUBMIT)


@pytest.mark.parametrize(
    ("resume", "expected"),
    [(Resume.EXACT, None), (Resume.BEST, Resumption(1, ("process: server.py",)))],
)
async def test_a_process_that_was_left_running_is_named_or_the_episode_begins_anew(
    tmp_path: Path, resume: Resume, expected: Resumption | None
) -> None:
    await killed(tmp_path, 6, *SERVES)
    retry = RetrySpec(attempts=3, backoff_seconds=0.001, resume=resume)
    found = await life(tmp_path, *SERVES, retry=retry).play()
    assert found is not None
    assert found.resumption == expected
    await same_as_undisturbed(tmp_path, found, *SERVES)


@pytest.mark.parametrize(
    ("unsaved", "resume", "resumes"),
    [
        ("/big: too large", Resume.EXACT, False),
        ("/big: too large", Resume.BEST, True),
        ("/: too many files", Resume.EXACT, False),
        ("/: too many files", Resume.BEST, False),
    ],
)
async def test_what_was_not_saved_counts_by_policy_and_an_unknown_state_never(
    tmp_path: Path, unsaved: str, resume: Resume, *, resumes: bool
) -> None:
    lacking: Callable[[], Disk] = partial(Disk, unsaved=(unsaved,))
    await killed(tmp_path, 6, make=lacking)
    retry = RetrySpec(attempts=3, backoff_seconds=0.001, resume=resume)
    found = await life(tmp_path, retry=retry).play()
    assert found is not None
    assert (found.resumption is not None) is resumes


async def test_a_lost_sandbox_is_rebuilt_in_the_same_attempt(tmp_path: Path) -> None:
    """The pod is gone, the process lives: the agent goes on where the last durable turn ended."""

    class DiesOnce(Disk):
        async def _run(self, command: str):  # type: ignore[no-untyped-def] # noqa: ANN202
            if command == "add c" and self.number < 3:
                self.lost = True
            return await super()._run(command)

    seen: list[Disk] = []

    def make() -> Disk:
        seen.append(Disk())
        return DiesOnce() if len(seen) == 1 else Disk()

    found = await life(tmp_path, make=make).play()
    assert found is not None
    assert (found.attempt, found.failure, found.resumption) == (1, None, Resumption(1))
    await same_as_undisturbed(tmp_path, found)


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_sandbox_that_is_lost_before_the_first_durable_turn_costs_an_attempt_only_twice(
    tmp_path: Path, deaths: int
) -> None:
    """Its records are those of an episode that was left alone, as in any other turn."""
    started: list[Disk] = []

    class Dies(Disk):
        async def _run(self, command: str):  # type: ignore[no-untyped-def] # noqa: ANN202
            self.lost = self.lost or command == "add a"
            return await super()._run(command)

    def make() -> Disk:
        started.append(Dies() if len(started) < deaths else Disk())
        return started[-1]

    found = await life(tmp_path, make=make).play()
    assert found is not None
    if deaths == 1:
        assert (found.attempt, found.failure, found.resumption) == (1, None, None)
        await same_as_undisturbed(tmp_path, found)
    else:
        assert found.failure is not None
        assert found.failure.retryable
    assert len(started) == 2


async def test_a_policy_that_ends_its_sandbox_each_time_costs_an_attempt_each_time(
    tmp_path: Path,
) -> None:
    deadly = life(tmp_path, bash("add a"), bash("die now"), SUBMIT)
    found = await asyncio.wait_for(deadly.play(), 20)
    assert found is not None
    assert found.failure is not None
    assert found.failure.retryable
    assert len(deadly.disks.started) <= 3
    assert all(disk.closed for disk in deadly.disks.started)


async def test_the_second_of_two_processes_on_one_episode_stops_the_first(tmp_path: Path) -> None:
    first = life(tmp_path, engine=Engine({0: TEXTS}, pause_s=0.2))
    playing = asyncio.create_task(first.play())
    await first.journals.until_written(2)
    found = await life(tmp_path).play()
    assert found is not None
    with pytest.raises(TakenOverError):
        await playing
    await same_as_undisturbed(tmp_path, found)
    assert all(disk.closed for disk in first.disks.started)


async def test_two_that_begin_at_once_leave_one(tmp_path: Path) -> None:
    lives = [life(tmp_path, engine=Engine({0: TEXTS}, pause_s=0.01)) for _ in range(2)]
    found = await asyncio.gather(*(each.play() for each in lives), return_exceptions=True)
    records = [each for each in found if isinstance(each, Trajectory)]
    assert len(records) == 1
    assert sum(isinstance(each, TakenOverError) for each in found) == 1


async def scheduler_of(process: Life, store: Store) -> EpisodeScheduler:
    """A scheduler that plays the one episode."""
    scheduler = EpisodeScheduler(
        process.context(),
        store,
        budget=FailureBudget(),
        size=1,
        journals=await process.episodes(),
    )
    scheduler.add([ATTEMPT])
    return scheduler


@pytest.mark.parametrize("owner_commits", [True, False])
async def test_an_episode_that_was_taken_over_is_its_owners_while_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, owner_commits: bool
) -> None:
    monkeypatch.setattr(scheduler_module, "OWNER_POLL_S", 0.01)
    monkeypatch.setattr(scheduler_module, "OWNER_PATIENCE_S", 20 if owner_commits else 0.05)
    store = Store.open(f"file://{tmp_path}")
    first = life(tmp_path, engine=Engine({0: TEXTS}, pause_s=0.2))
    scheduler = await scheduler_of(first, store)
    working = asyncio.create_task(scheduler.work())
    await first.journals.until_written(2)
    found = await life(tmp_path).play()
    assert found is not None
    before = len(first.engine.asked)
    if owner_commits:
        await store.commit(found)
    await working
    assert scheduler.left == 0
    assert await store.committed("job") == {EPISODE}
    # The agent had ended there: nothing is sampled again to take it back.
    assert len(first.engine.asked) <= before + 1


async def test_a_commit_removes_the_journal(tmp_path: Path) -> None:
    await killed(tmp_path, 6)
    store = Store.open(f"file://{tmp_path}")
    second = life(tmp_path)
    scheduler = await scheduler_of(second, store)
    await scheduler.work()
    assert await store.committed("job") == {EPISODE}
    assert (await store.read(EPISODE)).resumption == Resumption(1)
    assert not (tmp_path / "job/journals").exists()


async def test_a_credential_in_use_is_in_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-hunter2-hunter2"
    monkeypatch.setattr(redaction, "_IN_USE", redaction.Redactor())
    redaction.register(secret)
    texts = (bash("add a"), bash("leak"), bash("add b"), SUBMIT)
    found = await life(tmp_path, *texts, secret=secret).play()
    assert found is not None
    assert found.failure is None
    stored = [zstandard.decompress(path.read_bytes()) for path in chunks(tmp_path)]
    assert len(stored) == 1
    assert not any(redaction.holds_secret(data) for data in stored)


class Failing:
    """A store whose writes of journals fail from some time on, or for some time."""

    def __init__(self, tmp_path: Path, failures: Sequence[bool]) -> None:
        self.life = life(tmp_path)
        self._create = self.life.journals.create
        self._failures = list(failures)
        self.life.journals.create = self.create  # type: ignore[method-assign]
        self.asked = 0

    async def create(self, ref: JournalRef, number: int, data: bytes) -> bool:
        self.asked += 1
        if self._failures and (
            self._failures.pop(0) if len(self._failures) > 1 else self._failures[0]
        ):
            raise UnreachableError("the store can't write", why="No space left on device")
        return await self._create(ref, number, data)


@pytest.mark.parametrize("failing", range(4))
async def test_a_write_that_fails_once_is_repeated(tmp_path: Path, failing: int) -> None:
    store = Failing(tmp_path, [False] * failing + [True, False])
    found = await store.life.play()
    await same_as_undisturbed(tmp_path, found)
    assert len(chunks(tmp_path)) == len(TEXTS)


@pytest.mark.parametrize("failing", range(4))
async def test_an_episode_outlives_a_store_that_takes_no_journal(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "PATIENCE_S", 0.05)
    store = Failing(tmp_path, [False] * failing + [True])
    found = await store.life.play()
    await same_as_undisturbed(tmp_path, found)
    assert len(chunks(tmp_path)) == failing
    # What is there is still good for a later life.
    again = await life(tmp_path).play()
    await same_as_undisturbed(tmp_path, again)


async def test_the_clock_stands_still_while_the_store_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = life(tmp_path, limits=Limits(turns=12, context_tokens=4096, episode_seconds=600))
    create = slow.journals.create
    late_s = 0.0
    clocks = SimpleNamespace(monotonic=lambda: time.monotonic() + late_s)
    monkeypatch.setattr(deadline, "time", clocks)

    async def late(ref: JournalRef, number: int, data: bytes) -> bool:
        nonlocal late_s
        await asyncio.sleep(0.01)  # others go on meanwhile
        late_s += 500
        return await create(ref, number, data)

    slow.journals.create = late  # type: ignore[method-assign]
    found = await slow.play()
    assert found is not None
    assert found.stop_reason is StopReason.SUBMITTED


async def test_a_resumed_episode_waits_for_a_store_that_is_down(tmp_path: Path) -> None:
    await killed(tmp_path, 6)
    second = life(tmp_path)
    last, failures = second.journals.last, iter((True, True, False))

    async def at_times(episode: EpisodeId) -> JournalRef | None:
        if next(failures, False):
            raise UnreachableError("the store is down")
        return await last(episode)

    second.journals.last = at_times  # type: ignore[method-assign]
    found = await second.play()
    assert found is not None
    assert found.resumption == Resumption(1)


async def test_turns_of_an_earlier_life_are_not_reported_again(tmp_path: Path) -> None:
    await killed(tmp_path, 6)
    second = life(tmp_path)
    listener = Listener()
    context = replace(second.context(), publish=listener)
    await (await second.episodes()).play(ATTEMPT, context)
    seen = [each.turn.index for each in listener.of(TurnEnded)]
    assert seen == [1, 2, 3]


async def test_an_unremovable_journal_does_not_lose_the_episode(tmp_path: Path) -> None:
    first = life(tmp_path)
    episodes = await first.episodes()
    await episodes.play(ATTEMPT, first.context())

    async def refuse(_: object) -> None:
        raise StoreError("no")

    first.journals.remove = refuse  # type: ignore[method-assign,assignment]
    await episodes.forget(EPISODE)
    assert chunks(tmp_path)


async def test_a_tool_that_acts_elsewhere_is_not_called_again(tmp_path: Path) -> None:
    sent: list[str] = []

    def notify(text: str) -> str:
        """Send a message.

        Args:
            text: The message.
        """
        sent.append(text)
        return f"sent {len(sent)}"

    tools = toolbox(["bash", "submit"])
    made = type(tools)([*tools.tools, FunctionTool(notify)])
    call = '<tool_call>\n{"name": "notify", "arguments": {"text": "hi"}}\n</tool_call>'
    texts = (call, bash("add a"), bash("add b"), SUBMIT)
    await killed(tmp_path, 5, *texts, tools=made)
    found = await life(tmp_path, *texts, tools=made).play()
    assert found is not None
    assert found.resumption == Resumption(1)
    assert sent == ["hi"]
    assert found.turns[0].observations[0].text == "sent 1"


async def test_a_program_that_draws_lots_begins_anew(tmp_path: Path) -> None:
    draws = iter(["one", "two", "three"])

    async def gambler(context: AgentContext) -> StopReason:
        await context.begin(f"Take number {next(draws)}.")
        return await context.finish()

    await killed(tmp_path, 6, program=gambler)
    second = life(tmp_path, program=gambler)
    found = await second.play()
    assert found is not None
    assert (found.resumption, found.stop_reason) == (None, StopReason.SUBMITTED)
    assert found.prompts[-1].text == "Take number three."


async def test_agents_that_work_at_the_same_time_go_on(tmp_path: Path) -> None:
    async def fans_out(context: AgentContext) -> StopReason:
        await context.begin()
        children = [await context.spawn(f"Part {part}.", tools=["bash"]) for part in range(3)]
        await asyncio.gather(*(child.finish() for child in children))
        return await context.finish()

    texts: dict[int, Sequence[str]] = {0: [SUBMIT]}
    texts |= {branch: [bash(f"look {branch}"), "Done."] for branch in (1, 2, 3)}

    async def played(at: int | None) -> Trajectory | None:
        return await Life(
            tmp_path / f"{at_death}", Engine(texts), program=fans_out, death=Death(at)
        ).play()

    at_death = 0
    expected = await played(None)
    assert expected is not None
    for at_death in range(2, 11):
        if (found := await played(at_death)) is None:
            found = await played(None)
        assert found is not None
        assert found.failure is None
        for branch, other in zip(found.samples, expected.samples, strict=True):
            assert branch.token_ids == other.token_ids


async def test_the_time_of_an_earlier_life_counts(tmp_path: Path) -> None:
    texts = (bash("sleep 0.4"), bash("add a"), bash("add b"), SUBMIT)
    await killed(tmp_path, 6, *texts)
    found = await life(tmp_path, *texts).play()
    assert found is not None
    assert found.resumption == Resumption(1)
    assert found.turns[0].tools_s > 0.3


async def test_what_was_cut_by_the_time_limit_ends_so_again(tmp_path: Path) -> None:
    limits = Limits(turns=12, context_tokens=4096, episode_seconds=0.5)
    engine = Engine({0: TEXTS}, pause_s=0.2)
    first = life(tmp_path, engine=engine, limits=limits)
    expected = await undisturbed(first)
    assert expected.stop_reason is StopReason.TIME_LIMIT
    second = life(tmp_path, engine=Engine({0: TEXTS}, pause_s=0.2), limits=limits)
    found = await second.play()
    assert found is not None
    assert essence(found) == essence(expected)
    assert not second.engine.asked


async def test_who_asks_first_owns_a_journal_that_nobody_writes(tmp_path: Path) -> None:
    await killed(tmp_path, 6)
    count = len(chunks(tmp_path))
    assert await life(tmp_path).play() is not None
    claimed: Chunk = decode(chunks(tmp_path)[count].read_bytes())
    assert claimed.resumes
    assert not claimed.entries


async def test_a_process_finds_the_journals_of_its_tasks_and_removes_those_of_committed_episodes(
    tmp_path: Path,
) -> None:
    journals = Store.open(f"file://{tmp_path}").journals("job")
    samples = [EpisodeId("job", name, sample) for name in ("one", "two") for sample in (0, 1, 7)]
    for episode in samples:
        assert await journals.create(JournalRef(episode, 1, 0), 0, b"chunk")
    backlog = Backlog(Episodes("job", (TASK,), samples=2), frozenset({samples[0]}))
    found = await open_journals(Store.open(f"file://{tmp_path}"), job(), backlog)
    assert found is not None
    assert set(await journals.listed()) == set(samples[1:])
    # Those of other shards, and of samples that this run does not play, are left alone.
    assert set(found._there) == {samples[1]}


async def test_a_job_that_resumes_nothing_has_no_journals(tmp_path: Path) -> None:
    backlog = Backlog(Episodes("job", (TASK,), samples=2), frozenset())
    never = job(retry={"resume": "never"})
    assert await open_journals(Store.open(f"file://{tmp_path}"), never, backlog) is None
