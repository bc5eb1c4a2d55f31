"""Episodes of `swe-rollout run` that SIGKILL breaks off while a real engine samples them.

Issue 16: what is trained on after a resume is what the model sampled. Two lives of the process are
killed, the second one behind aborted calls too; the third one ends the job. Each trained token then
has the logprob of a teacher-forced recomputation, and what the journals held at a kill stands in
the records unchanged. Records with the faults that a resume could bring about, a column shifted by
one or a token left out, do not pass.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.command import COMMAND, ROOT, Job, job_writer
from e2e.records import check, committed, read
from sglang.calls import abort, count_calls
from sglang.served import Served, teach
from swe_rollout.journal.entries import Sampled
from swe_rollout.journal.reading import Earlier
from swe_rollout.journal.reading import read as read_journal
from swe_rollout.store.store import Store

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

EPISODES, TURNS = 8, 8
KILLED_AT = (2, 5)
"""A life ends once some episodes have so many chunks: turns, and one for each earlier life."""
SOME = 3
"""The tiny model ends some episodes itself, and before a turn of theirs is durable."""
TEMPERATURE = 0.8
TOLERANCE = 1e-3
LIFE_S = 600.0


@dataclass
class KilledJob:
    """A job that was killed again and again, and is at its end."""

    job: Job
    lives: list[dict[str, Earlier]] = field(default_factory=list)
    """What each killed process left: the journals of the episodes that were not at their end."""

    def resumed(self) -> list[Path]:
        """The records of the episodes that were resumed."""
        return [path for path in committed(self.job.folder) if read(path).get("resumption")]


@pytest.fixture(scope="module")
def killed(served: Served, tmp_path_factory: pytest.TempPathFactory) -> KilledJob:
    """Run the job once for all tests."""
    folder = tmp_path_factory.mktemp("job")
    job = job_writer(folder, store=f"file://{folder}/store")(
        names=["sqlparse"],
        scenarios=["unused"] * EPISODES,
        parallelism=EPISODES,
        policy={"sglang": {"url": served.url}, "tokenizer": str(served.tokenizer)},
        sampling={"temperature": TEMPERATURE},
        # No way to submit, and a turn that is cut is answered: most play all turns.
        agent={"tools": ["bash", "str_replace_editor"]},
        limits={
            "turns": TURNS,
            "contextTokens": 8000,
            "maxNewTokens": 48,
            "cutTurns": "answer",
            "formatErrors": TURNS + 1,
        },
        grading={"enabled": False},
    )
    return asyncio.run(_play(KilledJob(job), served.url))


def _shift(record: dict[str, Any], at: int) -> None:
    """Give each trained token behind that one the logprob of the one before it."""
    behind = [index for index, bit in enumerate(record["loss_mask"]) if bit and index >= at]
    moved = [record["logprobs"][index] for index in behind[:-1]]
    for index, logprob in zip(behind[1:], moved, strict=True):
        record["logprobs"][index] = logprob


def _drop(record: dict[str, Any], at: int) -> None:
    """Leave out that token, as if it had never been sampled."""
    for column in ("token_ids", "loss_mask", "logprobs"):
        del record[column][at]
    for segment in record["segments"]:
        segment["start"] -= segment["start"] > at
        segment["end"] -= segment["end"] > at


FAULTS: dict[str, Callable[[dict[str, Any], int], None]] = {"shifted": _shift, "dropped": _drop}


@pytest.fixture(scope="module")
def taught(
    killed: KilledJob, served: Served, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Compare all records that were resumed, and copies of one with faults, by weight version."""
    if served.model is None:
        pytest.skip("needs the checkpoint that is served: set SGLANG_MODEL to its folder")
    copies = [
        _with_fault(killed, name, tmp_path_factory.mktemp(name) / "trajectory.json")
        for name in FAULTS
    ]
    models = dict.fromkeys(("default", *FAULTS), served.model)
    return teach([*killed.resumed(), *copies], models, temperature=TEMPERATURE)


def _with_fault(killed: KilledJob, name: str, path: Path) -> Path:
    """Write a record that goes wrong where its episode was resumed."""
    record = read(killed.resumed()[0])
    life = next(life for life in killed.lives if record["episode"] in life)
    sampled = [index for index, bit in enumerate(record["loss_mask"]) if bit]
    last = len(_sampled_in_journal(life[record["episode"]])) - 1
    FAULTS[name](record, sampled[last])
    for segment in record["segments"]:
        segment["weight_version"] = segment.get("weight_version") and name
    path.write_text(json.dumps(record))
    return path


