"""Forks in pods: a job applied by kubectl begins from a recorded turn of another job's episode.

The operator and the workers run in pods, from the image of this checkout; the store is a small S3
server in the test's namespace (issue 16, point 8).
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from cluster.needs import TIER
from cluster.site import BUCKET, RJ, ROOT, Json, Site, installed, job
from e2e.command import printed_json, swe_rollout
from e2e.records import check
from swe_rollout.store.bucket import Bucket

pytestmark = [
    *TIER,
    pytest.mark.slow,
]

BRANCHING = ROOT / "tests" / "e2e" / "branching.py"
KEPT = {"uri": BUCKET, "keepJournals": True}
TURN = 2


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Run this checkout's operator, and create one namespace for the module's jobs."""
    with installed("fork-test") as found:
        yield found


@pytest.fixture(scope="module")
def parent(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """An episode of a job in pods that keeps its journals; its policy is a file of the job's."""
    document = job(
        "branching",
        ["gold"],
        policy={"engine": {"use": "branching:Branching"}},
        agent={"tools": [{"use": "bash", "with": {"session": True}}, "submit"]},
        sampling={"seed": 11},
        grading={"enabled": False},
        store=KEPT,
    )
    path = tmp_path_factory.mktemp("branching") / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    swe_rollout("launch", str(path), "--with", str(BRANCHING), "-n", site.namespace)
    (record,) = site.records("branching")
    check(record)
    return record


def address(record: Json) -> str:
    """The address of an episode in the store."""
    return f"{BUCKET}/{record['episode']}"


def fork_file(record: Json, folder: Path, name: str, *options: str) -> Json:
    """Let `swe-rollout fork -O` write the job of a fork; return it."""
    path = folder / f"{name}.yaml"
    swe_rollout("fork", address(record), "--name", name, *options, "-O", str(path))
    document: Json = yaml.safe_load(path.read_text())
    return document


def journals(name: str) -> list[str]:
    """The keys of a job's kept journals, and of those that are being written."""

    async def listed() -> list[str]:
        keys = [key async for key in Bucket.open(BUCKET).keys(name)]
        return sorted(key for key in keys if "journal" in key)

    return asyncio.run(listed())


def until_failed(site: Site, name: str) -> str:
    """Wait until the job has failed; return what its condition says."""
    site.until(name, lambda: site.status(name).get("state") in ("Failed", "Complete"), within_s=90)
    condition = site.condition(name, "Failed")
    assert condition, site.describe(name)
    return str(condition["message"])


def begin_as_the_parent(record: Json, children: Sequence[Json], turn: int = TURN) -> None:
    """Check that children have the parent's tokens up to the turn, and say so."""
    length = record["turns"][turn]["request"]["length"]
    for child in children:
        check(child)
        told = child["forked_from"]
        assert (told["episode"], told["turn"]) == (record["episode"], turn)
        assert (told["tokens"], told["trained"]) == (length, False)
        for column in ("token_ids", "logprobs", "loss_mask"):
            assert child[column][:length] == record[column][:length]


def test_a_fork_applied_by_kubectl_begins_at_its_turn_in_new_pods(
    site: Site, parent: Json, tmp_path: Path
) -> None:
    document = fork_file(parent, tmp_path, "child", "--turn", str(TURN), "--samples", "3")

    site.apply(document)
    status = site.until_complete("child")

    assert (status["episodes"]["committed"], status["episodes"]["masked"]) == (3, 0)
    children = site.records("child")
    assert len(children) == 3
    begin_as_the_parent(parent, children)
    for child in children:
        # Folder and variables of the shell, and the files; nothing of the parent's later turns.
        seen = child["turns"][TURN]["observations"][0]["text"]
        assert "/testbed/made/deep\ncolour blue\nlink\nt1\n" in seen
        assert not {"t0", "t2", "own.txt"} & set(seen.split())
        assert str(child["seed"]) in child["patch"]
    assert len({child["seed"] for child in [*children, parent]}) == 4
    assert len({tuple(child["token_ids"]) for child in children}) == 3
    kept = [key for key in journals("child") if "/episodes/" in key]
    assert sorted(child["journal"]["key"] for child in children) == kept
    assert journals("child") == kept


def test_a_fork_of_a_fork_inherits_all_turns_before_it(
    site: Site, parent: Json, tmp_path: Path
) -> None:
    if "child" not in site.kubectl("get", RJ, "-o", "name"):
        site.apply(fork_file(parent, tmp_path, "child", "--turn", str(TURN), "--samples", "3"))
    site.until_complete("child")
    child = site.records("child")[0]

    site.apply(fork_file(child, tmp_path, "child-of-child", "--turn", "3"))
    site.until_complete("child-of-child")

    (grandchild,) = site.records("child-of-child")
    begin_as_the_parent(child, [grandchild], turn=3)
    seen = grandchild["turns"][3]["observations"][0]["text"]
    assert "/testbed/made/deep\ncolour blue\nlink\nt1\n" in seen
    # The last two turns are its own: the third one's work is the child's.
    assert str(child["seed"]) in grandchild["patch"]
    assert str(grandchild["seed"]) in grandchild["patch"]


def test_the_command_forks_in_pods_from_a_shell_and_grades_each_fork(site: Site) -> None:
    """The gold policy's patch lies in /tmp by then; one sample applies it, the other submits."""
    document = job("gold", ["gold", "wrong"], samples=1, store=KEPT)
    site.apply(document)
    site.until_complete("gold")
    (record,) = site.records("gold")
    last = len(record["turns"]) - 2

    pods = ("--set", f"spec.sandbox.pod.namespace={site.namespace}")
    options = ("--turn", str(last), "--samples", "2", "--name", "from-gold", "-o", "json")
    done = swe_rollout("fork", address(record), *options, *pods, "--display", "none")

    told = printed_json(done)
    assert (told["committed"], told["resolved"], told["unresolved"]) == (2, 1, 1)
    one, other = site.records("from-gold")
    begin_as_the_parent(record, [one, other], turn=last)
    assert (one["reward"], other["reward"]) == (1, 0)
    assert (one["patch"], other["patch"]) == (record["patch"], "")
    site.until_no_sandboxes("from-gold", within_s=20)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"uri": "file:///runs/branching"}, "object storage: write its address there"),
        ({"uri": BUCKET}, "its store, a slash and its name, such as s3://bucket/prefix/demo"),
        ({"turn": 0}, "spec.fork.turn.*greater than or equal to 1"),
        ({"sample": -1}, "spec.fork.sample.*greater than or equal to 0"),
        ({"instance": "a/b"}, "spec.fork.instance.*should match"),
        ({"turns": 2}, 'unknown field "spec.fork.turns"'),
    ],
)
def test_the_api_server_refuses_a_fork_that_names_no_turn(
    site: Site, change: Json, words: str
) -> None:
    wanted = {"uri": f"{BUCKET}/branching", "instance": "a", "sample": 0, "turn": 1} | change
    document = job("refused", ["gold"], fork=wanted)

    done = subprocess.run(
        ["kubectl", "--namespace", site.namespace, "create", "--filename", "-"],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0, done.stdout
    assert re.search(words, done.stderr), done.stderr


UNFORKABLE: dict[str, tuple[Json, str]] = {
    "late": ({"fork": {"turn": 99}}, "can't be forked at turn 99.*kept for the beginnings of"),
    "nowhere": ({"fork": {"sample": 7}}, "is not in the store"),
    "other": ({"limits": {"turns": 3}}, "was played with another spec.*limits"),
}


@pytest.mark.parametrize("name", UNFORKABLE)
def test_a_fork_that_its_store_can_not_give_fails_before_any_pod_starts(
    site: Site, parent: Json, tmp_path: Path, name: str
) -> None:
    changes, words = UNFORKABLE[name]
    document = fork_file(parent, tmp_path, name, "--turn", str(TURN))
    for field, changed in changes.items():
        document["spec"][field] |= changed

    site.apply(document)

    assert re.search(words, until_failed(site, name)), site.describe(name)
    assert site.records(name) == []
    assert site.objects("pods", f"swe-rollout.dev/job={name},swe-rollout.dev/role=agent") == []
