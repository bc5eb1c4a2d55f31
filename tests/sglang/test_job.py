"""The main job against the real server: a tiny model acts, every record is valid.

Aspects: the prefix property and the mask on every record, finite logprobs from the engine itself,
the engine's weight version on every sampled segment, orderly stops, and a grade for each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import Job, job_writer, printed_json, swe_rollout
from e2e.records import check, committed, read

pytestmark = pytest.mark.sglang


def job_for(url: str, folder: Path, **limits: object) -> Job:
    return job_writer(folder, store=f"file://{folder}/store")(
        names=["semver", "sqlparse"],
        scenarios=["unused"],
        samples=4,
        parallelism=4,
        policy={"sglang": {"url": url}},
        sampling={"temperature": 1.0, "seed": 7},
        limits={"turns": 6, "contextTokens": 8000, "formatErrors": 100, **limits},
    )


def check_records(job: Job) -> None:
    for record in (read(path) for path in committed(job.folder)):
        check(record)
        assert record["policy"].startswith("sglang:")
        assert record["turns"]
        assert record["reward"] is not None
        versions = {s["weight_version"] for s in record["segments"] if s["kind"] == "sampled"}
        assert versions == {"default"}
        assert any(logprob < 0 for logprob in record["logprobs"] if logprob is not None)


def test_a_tiny_model_acts_and_every_record_is_valid(sglang_url: str, tmp_path: Path) -> None:
    job = job_for(sglang_url, tmp_path, maxNewTokens=96)

    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))

    assert (state["committed"], state["masked"], state["failures"]) == (8, 0, {})
    check_records(job)


def test_turns_that_are_always_cut_run_to_the_turn_limit(sglang_url: str, tmp_path: Path) -> None:
    # No whole call fits, so what is sampled doesn't matter: as with weights that are random.
    job = job_for(sglang_url, tmp_path, maxNewTokens=4, cutTurns="answer")

    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))

    assert (state["committed"], state["masked"]) == (8, 0)
    # A turn is 4 tokens; one that happens to end in the stop token ends its episode.
    stops = state["stop_reasons"]
    assert set(stops) <= {"turn_limit", "finished"}
    assert stops["turn_limit"] > stops.get("finished", 0)
    check_records(job)
