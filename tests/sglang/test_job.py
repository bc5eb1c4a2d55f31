"""The main job against the real server: a random model acts, every record is valid.

Aspects: the prefix property and the mask on every record, finite logprobs from the engine itself,
the engine's weight version on every sampled segment, an orderly stop, and a grade for each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.command import answer, job_writer, swe_rollout
from e2e.records import check, committed, read

pytestmark = pytest.mark.sglang


def test_a_random_model_runs_to_its_limits_and_every_record_is_valid(
    sglang_url: str, tmp_path: Path
) -> None:
    job = job_writer(tmp_path, store=f"file://{tmp_path}/store")(
        names=["python-dotenv", "sqlparse"],
        scenarios=["unused"],
        samples=4,
        parallelism=4,
        policy={"sglang": {"url": sglang_url}},
        sampling={"temperature": 1.0, "seed": 7},
        limits={"turns": 6, "contextTokens": 6000, "maxNewTokens": 96, "formatErrors": 100},
    )

    state = answer(swe_rollout("run", str(job.path), "-o", "json"))

    assert (state["committed"], state["masked"], state["failures"]) == (8, 0, {})
    records = [read(path) for path in committed(job.folder)]
    for record in records:
        check(record)
        assert record["policy"].startswith("sglang:")
        assert record["turns"]
        assert record["reward"] is not None
        versions = {s["weight_version"] for s in record["segments"] if s["kind"] == "sampled"}
        assert versions == {"default"}
        assert any(logprob < 0 for logprob in record["logprobs"] if logprob is not None)
