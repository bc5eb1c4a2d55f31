"""`view --serve STORE`: one page over all jobs of a store, as it is printed, fetched and seen.

The parts in a browser need Chromium: `apt-get install chromium-headless-shell`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.command import COMMAND
from e2e.test_viewer import ATTACK, complaints, number_of, shown, text_of
from pages import unpacked
from rollout_dev.chromium import HOW_TO_INSTALL, Browser, chromium, find_chromium
from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.errors import Boundary
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.store import Store
from swe_rollout.tokens.branch import BranchKind
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, ToolCall
from swe_rollout.types.verdict import Reward, RewardTerm
from unit.worker.work_parts import TASK

GOLD = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+the reference fix\n"
TASKS = {"a": replace(TASK, gold_patch=GOLD), "b": replace(TASK, instance_id="b")}
LOST = Failure(Boundary.SANDBOX, "PodLostError", "the pod was evicted: <b>disk</b>", retryable=True)


def episode(job: str, sample: int, text: str = "I look.", *, instance: str = "a") -> Trajectory:
    made = replace(shown(text, sample=sample), episode=EpisodeId(job, instance, sample))
    return replace(made, instance_digest=TASKS[instance].digest)


def ran(job: str, command: str) -> Trajectory:
    """An episode whose call is escaped in what was sampled."""
    made = episode(job, 1)
    call = ToolCall(CallStatus.OK, json.dumps(command), "bash", {"command": command})
    return replace(made, turns=(replace(made.turns[0], tool_calls=(call,)),))


def begin(folder: Path, name: str, *episodes: Trajectory, samples: int = 2) -> None:
    """Begin a job over both tasks, or go on with it: commit these episodes."""
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(to_row(task))}\n" for task in TASKS.values()))
    spec = {"dataset": {"swebench": {"uri": str(rows)}}, "policy": {"scripted": {}}}
    job = RolloutJob.model_validate(
        {"metadata": {"name": name}, "spec": spec | {"samples": samples}}
    )

    async def write() -> None:
        store = Store.open(f"file://{folder}/runs")
        await store.begin(job, {name: task.digest for name, task in TASKS.items()})
        for each in episodes:
            assert await store.commit(each)

    # The browser's thread may have no loop, and a test's has one.
    thread = threading.Thread(target=lambda: asyncio.run(write()))
    thread.start()
    thread.join()


@contextmanager
def served(store: Path | str, *options: str) -> Iterator[tuple[str, list[str]]]:
    """The address that the command prints, and the lines that it says."""
    command = [*COMMAND, "view", "--serve", str(store), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            address = server.stdout.readline().strip()
            yield address, [server.stderr.readline(), server.stderr.readline()]
        finally:
            server.kill()


def get(address: str, **headers: str) -> tuple[int, HTTPMessage, str]:
    """The status, the headers and the body of a response."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc)
    connection.request("GET", parts.path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


def read(address: str) -> Any:
    return unpacked(get(address)[2])


def wait_for(address: str, committed: dict[str, int]) -> Any:
    """The list of jobs, once their records are read so far."""
    pause = threading.Event()
    while True:
        listed = read(f"{address}jobs")
        found = {job["name"]: (job["summary"] or {}).get("committed") for job in listed["jobs"]}
        if found == committed:
            return listed["jobs"]
        pause.wait(0.05)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip(HOW_TO_INSTALL)
    with chromium(path) as started:
        yield started


def test_the_command_says_what_it_serves_and_the_page_is_locked_down(tmp_path: Path) -> None:
    begin(tmp_path, "first", episode("first", 0))
    begin(tmp_path, "second")

    with served(tmp_path / "runs") as (address, said):
        assert said == [
            f"all jobs of file://{tmp_path}/runs, and those that are begun meanwhile\n",
            "open it in a browser on this machine; ^C ends it\n",
        ]
        assert address.startswith("http://127.0.0.1:")
        policy = get(address)[1]["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert get(address, Host="evil.example")[0] == 403
        jobs = wait_for(address, {"first": 1, "second": 0})
        rows = read(f"{address}rows/0/0/0")
        fix = read(f"{address}gold/0/a/0")

    assert [(job["committed"], job["episodes"]) for job in jobs] == [(1, 4), (0, 4)]
    assert [row["instance"] for row in rows["rows"]] == ["a"]
    assert fix == {"patch": GOLD}


def test_a_job_that_runs_is_followed_and_one_that_begins_appears(tmp_path: Path) -> None:
    begin(tmp_path, "first", episode("first", 0))

    with served(tmp_path / "runs") as (address, _):
        wait_for(address, {"first": 1})
        begin(tmp_path, "first", replace(episode("first", 1), failure=LOST, reward=None))
        begin(tmp_path, "later", episode("later", 0))
        wait_for(address, {"first": 2, "later": 1})
        pause = threading.Event()
        while len((news := read(f"{address}rows/0/0/0"))["rows"]) < 2:
            pause.wait(0.05)

    assert [row["message"] for row in news["rows"]] == [None, LOST.message]


def test_texts_of_a_job_are_searched_in_any_case(tmp_path: Path) -> None:
    begin(tmp_path, "first", episode("first", 0, "I see Grüße/50%"), ran("first", 'print("x")\n'))

    with served(tmp_path / "runs") as (address, _):
        wait_for(address, {"first": 2})
        called = read(f"{address}search/0/print(%22x%22)%0A")
        found = read(f"{address}search/0/GR%C3%BC%C3%9Fe%2F50%25")
        rest = read(f"{address}search/0/GR%C3%BC%C3%9Fe/a/0")

    assert [(hit["sample"], hit["place"]) for hit in called["hits"]] == [(1, "turn 0, bash")]
    assert {(hit["instance"], hit["sample"]) for hit in found["hits"]} == {("a", 0)}
    assert (found["hits"][0]["place"], found["hits"][0]["found"]) == ("turn 0", "Grüße/50%")
    assert (found["searched"], found["last"]) == (2, None)
    assert (rest["hits"], rest["searched"]) == ([], 1)


def test_a_store_in_a_browser_fills_itself_and_leads_to_episodes(
    browser: Browser, tmp_path: Path
) -> None:
    begin(tmp_path, "first", episode("first", 0))

    with served(tmp_path / "runs") as (address, _):
        browser.open(address)
        browser.wait("document.querySelector('.jobs')?.innerText.includes('1/4')")
        begin(tmp_path, "first", replace(episode("first", 1), failure=LOST, reward=None))
        browser.wait("document.querySelector('.jobs').innerText.includes('2/4')")
        browser.evaluate("document.querySelector('.jobs a').click()")
        browser.wait("document.querySelectorAll('.episodes tbody tr').length == 2")
        assert LOST.message in text_of(browser, ".episodes")
        begin(tmp_path, "first", episode("first", 0, instance="b"))
        browser.wait("document.querySelectorAll('.episodes tbody tr').length == 3")
        browser.evaluate("document.querySelector('.episodes td.name a').click()")
        browser.wait("document.querySelector('#patch')?.innerText.includes('reference fix')")
        assert "+new I look." in text_of(browser, "#patch")
        browser.open(f"{address}#/0/b/0/patch")
        browser.wait("document.querySelector('#patch')?.innerText.includes('no reference fix')")
        browser.open(f"{address}#/search/all/i%20look")
        browser.wait("document.querySelectorAll('.hit').length >= 3")
        assert number_of(browser, ".hit mark") == number_of(browser, ".hit")
        assert complaints(browser) == []


def test_what_a_server_reads_from_a_hostile_record_never_runs(
    browser: Browser, tmp_path: Path
) -> None:
    browser.send("Runtime.addBinding", name="boom")
    failed = replace(LOST, message=ATTACK, type="<img src=x onerror=boom()>")
    terms = Reward((RewardTerm(ATTACK, 0.5), RewardTerm("__proto__", 1.0)))
    begin(
        tmp_path,
        "first",
        *(replace(episode("first", 0, ATTACK), reward=terms), episode("first", 1, ATTACK)),
        replace(episode("first", 0, ATTACK, instance="b"), failure=failed, reward=None),
    )

    with served(tmp_path / "runs") as (address, _):
        wait_for(address, {"first": 3})
        for where in ("", "#/0", "#/0/a/0", "#/0/b/0", "#/search/all/onerror", "#/search/0/%3Cimg"):
            browser.open(f"{address}{where}")
            browser.wait("!/Reading|Searching/.test(document.body.innerText)")
            browser.evaluate(
                "document.querySelectorAll('details').forEach(e => { e.open = true; })"
            )
            assert browser.events("Runtime.bindingCalled") == []
            assert number_of(browser, "main img, main script, main svg[onload], main iframe") == 0
            assert complaints(browser) == []


def test_rewards_are_drawn_over_their_own_range_with_counts_axes_and_terms(
    browser: Browser, tmp_path: Path
) -> None:
    def rewarded(sample: int, *scores: float) -> Trajectory:
        names = ("resolved", "style")
        terms = tuple(RewardTerm(name, score) for name, score in zip(names, scores, strict=True))
        return replace(episode("first", sample), reward=Reward(terms))

    begin(
        tmp_path,
        "first",
        *(rewarded(0, 0.0, -2.0), rewarded(1, 1.0, -2.0), rewarded(2, 1.0, -1.5)),
        samples=3,
    )
    with served(tmp_path / "runs") as (address, _):
        browser.open(f"{address}#/0")
        browser.wait("document.querySelectorAll('.episodes tbody tr').length == 3")
        told = browser.evaluate(
            "[...document.querySelectorAll('figure')].filter(e => e.querySelector('svg'))"
            ".map(e => [...e.querySelectorAll('figcaption, text')].map(t => t.textContent))"
        )
        browser.open(f"{address}#/0/a/2/reward")
        browser.wait("document.querySelector('.terms')")
        assert text_of(browser, ".terms").split() == [
            *("Term", "Score", "Weight", "Adds", "resolved", "1", "1", "1"),
            *("style", "-1.5", "1", "-1.5", "reward", "-0.5"),
        ]

    captions = {each[0].partition("mean")[0]: each[1:] for each in told}
    assert captions["Reward"] == ["1", "0", "1", "1", "1", "-2", "-1", "-0.5"]
    assert captions["Term resolved"] == ["2", "0", "1", "2", "0", "1"]


def test_branches_are_a_tree(browser: Browser, tmp_path: Path) -> None:
    made = episode("first", 0)
    kinds = [(1, 0, BranchKind.SUB_AGENT), (2, 1, BranchKind.SUB_AGENT), (3, 0, BranchKind.RESTART)]
    branches = tuple(
        replace(made.main_branch, index=index, kind=kind, parent=parent, parent_length=50)
        for index, parent, kind in kinds
    )
    begin(tmp_path, "first", replace(made, branches=branches))
    with served(tmp_path / "runs") as (address, _):
        browser.open(f"{address}#/0/a/0/branches")
        browser.wait("document.querySelector('.tree')")
        lines = browser.evaluate(
            "[...document.querySelectorAll('.tree > div')]"
            ".map(e => [e.style.paddingLeft, e.querySelector('strong').textContent])"
        )
        assert "opened by branch 1 after turn 0" in text_of(browser, ".tree")
    assert lines == [
        ["0rem", "Branch 0: the task"],
        ["1.5rem", "└ Branch 1: sub-agent"],
        ["3rem", "└ Branch 2: sub-agent"],
        ["1.5rem", "└ Branch 3: goes on with another history"],
    ]
