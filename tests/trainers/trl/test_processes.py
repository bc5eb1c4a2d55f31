"""A training of several processes, as torchrun launches them: no episode is played twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swe_rollout.integrations.trainer_session import BLOCK
from trainers.tiny_model import save_model
from unit.integrations.rollouts import write_job

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.filterwarnings("default"),  # TRL's and transformers' own
]
TESTS = Path(__file__).parents[2]
PROCESSES = 2


def test_each_process_plays_episodes_of_its_own(tmp_path: Path) -> None:
    save_model(tmp_path / "model", seed=7)
    # With a seed, two episodes of one number would be the same samples.
    write_job(tmp_path, sampling={"seed": 11})
    launch = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        f"--nproc-per-node={PROCESSES}",
        *(str(TESTS / "trainers/trl/one_of_two.py"), str(tmp_path)),
    ]
    path = f"{TESTS}:{TESTS.parent / 'scripts'}"
    environment = {**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}

    done = subprocess.run(
        launch, check=False, capture_output=True, text=True, env=environment, timeout=300
    )

    assert done.returncode == 0, done.stderr[-4000:]
    files = [tmp_path / f"rank-{rank}.json" for rank in range(PROCESSES)]
    played = [json.loads(file.read_text()) for file in files]
    # Two steps; a step's batch of eight is split among the two.
    assert [len(each) for each in played] == [8, 8]
    assert len({*played[0], *played[1]}) == 16
    for rank, each in enumerate(played):
        assert {int(episode.rsplit("/", 1)[1]) // BLOCK for episode in each} == {rank}
