"""An unchanged program as the agent, in a pod without a network, over the worker's exec stream."""

from __future__ import annotations

from pathlib import Path

from cluster.needs import CLUSTER
from e2e.test_harness import rewarded

pytestmark = CLUSTER


async def test_a_harness_in_a_pod_is_rewarded(tmp_path: Path) -> None:
    await rewarded(tmp_path, pod={})
