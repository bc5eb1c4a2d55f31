"""Images pulled on the nodes of a real cluster, and images that are unavailable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.needs import BASE, BUSYBOX, CLUSTER, KUBECONFIG
from cluster.pods import until
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.objects import PODS
from swe_rollout.sandbox.pods import prefetch as prefetching
from swe_rollout.sandbox.pods.prefetch import PrefetchedImage, prefetch
from swe_rollout.spec.pod_template import PodTemplate
from swe_rollout.spec.sandbox import PodSandbox

pytestmark = CLUSTER
NOWHERE = "swe-rollout/nowhere:local"


async def fetched(
    client: ClusterClient, images: list[str], spec: PodSandbox
) -> list[PrefetchedImage]:
    return [each async for each in prefetch(client, images, spec, within_s=60)]


async def nothing_is_left(client: ClusterClient, namespace: str) -> None:
    async def empty() -> bool:
        pods = (await client.list(PODS, namespace, labels=prefetching._LABEL)).items
        return not [pod for pod in pods if pod.metadata.deletion_timestamp is None]

    await until(empty)


async def test_every_node_has_each_image_once_and_nothing_stays(
    client: ClusterClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetching, "IMAGES_PER_POD", 1)
    found = await fetched(client, [BUSYBOX, BASE, BASE], PodSandbox(namespace=namespace))
    assert found == [PrefetchedImage(BUSYBOX, 1), PrefetchedImage(BASE, 1)]
    await nothing_is_left(client, namespace)


async def test_an_unavailable_image_is_reported_and_delays_no_other(
    client: ClusterClient, namespace: str
) -> None:
    spec = PodSandbox(namespace=namespace, image_pull_policy="Never")
    bad, good = await fetched(client, [NOWHERE, "swe-rollout/sandbox-base:local"], spec)
    assert good == PrefetchedImage(BASE, 1)
    assert (bad.image, bad.nodes) == (NOWHERE, 0)
    assert "ErrImageNeverPull" in bad.problem


async def test_a_selector_that_no_node_matches_is_reported(
    client: ClusterClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetching, "_NODES_S", 1.0)
    template = PodTemplate.model_validate({"spec": {"nodeSelector": {"disk": "huge"}}})
    spec = PodSandbox(namespace=namespace, template=template)
    assert await fetched(client, [BASE], spec) == [
        PrefetchedImage(
            BASE, 0, "no node matches the node selectors and tolerations of this job's sandboxes"
        )
    ]


def test_the_command_line_reports_every_image(tmp_path: Path) -> None:
    row: dict[str, Any] = {
        "instance_id": "one__one-1",
        "repo": "one/one",
        "base_commit": "0" * 40,
        "problem_statement": "It fails.",
        "patch": "",
        "test_patch": "",
        "FAIL_TO_PASS": ["test_one.py::test_it"],
        "PASS_TO_PASS": [],
        "image_name": BUSYBOX,
        "test_cmd": "true",
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    program = Path(sys.executable).with_name("swe-rollout")
    done = subprocess.run(
        [program, "prefetch", "rows.jsonl", "--namespace", "default", "-o", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECONFIG": KUBECONFIG},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"images": [{"image": BUSYBOX, "nodes": 1, "problem": ""}]}
