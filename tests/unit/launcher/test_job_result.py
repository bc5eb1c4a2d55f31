"""Results of a job on the cluster, from its status."""

from __future__ import annotations

import json

from swe_rollout.cluster.job_objects import JobObject
from swe_rollout.launcher.job_result import summary_of
from unit.cli.job_parts import cluster_job


def test_the_summary_of_a_job_on_the_cluster_is_that_of_a_job_in_a_store() -> None:
    assert json.loads(summary_of(cluster_job()).to_json()) == {
        "job": "demo",
        "episodes": 8,
        "committed": 3,
        "resolved": 1,
        "unresolved": 1,
        "masked": 1,
        "mean_reward": 0.5,
        "masked_share": 1 / 3,
        "stop_reasons": {"submitted": 2},
        "failures": {"ImagePull": 1},
        "damaged": [],
        "strays": [],
        "tampered": 0,
        "unproven": 0,
        "replaced": 0,
        "quarantined": {},
        "failure_groups": [],
        "instances": [],
    }


def test_ungraded_episodes_have_no_mean_reward() -> None:
    ungraded = JobObject.decode(
        json.dumps(
            {
                "metadata": {"name": "demo"},
                "spec": {"grading": {"enabled": False}},
                "status": {"episodes": {"committed": 2, "unresolved": 2}},
            }
        ).encode()
    )

    assert summary_of(cluster_job()).mean_reward == 0.5
    assert summary_of(ungraded).mean_reward is None
