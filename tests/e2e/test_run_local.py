"""Jobs run in one process: scenarios, resume, crash, bad input."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest

from e2e.command import COMMAND, Job, printed_json, scripted_server, swe_rollout
from e2e.records import check, committed, read
from swe_rollout.engine.scripted.scenarios import SCENARIOS
from waits import block_until

ALL = tuple(SCENARIOS)


def test_every_scenario_ends_as_it_says(job_file: Callable[..., Job]) -> None:
    job = job_file(scenarios=ALL)

    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))

    many = len(ALL)
    assert state.pop("run") == {"episodes": many, "already_committed": 0, "ran": many, "left": 0}
    assert state["episodes"] == state["committed"] == many
    assert (state["masked"], state["failures"]) == (0, {})
    paths = committed(job.folder)
    assert len(paths) == many
    for path in paths:
        record = read(path)
        check(record)
        scenario = SCENARIOS[ALL[int(record["episode"].rsplit("/", 1)[1])]]
        assert record["stop_reason"] == scenario.stop_reason.value, record["episode"]
        assert (record["reward"] == 1.0) is scenario.resolved, record["episode"]
        assert (record["verdict"]["status"] == "resolved") is scenario.resolved
    assert printed_json(swe_rollout("status", job.uri, "-o", "json")) == state


def test_sigkill_after_the_first_records_loses_and_duplicates_nothing(
    job_file: Callable[..., Job],
) -> None:
    """`test_crash_equal` kills at any moment, in episodes of many turns."""
    job = job_file(scenarios=["gold", "wrong", "empty", "gold"])
    run = subprocess.Popen(
        [*COMMAND, "run", str(job.path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    block_until(lambda: committed(job.folder) or run.poll() is not None, within_s=200)
    run.send_signal(signal.SIGKILL)
    run.wait()
    kept = {path: path.read_bytes() for path in committed(job.folder)}

    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))

    assert kept
    assert state["committed"] == state["episodes"] == 4
    assert state["run"]["already_committed"] == len(kept)
    paths = committed(job.folder)
    assert len(paths) == 4
    for path in paths:
        check(read(path))
        assert path.read_bytes() == kept.get(path, path.read_bytes())


def test_validate_says_gold_resolves_and_empty_does_not() -> None:
    done = swe_rollout(
        "validate", "release-pairs", "--include", "sqlparse*", "-o", "json", check=False
    )

    assert done.returncode == 0, done.stderr
    (result,) = printed_json(done)["instances"]
    assert result["gold"] == "resolved"
    assert result["empty"] == "unresolved"


@pytest.mark.slow
def test_a_job_against_the_scripted_engine_over_http_gives_the_same_tokens(
    job_file: Callable[..., Job],
) -> None:
    scenarios = ["gold", "malformed", "garbage"]
    options = ("--scenarios", ",".join(scenarios), "--context-tokens", "131072")
    with scripted_server(*options) as url:
        there = job_file(scenarios=scenarios, policy={"sglang": {"url": url}})
        state = printed_json(swe_rollout("run", str(there.path), "--name", "http", "-o", "json"))
    here = job_file(scenarios=scenarios)

    assert printed_json(swe_rollout("run", str(here.path), "--name", "direct", "-o", "json")) == {
        **state,
        "job": "direct",
    }
    over_http = [read(path) for path in committed(there.folder.with_name("http"))]
    direct = [read(path) for path in committed(here.folder.with_name("direct"))]
    for one, other in zip(over_http, direct, strict=True):
        check(one)
        assert one["policy"] == "sglang:scripted"
        for turn, same in zip(one["turns"], other["turns"], strict=True):
            assert turn["text"] == same["text"]
            assert [call["status"] for call in turn["tool_calls"]] == [
                call["status"] for call in same["tool_calls"]
            ]


def test_a_task_whose_prompt_does_not_fit_fails_alone(job_file: Callable[..., Job]) -> None:
    """Nothing that the policy did: no reward, an owner, and a warning before it begins."""
    job = job_file(
        names=["semver", "sqlparse"],
        scenarios=["gold"],
        limits={"contextTokens": 1180},
        failureBudget={"maxMaskedFraction": 1.0},
    )

    done = swe_rollout("run", str(job.path), "-o", "json")

    assert "warning: the first prompt of 1 task will not fit into 1180 tokens" in done.stderr
    assert "sqlparse-0.5.2 (1205 tokens)" in done.stderr
    assert printed_json(done)["failures"] == {"PromptTooLongError": 1}
    played, failed = map(read, committed(job.folder))
    assert (played["failure"], played["reward"] is None) == (None, False)
    assert played["turns"]
    assert (failed["failure"]["boundary"], failed["reward"]) == ("dataset", None)
    assert failed["stop_reason"] is None
    assert failed["turns"] == []