async def _play(killed: KilledJob, url: str) -> KilledJob:
    for life, chunks in enumerate(KILLED_AT):
        with _running(killed.job) as run:
            try:
                await _until_durable(killed.job, chunks, run)
                if life:
                    await abort(url)
                await _until_sampled(url, run)
            finally:
                run.kill()
        assert run.returncode == -signal.SIGKILL, _log(killed.job)
        killed.lives.append(await _journals(killed.job))
    with _running(killed.job) as run:
        assert await asyncio.to_thread(run.wait, LIFE_S) == 0, _log(killed.job)
    return killed


def _running(job: Job) -> subprocess.Popen[bytes]:
    with (job.path.parent / "log").open("ab") as log:
        return subprocess.Popen([*COMMAND, "run", str(job.path)], cwd=ROOT, stdout=log, stderr=log)


def _log(job: Job) -> str:
    return (job.path.parent / "log").read_text()[-3000:]


async def _until_durable(job: Job, chunks: int, run: subprocess.Popen[bytes]) -> None:
    """Wait until some episodes have so many chunks."""
    journals = Store.open(job.store).journals(job.name)
    async with asyncio.timeout(LIFE_S):
        while run.poll() is None:
            found = await journals.listed()
            if sum(ref.chunks >= chunks for ref in found.values()) >= SOME:
                return
            await asyncio.sleep(0.02)
    pytest.fail(_log(job))


async def _until_sampled(url: str, run: subprocess.Popen[bytes]) -> None:
    """Wait until the server samples."""
    async with asyncio.timeout(LIFE_S):
        while run.poll() is None:
            if await count_calls(url):
                return
            await asyncio.sleep(0.02)
    pytest.fail("the run ended before it was killed")


async def _journals(job: Job) -> dict[str, Earlier]:
    journals = Store.open(job.store).journals(job.name)
    return {
        str(ref.episode): await read_journal(ref, await journals.read(ref))
        for ref in (await journals.listed()).values()
        if ref.chunks
    }


def test_the_episodes_were_resumed_and_their_records_are_valid(killed: KilledJob) -> None:
    records = [read(path) for path in committed(killed.job.folder)]
    assert len(records) == EPISODES
    for record in records:
        check(record)
        assert record["failure"] is None
        assert record["stop_reason"] in {"turn_limit", "finished"}
        lives = [life[record["episode"]] for life in killed.lives if record["episode"] in life]
        resumption = record.get("resumption")
        assert (resumption["times"] if resumption else 0) == (lives[-1].resumed + 1 if lives else 0)
    times = [read(path)["resumption"]["times"] for path in killed.resumed()]
    assert times.count(len(KILLED_AT)) >= SOME


def test_what_was_durable_stands_in_the_records_unchanged(killed: KilledJob) -> None:
    records = {record["episode"]: record for record in map(read, killed.resumed())}
    compared = 0
    for life in killed.lives:
        for episode, journal in life.items():
            durable = _sampled_in_journal(journal)
            assert _sampled(records[episode])[: len(durable)] == durable
            compared += len(durable)
    assert compared > 100


def test_every_logprob_is_that_of_a_recomputation(
    killed: KilledJob, taught: dict[str, Any]
) -> None:
    compared = taught["versions"]["default"]

    trained = sum(sum(read(path)["loss_mask"]) for path in killed.resumed())
    assert compared["tokens"] == trained > 200
    assert compared["max_difference"] < TOLERANCE


@pytest.mark.parametrize("fault", FAULTS)
def test_a_record_with_a_fault_does_not_pass(fault: str, taught: dict[str, Any]) -> None:
    assert taught["versions"][fault]["max_difference"] > TOLERANCE


def _sampled(record: dict[str, Any]) -> list[tuple[int, float]]:
    """The trained tokens of a record with their logprobs, in order."""
    columns = zip(record["token_ids"], record["logprobs"], record["loss_mask"], strict=True)
    return [(token, logprob) for token, logprob, bit in columns if bit]


def _sampled_in_journal(journal: Earlier) -> list[tuple[int, float]]:
    """The durable tokens of an episode with their logprobs, in order."""
    answers = [entry.answer for entry in journal.entries]
    found = [answer.value() for answer in answers if isinstance(answer, Sampled)]
    return [pair for each in found for pair in zip(each.token_ids, each.logprobs, strict=True)]
