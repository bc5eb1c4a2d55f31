"""Step 4 of the tutorial, as a reader follows it on the dev cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.needs import TIER
from cluster.site import ROOT, kubectl
from doc_steps import Reader

pytestmark = TIER
PAGE = ROOT / "docs" / "tutorial" / "4-dev-cluster.md"


@pytest.fixture
def namespace() -> Iterator[str]:
    """Take the page's namespace away afterwards, unless somebody had it before."""
    name = "rollouts"
    existed = bool(kubectl("get", "namespace", name, "--ignore-not-found"))
    yield name
    kubectl("delete", "rj", "hour", "again", "-n", name, "--ignore-not-found")
    if not existed:
        kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.slow
def test_step_4_runs_jobs_as_pods_and_survives_lost_workers(tmp_path: Path, namespace: str) -> None:
    printed = Reader(tmp_path, timeout_s=1800).follow(PAGE)

    assert "8/8" in printed
    finished = kubectl("get", "rj", "again", "-n", namespace, "-o", "jsonpath={.status.state}")
    assert finished == "Complete"
