"""The engine in the worker's own process, with a real model: the same tiny one, and its PyTorch.

Aspects: whole episodes, logprobs against a teacher-forced recomputation in fp32 by other code, the
same tokens by the same seed whatever runs beside, greedy turns, and the contract of every engine.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.command import Job, job_writer, printed_json, swe_rollout
from e2e.records import check, committed, read
from rollout_dev.sglang_cpu.environment import TORCH, link_torch
from sglang.served import MODEL, ROOT, require_installed, teach

pytestmark = pytest.mark.sglang

CONTRACT = """
import pytest

from swe_rollout.engine.transformers.engine import TransformersEngine
from swe_rollout.engine.transformers.model import LocalModel
from swe_rollout.spec.policy import TransformersPolicy
from swe_rollout.testing.extensions.engines import EngineContract


class TestLocalModel(EngineContract):
    @pytest.fixture
    async def engine(self):
        model = LocalModel.load(TransformersPolicy(model={model!r}, device="cpu"))
        engine = TransformersEngine(model, cache_tokens=10_000)
        yield engine
        await engine.aclose()

    def prompt(self):
        return [1000, 200, 30]
"""


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the commands of a test PyTorch, and one thread per operator."""
    if importlib.util.find_spec("torch") is None:
        require_installed()
        if not TORCH.exists():
            link_torch()
        monkeypatch.setenv("PYTHONPATH", str(TORCH))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def job_for(folder: Path, *, parallelism: int = 4, **sampling: object) -> Job:
    return job_writer(folder, store=f"file://{folder}/store")(
        names=["semver", "sqlparse"],
        scenarios=["unused"],
        samples=3,
        parallelism=parallelism,
        policy={"transformers": {"model": str(MODEL), "device": "cpu", "cacheTokens": 20_000}},
        sampling={"seed": 7, **sampling},
        limits={"turns": 5, "contextTokens": 8000, "maxNewTokens": 96, "formatErrors": 100},
    )


def run(job: Job) -> list[dict[str, Any]]:
    state = printed_json(swe_rollout("run", str(job.path), "-o", "json"))
    assert (state["committed"], state["masked"], state["failures"]) == (6, 0, {})
    return [read(path) for path in committed(job.folder)]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_episodes_have_the_logprobs_of_a_teacher_forced_recomputation(
    tmp_path: Path, temperature: float
) -> None:
    job = job_for(tmp_path, temperature=temperature, topK=50)

    records = run(job)

    for record in records:
        check(record)
        assert record["policy"] == f"transformers:{MODEL}"
        versions = {s["weight_version"] for s in record["segments"] if s["kind"] == "sampled"}
        assert versions == {"default"}
    turns = [turn for record in records for turn in record["turns"]]
    assert any(turn["tool_calls"] for turn in turns)
    assert any(turn["cached_tokens"] > 1000 for turn in turns)
    compared = teach(committed(job.folder), {"default": MODEL}, temperature=temperature)
    assert compared["tokens"] == sum(sum(record["loss_mask"]) for record in records) > 100
    assert compared["max_difference"] < 1e-4


def test_a_seed_repeats_the_tokens_whatever_runs_beside(tmp_path: Path) -> None:
    once = run(job_for(tmp_path / "one", parallelism=1))
    again = run(job_for(tmp_path / "six", parallelism=6))

    def turns(records: list[dict[str, Any]]) -> list[object]:
        return [record["token_ids"][: record["segments"][1]["end"]] for record in records]

    assert turns(once) == turns(again)
    assert len({str(each) for each in turns(once)}) > 2


def test_temperature_0_is_greedy(tmp_path: Path) -> None:
    records = run(job_for(tmp_path, temperature=0.0))
    sampled = [tuple(turn["text"] for turn in record["turns"][:1]) for record in records]
    assert len(set(sampled[:3])) == len(set(sampled[3:])) == 1


def test_the_contract_of_every_engine_holds(tmp_path: Path) -> None:
    test = tmp_path / "test_contract.py"
    test.write_text(CONTRACT.replace("{model!r}", repr(str(MODEL))))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider",
         "--rootdir", str(tmp_path), str(test)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "9 passed" in done.stdout


def test_without_pytorch_the_job_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch is installed")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = swe_rollout("run", str(job_for(tmp_path).path), check=False)
    assert done.returncode == 3
    assert "pip install 'swe-rollout[transformers]'" in done.stderr


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("device", "cuda:99", "no device cuda:99"),
        ("model", str(ROOT / "docs"), "docs"),
    ],
)
def test_a_model_that_can_t_run_is_a_missing_prerequisite(
    tmp_path: Path, field: str, value: str, message: str
) -> None:
    job = job_for(tmp_path)
    document = yaml.safe_load(job.path.read_text())
    document["spec"]["policy"]["transformers"][field] = value
    job.path.write_text(yaml.safe_dump(document))
    done = swe_rollout("run", str(job.path), check=False)
    assert done.returncode == 3, done.stderr
    assert message in done.stderr
