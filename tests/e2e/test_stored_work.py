"""Work on stored episodes: replay, regrade, exports, statistics; and single sandboxes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from e2e.command import COMMAND, ROOT, Job, job_writer, printed_json, swe_rollout
from e2e.records import committed, read
from swe_rollout.datasets.release_pair_recipes import load_pairs
from waits import block_until

SCENARIOS = ("gold", "wrong", "malformed", "loop")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job that was run; no test may change it, and none does."""
    folder = tmp_path_factory.mktemp("demo")
    write: Callable[..., Job] = job_writer(folder, store=f"file://{folder}/store")
    job = write(scenarios=SCENARIOS)
    swe_rollout("run", str(job.path))
    before = {path: path.read_bytes() for path in committed(job.folder)}
    yield job
    assert {path: path.read_bytes() for path in committed(job.folder)} == before
    assert len(before) == 4


def test_episodes_replay_as_recorded(demo: Job) -> None:
    found = printed_json(swe_rollout("replay", demo.uri, "-o", "json"))
    assert len(found["episodes"]) == 4
    for each in found["episodes"]:
        assert each["same"], each
        assert each["calls"] > 0


def test_a_replay_shows_the_first_difference_and_exits_1(demo: Job, tmp_path: Path) -> None:
    instance = _instance(demo)
    forged = _copy_with(demo, tmp_path, instance, _forge)
    done = swe_rollout("replay", f"{forged}/{instance}/0", check=False)
    assert done.returncode == 1, done.stderr
    assert "turn 0, call 0: the observation differs" in done.stdout
    assert "-exit code: 0 forged" in done.stderr


@pytest.mark.slow
def test_stored_patches_are_graded_again_and_stay_as_they_are(demo: Job, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    found = printed_json(
        swe_rollout("regrade", demo.uri, "-k", "2", "-o", "json", "-O", str(report))
    )
    assert json.loads(report.read_text()) == found
    assert found["complete"] is True
    assert (found["graded"], found["changed"], found["flaky_tests"]) == (4, 0, [])
    for each in found["episodes"]:
        assert each["verdicts"] == [each["recorded"]] * 2


def test_a_wrong_verdict_is_found_and_exits_1(demo: Job, tmp_path: Path) -> None:
    instance = _instance(demo)
    forged = _copy_with(demo, tmp_path, instance, _misjudge)
    done = swe_rollout("regrade", f"{forged}/{instance}/0", "-o", "json", check=False)
    assert done.returncode == 1, done.stderr
    (episode,) = printed_json(done)["episodes"]
    assert (episode["recorded"], episode["verdicts"]) == ("unresolved", ["resolved"])
    assert [test["recorded"] for test in episode["unstable_tests"]] == ["FAILED"]


@pytest.mark.slow
def test_an_interrupted_regrade_reports_what_it_graded(demo: Job, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["regrade", demo.uri, "-k", "2", "--parallelism", "1", "-O", str(report)]
    process = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not (line := process.stderr.readline()).endswith(": same\n"):
        assert line, process.poll()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    found = json.loads(report.read_text())
    assert found["complete"] is False
    assert 1 <= found["graded"] < 4


def test_chats_tell_what_the_policy_said_and_saw(demo: Job, tmp_path: Path) -> None:
    out = tmp_path / "chats.jsonl"
    swe_rollout("export", demo.uri, "--to", "messages", "-O", str(out))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    records = [read(path) for path in committed(demo.folder)]
    for row, record in zip(rows, records, strict=True):
        assert row["episode"] == record["episode"]
        said = [m for m in row["messages"] if m["role"] == "assistant"]
        assert len(said) == len(record["turns"])
        assert not any("<|im_end|>" in m["content"] for m in said)
        for message, turn in zip(said, record["turns"], strict=True):
            calls = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
            good = all(call["status"] == "ok" for call in turn["tool_calls"])
            assert calls == ([c["arguments"] for c in turn["tool_calls"]] if good else [])
            assert ("<tool_call>" in message["content"]) is not good
        seen = [m["content"] for m in row["messages"] if m["role"] == "tool"]
        assert seen == [o["text"] for turn in record["turns"] for o in turn["observations"]]


def test_exported_patches_apply_to_their_bases(demo: Job, tmp_path: Path) -> None:
    out = tmp_path / "patches"
    swe_rollout("export", demo.uri, "--to", "patches", "-O", str(out))
    for path in committed(demo.folder):
        record = read(path)
        instance, sample = record["episode"].split("/")[1:]
        assert (out / instance / f"{sample}.patch").read_bytes() == record["patch"].encode()


def test_statistics_count_what_the_records_hold(demo: Job) -> None:
    found = printed_json(swe_rollout("stats", demo.uri, "-o", "json"))
    records = [read(path) for path in committed(demo.folder)]
    assert found["episodes"] == 4
    assert found["per_episode"]["turns"]["total"] == sum(len(r["turns"]) for r in records)
    assert found["per_episode"]["sampled_tokens"]["total"] == sum(
        sum(r["loss_mask"]) for r in records
    )
    calls = [call for r in records for turn in r["turns"] for call in turn["tool_calls"]]
    assert sum(tool["attempts"] for tool in found["tools"].values()) == len(calls)


@pytest.mark.usefixtures("demo")
def test_a_command_runs_in_a_sandbox_of_its_own() -> None:
    image = _image()
    done = swe_rollout(
        *("sandbox", "run", "--image", image, "--workdir", "/testbed", "-e", "A=b"),
        *("--", 'echo "$A"; echo err >&2; exit 7'),
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "b\n"), done.stderr
    assert "err\n" in done.stderr


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_sandbox_with_its_command(number: signal.Signals, tmp_path: Path) -> None:
    image, mark = _image(), f"49{number.value}.{time.time_ns() % 10**6:06}"
    process = subprocess.Popen(
        [*COMMAND, "sandbox", "run", "--image", image, "--", "sleep", mark], cwd=tmp_path
    )
    block_until(lambda: _running(mark) or process.poll() is not None)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    block_until(lambda: not _running(mark))


def _instance(job: Job) -> str:
    """The first task of the job."""
    return committed(job.folder)[0].parent.parent.name


def _image() -> str:
    """An image that the job has built."""
    return load_pairs()["sqlparse"].image


def _running(mark: str) -> list[str]:
    """The processes that sleep for so long, this command's own line aside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(path.parent.name)
    return found


def _copy_with(
    job: Job, folder: Path, instance: str, change: Callable[[dict[str, Any]], None]
) -> Path:
    """Copy the job and change the record of a task's first sample."""
    target = folder / "store" / job.name
    for path in job.folder.rglob("*"):
        if path.is_file():
            copy = target / path.relative_to(job.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    path = target / "episodes" / instance / "0" / "trajectory.json.zst"
    record = read(path)
    change(record)
    path.write_bytes(zstandard.compress(json.dumps(record).encode()))
    return target


def _forge(record: dict[str, Any]) -> None:
    seen = record["turns"][0]["observations"][0]
    seen["text"] = seen["text"].replace("exit code: 0", "exit code: 0 forged")


def _misjudge(record: dict[str, Any]) -> None:
    verdict = record["verdict"]
    verdict["status"] = "unresolved"
    verdict["report"]["fail_to_pass"][min(verdict["report"]["fail_to_pass"])] = "FAILED"
