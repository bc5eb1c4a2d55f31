"""Issue 16, point 8: episodes that begin from a recorded turn of another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import zstandard

from swe_rollout.agent.context import AgentContext
from swe_rollout.context import Attempt
from swe_rollout.episode import run_episode
from swe_rollout.errors import UsageError
from swe_rollout.journal.entries import Rows, Sampled
from swe_rollout.journal.kept import Kept, Stretch, decode_kept, encode_kept
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.spec.limits import RetrySpec
from swe_rollout.store import kept as kept_objects
from swe_rollout.text import redaction
from swe_rollout.training.samples import training_samples
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import from_json, to_json
from swe_rollout.worker import forks
from unit.agent.agent_parts import SUBMIT, bash
from unit.journal.fork_parts import (
    FORKED,
    TEXTS,
    Seeded,
    committed,
    job,
    life,
    point,
    store_of,
    wanted,
)
from unit.journal.journal_parts import ATTEMPT, DAMAGE, TASK, Death, Disk, essence

OTHER = (*TEXTS[:2], bash("add x"), SUBMIT)
"""What a fork at turn 2 is sampled: the turns before are not."""


async def test_a_fork_has_the_tokens_and_files_of_its_turn_and_asks_for_the_rest(
    tmp_path: Path,
) -> None:
    parent = await committed(life(tmp_path))
    fork = life(tmp_path, *OTHER, fork=await point(tmp_path, 2))
    found = await committed(fork, FORKED)
    assert [turn for _, turn in fork.engine.asked] == [2, 3]
    assert "abx" in found.patch
    assert "c" not in found.patch.replace("prepared", "")
    told = found.forked_from
    assert told is not None
    assert parent.journal is not None
    assert (told.episode, told.turn, told.digest) == ("job/one/0", 2, parent.journal.sha256)
    assert told.tokens == found.turns[2].request.length == parent.turns[2].request.length
    for column in ("token_ids", "logprobs", "loss_mask"):
        head = getattr(found, column)[: told.tokens]
        assert head == getattr(parent, column)[: told.tokens]
    assert told.sampled == sum(turn.completion_tokens for turn in parent.turns[:2])
    assert found.turns[2].request == parent.turns[2].request
    assert found.resumption is None
    assert from_json(to_json(found)) == found


async def test_what_was_not_forked_names_neither_an_origin_nor_a_journal(tmp_path: Path) -> None:
    found = await life(tmp_path, keeps=False).play()
    assert found is not None
    assert {"forked_from", "journal"}.isdisjoint(msgspec.json.decode(to_json(found)))


async def test_a_fork_begins_in_a_sandbox_that_is_as_it_was_and_not_prepared_again(
    tmp_path: Path,
) -> None:
    """Preparing hides the fix; its changes are in the first delta, and come with it."""
    prepared = 0

    class Counted(Disk):
        async def exec(self, command: Any, **options: Any) -> ExecResult:
            nonlocal prepared
            names = set(options.get("env") or ())
            prepared += "BASE" in names and "MAX_BYTES" not in names
            return await super().exec(command, **options)

    await committed(life(tmp_path, make=Counted))
    assert prepared == 1
    fork = life(tmp_path, *OTHER, fork=await point(tmp_path, 1), make=Counted)
    await committed(fork, FORKED)
    assert prepared == 1
    assert fork.disks.started[0].files["prepared"] == "yes"


async def test_forks_sample_with_seeds_of_their_own(tmp_path: Path) -> None:
    await committed(life(tmp_path))
    origin = await point(tmp_path, 2)
    patches = set()
    for sample in (5, 6, 7):
        one = replace(life(tmp_path, fork=origin), engine=Seeded({0: TEXTS}))
        found = await committed(one, Attempt(EpisodeId("job", "one", sample), TASK, 1))
        patches.add(found.patch)
        assert found.token_ids[: origin.turn]
    assert len(patches) == 3


@pytest.mark.parametrize("at", range(1, 6))
async def test_a_killed_fork_goes_on_at_its_own_last_turn(tmp_path: Path, at: int) -> None:
    await committed(life(tmp_path))
    origin = await point(tmp_path, 1)
    texts = (TEXTS[0], bash("add x"), bash("add y"), SUBMIT)
    dead = life(tmp_path, *texts, fork=origin, death=Death(at))
    assert await dead.play(FORKED) is None
    second = life(tmp_path, *texts, fork=origin)
    found = await second.play(FORKED)
    assert found is not None
    assert 0 not in [turn for _, turn in second.engine.asked]
    alone = await life(tmp_path, *texts, fork=origin).play(
        replace(FORKED, episode=EpisodeId("job", "one", 9))
    )
    assert alone is not None
    moved = replace(alone, episode=found.episode, seed=found.seed)
    assert essence(found) == essence(moved)


async def test_the_journal_of_another_fork_is_not_gone_on_with(tmp_path: Path) -> None:
    await committed(life(tmp_path))
    dead = life(tmp_path, *OTHER, fork=await point(tmp_path, 1), death=Death(4))
    assert await dead.play(FORKED) is None
    found = await life(tmp_path, *OTHER, fork=await point(tmp_path, 2)).play(FORKED)
    assert found is not None
    assert found.resumption is None
    assert found.forked_from is not None
    assert found.forked_from.turn == 2
    assert "abx" in found.patch


async def test_a_session_forks_without_a_journal(tmp_path: Path) -> None:
    await committed(life(tmp_path))
    origin = await point(tmp_path, 2)
    one, two = (life(tmp_path, *OTHER, fork=origin, keeps=False) for _ in range(2))
    unwritten = await run_episode(FORKED, one.context())
    written = await two.play(FORKED)
    assert written is not None
    assert essence(unwritten) == essence(written)
    assert [turn for _, turn in one.engine.asked] == [2, 3]


async def test_a_fork_can_be_forked(tmp_path: Path) -> None:
    await committed(life(tmp_path))
    texts = (*TEXTS[:2], bash("add x"), bash("add y"), SUBMIT)
    await committed(life(tmp_path, *texts, fork=await point(tmp_path, 2)), FORKED)
    third = (*texts[:3], bash("add z"), SUBMIT)
    again = await point(tmp_path, 3, sample=5)
    grandchild = life(tmp_path, *third, fork=again)
    found = await committed(grandchild, Attempt(EpisodeId("job", "one", 8), TASK, 1))
    assert "abxz" in found.patch
    assert [turn for _, turn in grandchild.engine.asked] == [3, 4]
    assert found.forked_from is not None
    assert found.forked_from.episode == "job/one/5"
    # Turns that were inherited twice can be begun from as well.
    assert (await point(tmp_path, 1, sample=8)).entries == (await point(tmp_path, 1)).entries


async def test_a_fork_that_ends_its_sandbox_keeps_what_it_inherited(tmp_path: Path) -> None:
    await committed(life(tmp_path))
    texts = (*TEXTS[:2], bash("destroy"))
    found = await life(tmp_path, *texts, fork=await point(tmp_path, 2)).play(FORKED)
    assert found is not None
    assert found.stop_reason is StopReason.SANDBOX_DESTROYED
    assert "ab" in found.patch


async def test_what_a_fork_inherited_is_not_trained_unless_its_job_says_so(
    tmp_path: Path,
) -> None:
    parent = await committed(life(tmp_path))
    found = await committed(life(tmp_path, *OTHER, fork=await point(tmp_path, 2)), FORKED)
    assert found.forked_from is not None
    own = found.sampled_count - found.forked_from.sampled
    (sample,) = training_samples(found)
    assert sum(sample.loss_mask) == own > 0
    assert sample.token_ids == found.token_ids
    inherited = found.forked_from.tokens - len(sample.prompt_ids)
    assert not any(sample.loss_mask[:inherited])
    assert set(sample.weight_versions[:inherited]) == {None}
    assert set(sample.logprobs[:inherited]) == {0.0}
    (before,) = training_samples(parent)
    assert len(before.prompt_ids) == len(sample.prompt_ids)

    origin = await point(tmp_path, 2, trains=True)
    trained = await life(tmp_path, *OTHER, fork=origin).play(
        Attempt(EpisodeId("job", "one", 6), TASK, 1)
    )
    assert trained is not None
    (whole,) = training_samples(trained)
    assert sum(whole.loss_mask) == trained.sampled_count


# What can't be forked.


async def refused(folder: Path, turn: int, **options: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        await point(folder, turn, **options)
    assert caught.value.fix
    return caught.value


async def test_an_episode_without_a_journal_says_how_to_keep_one(tmp_path: Path) -> None:
    await committed(life(tmp_path, keeps=False))
    assert "keepJournals" in (await refused(tmp_path, 1)).fix


@pytest.mark.parametrize("turn", [4, 5, 100])
async def test_a_turn_that_is_not_there_says_which_are(tmp_path: Path, turn: int) -> None:
    await committed(life(tmp_path))
    assert "1 to 3" in (await refused(tmp_path, turn)).fix


async def test_an_episode_that_is_still_played_is_not_ready(tmp_path: Path) -> None:
    await store_of(tmp_path).begin(job(), {"one": TASK.digest})
    assert await life(tmp_path, death=Death(6)).play() is None
    assert "being played" in (await refused(tmp_path, 1)).why
    assert "no record" in (await refused(tmp_path, 1, sample=3)).why


async def test_another_spec_is_named_by_its_fields_and_grading_may_differ(tmp_path: Path) -> None:
    await committed(life(tmp_path))
    error = await refused(tmp_path, 1, limits={"turns": 7}, sampling={"temperature": 0.3})
    assert "spec.limits.turns: 50 there, 7 now" in error.why
    assert "spec.sampling.temperature" in error.why
    await point(tmp_path, 1, grading={"enabled": False}, sampling={"seed": 3})


@pytest.mark.parametrize("what", ["task", "model", "user code"])
async def test_another_task_model_or_code_is_refused(tmp_path: Path, what: str) -> None:
    await committed(life(tmp_path))
    context = life(tmp_path).context()
    tasks = [TASK]
    match what:
        case "task":
            tasks = [Instance(instance_id="one", problem_statement="other", image="image:1")]
        case "model":
            context = replace(context, policy=lambda _: "another")
        case _:
            code = SimpleNamespace(sha256="f" * 64)
            context = replace(context, extensions=(code,))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="can't be forked") as caught:
        await forks.find_fork_point(wanted(tmp_path, 1), job(), context, tasks)
    assert f"its {what} was" in caught.value.why


async def test_turns_of_sub_agents_can_not_be_forked_and_those_before_can(tmp_path: Path) -> None:
    async def asks_another(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        child = await context.spawn("Look around.", tools=["bash"], turns=1)
        await child.turn()
        return await context.finish()

    await committed(life(tmp_path, program=asks_another))
    error = await refused(tmp_path, 2)
    assert "branch" in error.why
    assert (await point(tmp_path, 1)).turn == 1


async def test_a_sandbox_with_processes_is_forked_without_them_only_if_that_is_wanted(
    tmp_path: Path,
) -> None:
    await committed(life(tmp_path, bash("serve web"), bash("add b"), SUBMIT))
    error = await refused(tmp_path, 1)
    assert "process: web" in error.why
    assert "best" in error.fix
    origin = await point(tmp_path, 1, retry={"resume": "best"})
    fork = life(tmp_path, bash("serve web"), bash("add x"), SUBMIT, fork=origin)
    found = await fork.play(FORKED)
    assert found is not None
    assert found.forked_from is not None
    assert found.forked_from.lost == ("process: web",)


async def test_files_that_were_not_saved_at_all_are_no_beginning(tmp_path: Path) -> None:
    made = lambda: Disk(unsaved=("/: too many files",))  # noqa: E731
    await committed(life(tmp_path, make=made))
    assert "too many files" in (await refused(tmp_path, 1, retry={"resume": "best"})).why


async def test_a_program_that_does_something_else_stops_the_job(tmp_path: Path) -> None:
    """All forks would; none of them begins from the task in silence."""

    async def says_more(context: AgentContext) -> StopReason:
        await context.begin("Something else.")
        return await context.finish()

    await committed(life(tmp_path))
    fork = life(tmp_path, fork=await point(tmp_path, 2), program=says_more)
    with pytest.raises(UsageError, match="can't be forked here"):
        await fork.play(FORKED)
    with pytest.raises(UsageError, match="can't be forked here"):
        await run_episode(FORKED, fork.context())
    assert all(disk.closed for disk in fork.disks.started)


# What is kept.


async def test_the_kept_journal_lies_beside_the_record_and_the_other_one_is_gone(
    tmp_path: Path,
) -> None:
    found = await committed(life(tmp_path))
    assert found.journal is not None
    assert (tmp_path / found.journal.key).is_file()
    assert not list((tmp_path / "job/journals").rglob("*.zst"))
    listing = await store_of(tmp_path).listing("job")
    assert (set(listing.episodes), listing.strays) == ({ATTEMPT.episode}, ())


async def test_a_resumed_episode_keeps_the_same_answers(tmp_path: Path) -> None:
    assert await life(tmp_path, death=Death(6)).play() is None
    found = await committed(life(tmp_path))
    assert found.resumption is not None
    resumed = await point(tmp_path, 3)
    await committed(life(tmp_path / "alone"))
    alone = await point(tmp_path / "alone", 3)
    asked = [(entry.agent, entry.request) for entry in resumed.entries]
    assert asked == [(entry.agent, entry.request) for entry in alone.entries]
    assert [delta.data for delta in resumed.deltas] == [delta.data for delta in alone.deltas]


async def test_a_journal_that_is_too_large_is_kept_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (await committed(life(tmp_path / "alone"))).journal
    assert whole is not None
    monkeypatch.setattr(forks, "MAX_KEPT_BYTES", whole.bytes - 200)
    await committed(life(tmp_path))
    error = await refused(tmp_path, 3)
    assert error.fix == "name another turn: 1 to 2"


def kept_under(folder: Path) -> list[Path]:
    return list(folder.rglob("journal-*"))


async def test_a_credential_that_came_into_use_later_is_not_kept(tmp_path: Path) -> None:
    secret = "swordfish-swordfish"
    living = life(tmp_path, bash("leak"), bash("add b"), SUBMIT, secret=secret)
    episodes = await living.episodes()
    played = await episodes.play(ATTEMPT, living.context())
    redaction.register(secret)
    kept = await episodes.keep(played, fork=None)
    assert kept.journal is None
    assert not kept_under(tmp_path)


async def test_an_episode_that_wrote_nothing_keeps_nothing(tmp_path: Path) -> None:
    found = await committed(life(tmp_path, SUBMIT))
    assert found.journal is None


# Kept journals are not trusted.


def rewritten(
    folder: Path, found: Trajectory, change: Callable[[Kept], Kept]
) -> tuple[Path, bytes, Trajectory]:
    """Return where a kept journal lies, what it becomes, and the record that names it."""
    assert found.journal is not None
    path = folder / found.journal.key
    kept = decode_kept(zstandard.decompress(path.read_bytes()))
    return path, encode_kept(change(kept)), found


def header(kept: Kept, **changes: Any) -> Kept:
    return msgspec.structs.replace(kept, header=msgspec.structs.replace(kept.header, **changes))


def stretch(kept: Kept, **changes: Any) -> Kept:
    first, *others = kept.stretches
    changed = msgspec.structs.replace(first, **changes)
    return msgspec.structs.replace(kept, stretches=(changed, *others))


def answers(kept: Kept, change: Callable[[Any], Any]) -> Kept:
    first: Stretch = kept.stretches[0]
    entries = [change(entry) for entry in first.entries]
    return stretch(kept, entries=tuple(entries))


def sampled(entry: Any, **changes: Any) -> Any:
    if not isinstance(entry.answer, Sampled):
        return entry
    answer = msgspec.structs.replace(entry.answer, **changes)
    return msgspec.structs.replace(entry, answer=answer)


HOSTILE: dict[str, Callable[[Kept], Kept]] = {
    "a seed that is none": lambda kept: header(kept, seed="zz"),
    "an option as commit": lambda kept: header(kept, base="--output=/etc/passwd"),
    "another spec": lambda kept: header(kept, spec="f" * 12),
    "another format": lambda kept: msgspec.structs.replace(kept, version=99),
    "half an id": lambda kept: answers(kept, lambda each: sampled(each, ids=b"\1\2\3")),
    "no logprobs": lambda kept: answers(kept, lambda each: sampled(each, logprobs=b"")),
    "logprobs that are no numbers": lambda kept: answers(
        kept,
        lambda each: sampled(each, logprobs=b"\xff" * 2 * len(getattr(each.answer, "ids", b""))),
    ),
    "experts of another shape": lambda kept: answers(
        kept, lambda each: sampled(each, rows=Rows(b"\0" * 4, (3, 1, 2), (), (), ()))
    ),
    "other ids": lambda kept: answers(
        kept, lambda each: sampled(each, ids=b"\1\0\0\0", logprobs=b"\0" * 8)
    ),
    "no time": lambda kept: answers(
        kept, lambda each: msgspec.structs.replace(each, elapsed_s=float("nan"))
    ),
    "a call as a turn": lambda kept: answers(
        kept, lambda each: msgspec.structs.replace(each, request="exec:0")
    ),
    "no files": lambda kept: stretch(kept, deltas=()),
    "turns that are not there": lambda kept: stretch(kept, turns=-1),
    "more turns than it holds": lambda kept: stretch(kept, turns=2),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_journal_of_values_that_no_episode_writes_is_refused(
    tmp_path: Path, name: str
) -> None:
    found = await committed(life(tmp_path))
    path, data, _ = rewritten(tmp_path, found, HOSTILE[name])
    path.unlink()
    named = await store_of(tmp_path).keep_journal(found.episode, data)
    record = tmp_path / "job/episodes/one/0/trajectory.json.zst"
    record.write_bytes(zstandard.compress(to_json(replace(found, journal=named))))
    assert "can't be used" in (await refused(tmp_path, 1)).what


@pytest.mark.parametrize("broken", [*DAMAGE, "another's", "gone", "elsewhere"])
async def test_an_object_that_is_not_what_the_record_names_is_refused(
    tmp_path: Path, broken: str
) -> None:
    found = await committed(life(tmp_path))
    path, data, _ = rewritten(tmp_path, found, lambda kept: header(kept, attempt=7))
    match broken:
        case "another's":
            path.write_bytes(zstandard.compress(data))
        case "gone":
            path.unlink()
        case _ if broken in DAMAGE:
            path.write_bytes(DAMAGE[broken](path.read_bytes()))
        case _:
            assert found.journal is not None
            journal = replace(found.journal, key="job/plan.json", sha256="../../../plan.json")
            record = tmp_path / "job/episodes/one/0/trajectory.json.zst"
            record.write_bytes(zstandard.compress(to_json(replace(found, journal=journal))))
    await refused(tmp_path, 1)


async def test_a_journal_larger_than_any_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await committed(life(tmp_path))
    monkeypatch.setattr(kept_objects, "MAX_KEPT_BYTES", 10)
    assert "bytes" in (await refused(tmp_path, 1)).why


@pytest.mark.parametrize("name", ["dropped", "swapped"])
async def test_answers_that_do_not_fit_stop_the_job(tmp_path: Path, name: str) -> None:
    await committed(life(tmp_path))
    origin = await point(tmp_path, 2)
    entries = list(chain.from_iterable(each.entries for each in origin.stretches))
    if name == "dropped":
        del entries[1]
    else:
        entries[1], entries[3] = (
            msgspec.structs.replace(entries[1], request=entries[3].request),
            msgspec.structs.replace(entries[3], request=entries[1].request),
        )
    last = origin.stretches[-1]
    changed = msgspec.structs.replace(last, entries=tuple(entries))
    bad = replace(
        origin,
        stretches=(
            *(msgspec.structs.replace(each, entries=()) for each in origin.stretches[:-1]),
            changed,
        ),
    )
    retry = RetrySpec(attempts=1)
    with pytest.raises(UsageError, match="can't be forked here"):
        await life(tmp_path, *OTHER, fork=bad, retry=retry).play(FORKED)
