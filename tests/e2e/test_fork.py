"""`swe-rollout fork`: new episodes from a recorded turn, in local sandboxes (issue 16, point 8)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from e2e.command import COMMAND, ROOT, Job, printed_json, swe_rollout
from e2e.records import check, committed, read
from rollout_dev.counting import ASKED, counted, write_job

BRANCHING = Path(__file__).parent / "branching.py"


def forked(address: str, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return swe_rollout("fork", address, *options, "--display", "none", check=check)


def records(folder: Path) -> list[dict[str, Any]]:
    found = [read(path) for path in committed(folder)]
    for record in found:
        check(record)
    return found


def test_forks_have_the_tokens_files_folder_and_environment_of_their_turn(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    job = job_file(
        scenarios=["gold"],
        policy={"engine": {"use": "branching:Branching"}},
        agent={"tools": [{"use": "bash", "with": {"session": True}}, "submit"]},
        sampling={"seed": 11},
        grading={"enabled": False},
        store={"uri": f"file://{tmp_path}/store", "keepJournals": True},
    )
    swe_rollout("run", str(job.path), "--with", str(BRANCHING), "--display", "none")
    (parent,) = records(job.folder)
    address = f"{job.folder}/{parent['episode'].partition('/')[2]}"

    done = forked(address, "--turn", "2", "--samples", "3", "--name", "child", "-o", "json")

    assert printed_json(done)["forked_from"] == f"{parent['episode']}, turn 2"
    children = records(job.folder.parent / "child")
    length = parent["turns"][2]["request"]["length"]
    for child in children:
        told = child["forked_from"]
        assert (told["episode"], told["turn"]) == (parent["episode"], 2)
        assert (told["tokens"], told["trained"]) == (length, False)
        for column in ("token_ids", "logprobs", "loss_mask"):
            assert child[column][:length] == parent[column][:length]
        seen = child["turns"][2]["observations"][0]["text"]
        expected = parent["turns"][3]["observations"][0]["text"]
        # The folder and the variables of its shell, and the files; of later turns there is nothing.
        for told_by in (seen, expected):
            assert "/testbed/made/deep\ncolour blue\nlink\nt1\n" in told_by
        assert "t2" in expected
        assert "t2" not in seen
        assert not {"t0", "own.txt"} & set(seen.split())
        assert str(child["seed"]) in child["patch"]
        # What a grader adds is in no agent's sandbox: only what the policy made differs.
        assert [line for line in seen.splitlines() if line.startswith(("?? ", " M"))] == [
            "?? made/"
        ]
    assert len({child["seed"] for child in [*children, parent]}) == 4
    assert len({tuple(child["token_ids"]) for child in children}) == 3

    again = forked(address, "--turn", "2", "--samples", "4", "--name", "child")
    assert "3 already committed, 1 ran now" in again.stderr
    status = swe_rollout("status", f"{job.folder.parent}/child").stderr
    assert f"begin at {parent['episode']}, turn 2" in status
    exported = tmp_path / "child.parquet"
    swe_rollout("export", f"{job.folder.parent}/child", "-O", str(exported))
    for row in pq.read_table(exported).to_pylist():
        assert (row["forked_from"], row["inherited_tokens"]) == (f"{parent['episode']}@2", length)
        assert not any(row["loss_mask"][:length])
        assert any(row["loss_mask"])
    page = tmp_path / "page.html"
    swe_rollout("view", f"{job.folder.parent}/child", "-O", str(page))
    assert page.stat().st_size


@pytest.mark.slow
def test_a_forked_episode_is_graded_on_its_own_work(job_file: Callable[..., Job]) -> None:
    """The gold policy's patch lies in /tmp by then; one sample applies it, the other submits."""
    job = job_file(scenarios=["gold", "wrong"])
    keep = ("--set", "spec.store.keepJournals=true")
    swe_rollout("run", str(job.path), *keep, "--set", "spec.samples=1", "--display", "none")
    (parent,) = records(job.folder)
    last = len(parent["turns"]) - 2
    address = f"{job.folder}/{parent['episode'].partition('/')[2]}"
    forked(address, "--turn", str(last), "--samples", "2", "--name", "child")
    one, other = records(job.folder.parent / "child")
    assert one["reward"] == parent["reward"] == 1
    assert one["patch"] == parent["patch"]
    assert other["reward"] == 0
    assert other["patch"] == ""


@pytest.mark.slow
def test_a_killed_fork_goes_on_at_its_own_last_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = str(ROOT / "scripts")
    monkeypatch.setenv("PYTHONPATH", scripts)
    asked = tmp_path / "asked"
    monkeypatch.setenv(ASKED, str(asked))
    path = write_job(tmp_path, episodes=1, turns=10, parallelism=1, pause_s=0.3)
    written = yaml.safe_load(path.read_text())
    written["spec"]["store"]["keepJournals"] = True
    path.write_text(yaml.safe_dump(written))
    swe_rollout("run", str(path), "--display", "none")
    (parent,) = records(tmp_path / "store/job")
    address = f"{tmp_path}/store/job/{parent['episode'].partition('/')[2]}"
    child = tmp_path / "child.yaml"
    forked(address, "--turn", "4", "--samples", "2", "--name", "child", "-O", str(child))

    run = [*COMMAND, "run", str(child), "--display", "none"]
    before = len(asked.read_text().splitlines())
    process = subprocess.Popen(run, cwd=ROOT, env=os.environ, stderr=subprocess.DEVNULL)
    while len(asked.read_text().splitlines()) < before + 5:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not committed(tmp_path / "store/child")
    swe_rollout("run", str(child), "--display", "none")

    own = Counter(line for line in asked.read_text().splitlines() if line.startswith("child/"))
    assert {line.split()[1] for line in own} == {str(turn) for turn in range(4, 10)}
    found = records(tmp_path / "store/child")
    lines = "".join(f"+{line}\n" for line in counted(10).splitlines())
    for record in found:
        assert lines in record["patch"]
        assert record["token_ids"] == parent["token_ids"]
        assert record["forked_from"]["turn"] == 4
    assert any(record.get("resumption", {}).get("times") == 1 for record in found)
    assert sum(own.values()) - 12 <= 2
    assert not list((tmp_path / "store/child").glob("journals/**/*.zst"))
