"""One copy of a bundle on each node, mounted by a claim: pods wait for it, and can't change it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.needs import BUSYBOX, CLUSTER
from cluster.pods import pods, provided, request, until
from cluster.site import kubectl
from e2e.command import swe_rollout
from e2e.test_harness import HARNESS, rewarded
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import Progress
from rollout_dev.dev_cluster.kind import load_images
from rollout_dev.images.archive import ImageConfig, layer_from_trees, write_archive
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.pods.diagnose import BundleMissingError

pytestmark = [*CLUSTER, pytest.mark.threat(point=25)]
IMAGE = "swe-rollout/test-bundle:local"
APPLY = ("apply", "--server-side", "--filename", "-")


@pytest.fixture
def manifests(tmp_path: Path, modules_namespace: str) -> Iterator[str]:
    """Load an image of nothing but a harness; delete afterwards what was applied."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mini.py").write_text(HARNESS)
    archive = tmp_path / "image.tar"
    layer = layer_from_trees({"": tmp_path / "bundle"}, tmp_path / "layer")
    write_archive(IMAGE, [layer], ImageConfig(), archive)
    load_images(Checkout.here(), [archive], Progress())
    command = ("harness", "manifest", "mini", "--image", IMAGE, "--tools", BUSYBOX)
    text = swe_rollout(*command, "--namespace", modules_namespace).stdout
    yield text
    kubectl("delete", "--ignore-not-found", "--wait=false", "--filename", "-", stdin=text)


def only(text: str, *kinds: str) -> str:
    return yaml.safe_dump_all([d for d in yaml.safe_load_all(text) if d["kind"] in kinds])


async def test_a_pod_waits_for_the_copy_plays_and_changes_nothing(
    manifests: str, modules_namespace: str, tmp_path: Path
) -> None:
    parts = {each["kind"]: each for each in yaml.safe_load_all(manifests)}
    claim = parts["PersistentVolumeClaim"]["metadata"]["name"]
    spec = pods(modules_namespace, bundle_claims={"/opt/harness": claim}, start_seconds=600.0)
    warnings: list[SandboxError] = []
    kubectl(*APPLY, stdin=only(manifests, "PersistentVolume", "PersistentVolumeClaim"))
    async with provided(spec, on_start_warning=warnings.append) as provider:
        starting = asyncio.create_task(provider.start(request()))
        await until(lambda: bool(warnings))
        assert isinstance(warnings[0], BundleMissingError)
        assert not starting.done()
        kubectl(*APPLY, stdin=manifests)
        sandbox = await starting
        assert (await sandbox.read_file("/opt/harness/mini.py")).decode() == HARNESS
        for attack in (
            "touch /opt/harness/new",
            "echo evil >/opt/harness/mini.py",
            "rm /opt/harness/mini.py",
            "mount -o remount,rw /opt/harness",
            "umount /opt/harness",
        ):
            assert (await sandbox.exec(attack)).exit_code != 0, attack
        assert (await sandbox.read_file("/opt/harness/mini.py")).decode() == HARNESS
        await sandbox.close()
    pod = {"namespace": modules_namespace, "bundleClaims": {"/opt/harness": claim}}
    await rewarded(tmp_path / "store", pod=pod, command="python3 /opt/harness/mini.py")


def test_sandboxes_could_not_mount_the_folder_itself(modules_namespace: str) -> None:
    """Which is why there is a claim: baseline, the level of their namespaces, has no host paths."""
    label = "pod-security.kubernetes.io/enforce=baseline"
    kubectl("label", "namespace", modules_namespace, label, "--overwrite")
    for volume, is_allowed in (
        ({"hostPath": {"path": "/var/lib/swe-rollout/bundles"}}, False),
        ({"persistentVolumeClaim": {"claimName": "swe-rollout-bundle-x"}}, True),
    ):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": modules_namespace},
            "spec": {
                "containers": [{"name": "c", "image": BUSYBOX}],
                "volumes": [{"name": "v", **volume}],
            },
        }
        done = subprocess.run(
            ["kubectl", "create", "--dry-run=server", "--filename", "-"],
            input=yaml.safe_dump(pod),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) == is_allowed, done.stderr
