"""verl's manager and its workers in Ray's own processes, on this machine's loopback."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs scripts/trainers verl")
with warnings.catch_warnings():
    # verl's and ray's own, while they are imported.
    warnings.simplefilter("ignore")
    ray = pytest.importorskip("ray", reason="needs scripts/trainers verl")
    pytest.importorskip("verl", reason="needs scripts/trainers verl")
    from verl.experimental.agent_loop.agent_loop import AgentLoopManager

    from trainers.verl.verl_parts import Hashed, Servers, batch_of, configuration

from collections.abc import Iterator

from swe_rollout.integrations.trainer_session import BLOCK
from trainers.tiny_model import save_model
from unit.integrations.rollouts import PARALLEL, SUBMIT, write_job

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.filterwarnings("default"),  # verl's and ray's own
]
TESTS = Path(__file__).parents[2]
WORKERS = 2


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Ray of this test's own; its workers find the tests, and the job. Returns its folder."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    job = write_job(tmp_path)
    found = [str(TESTS), str(TESTS.parent / "scripts"), str(TESTS.parent)]
    environment = {"PYTHONPATH": ":".join(found), "SWE_ROLLOUT_JOB": str(job)}
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=80 * 2**20,
        log_to_driver=False,
        configure_logging=False,
        runtime_env={"env_vars": environment},
    )
    yield tmp_path
    ray.shutdown()


async def test_workers_in_processes_of_their_own_play_different_episodes(cluster: Path) -> None:
    model_path = save_model(cluster / "model", seed=1)
    config = configuration(model_path, f"actor_rollout_ref.rollout.agent.num_workers={WORKERS}")
    servers = Servers({"7": Hashed(1)})
    servers.main = [PARALLEL, SUBMIT]
    manager: Any = await AgentLoopManager.create(config, servers)
    assert len(manager.agent_loop_workers) == WORKERS

    batch = await manager.generate_sequences(batch_of("one", "two", "one", "one", "two", "one"))

    assert len(batch) == 6
    assert batch.batch["rm_scores"].sum(dim=-1).tolist() == pytest.approx([0.2] * 6)
    episodes = batch.non_tensor_batch["episode"].tolist()
    assert len(set(episodes)) == 6
    numbers = [int(episode.rsplit("/", 1)[1]) for episode in episodes]
    blocks = [number // BLOCK for number in numbers]
    # The manager gives each worker a half; each opened the job once.
    assert blocks[:3] == [blocks[0]] * 3
    assert blocks[3:] == [blocks[3]] * 3
    assert blocks[0] != blocks[3]
