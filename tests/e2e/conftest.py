"""End-to-end tests drive the installed command, as a user does, on real tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from e2e.command import Job


@pytest.fixture
def job_file(tmp_path: Path) -> Callable[..., Job]:
    """Writes a job over release pairs with the scripted policy; keywords go into the spec."""

    def write(
        *, names: Sequence[str] = ("python-dotenv",), scenarios: Sequence[str], **spec: object
    ) -> Job:
        store = tmp_path / "store"
        job = {
            "apiVersion": "swe-rollout.dev/v1alpha1",
            "kind": "RolloutJob",
            "metadata": {"name": "job"},
            "spec": {
                "dataset": {"releasePairs": {"names": list(names)}},
                "samples": len(scenarios),
                "parallelism": 2,
                "policy": {"scripted": {"scenarios": list(scenarios)}},
                "limits": {"turns": 30, "contextTokens": 131072},
                "sandbox": {"local": {}},
                "store": {"uri": f"file://{store}"},
                **spec,
            },
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(job, sort_keys=False))
        return Job(path, store, "job")

    return write
