"""The manifest that copies a bundle to each node, and its script: a copy is whole, or not there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from swe_rollout.worker import node_copy
from swe_rollout.worker.node_copy import claim_of, manifest

IMAGE = "registry.example/codex@sha256:0"


def objects(namespace: str = "agents", image: str = IMAGE) -> dict[str, Any]:
    text = manifest("codex", image=image, namespace=namespace, tools="busybox:1")
    assert "@" not in text.replace(image, "")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def test_a_claim_is_bound_to_the_folder_that_the_nodes_fill() -> None:
    made = objects()
    claim, volume = made["PersistentVolumeClaim"], made["PersistentVolume"]
    assert claim["metadata"]["name"] == claim_of("codex", IMAGE, "agents")
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    reference = volume["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == ("agents", claim["metadata"]["name"])
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    _, copy = pod["initContainers"]
    env = {each["name"]: each.get("value") for each in copy["env"]}
    parent = pod["volumes"][1]["hostPath"]["path"]
    assert volume["spec"]["hostPath"] == {"path": f"{parent}/{env['COPY']}", "type": "Directory"}
    assert copy["command"][-1] == node_copy._SCRIPT


@pytest.mark.threat(point=25)
def test_namespaces_and_images_share_no_copy() -> None:
    places = [
        objects(*each)["PersistentVolume"]["spec"]["hostPath"]["path"]
        for each in (("agents",), ("others",), ("agents", "registry.example/codex@sha256:1"))
    ]
    assert len(set(places)) == 3
    assert ["/agents/" in place for place in places] == [True, False, True]


def bundle(folder: Path) -> Path:
    for path in ("package.json", ".hidden", "runtime/bin/node", "proc/of-the-container"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    (folder / "runtime/bin/node").chmod(0o755)
    (folder / "runtime/link").symlink_to("nowhere")
    return folder


def listed(folder: Path) -> list[str]:
    return sorted(
        f"{path.relative_to(folder)} {path.lstat().st_mode:o}" for path in folder.rglob("*")
    )


def copied(folder: Path, pod: str, *, programs: Path | None = None) -> int:
    """Run the script as the container does; return its exit code."""
    path = os.environ["PATH"] if programs is None else f"{programs}:{os.environ['PATH']}"
    env = {
        "FROM": str(folder / "bundle"),
        "NODE": str(folder / "node"),
        "COPY": "codex",
        "HOSTNAME": pod,
        "PATH": path,
    }
    command = ["sh", "-euc", node_copy._SCRIPT]
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode


@pytest.mark.parametrize("step", ["rm", "mkdir", "cp", "sync", "mv"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_step_leaves_no_half_copy(tmp_path: Path, step: str, when: str) -> None:
    bundle(tmp_path / "bundle")
    (tmp_path / "node").mkdir()
    (tmp_path / "bin").mkdir()
    real = f'PATH={os.environ["PATH"]}; {step} "$@"' if when == "after" else ":"
    killer = tmp_path / "bin" / step
    killer.write_text(f"#!/bin/sh\n{real}\nkill -9 $PPID\n")
    killer.chmod(0o755)
    assert copied(tmp_path, "first", programs=tmp_path / "bin") == -9
    copy = tmp_path / "node" / "codex"
    assert copy.exists() == ((step, when) == ("mv", "after"))
    assert copied(tmp_path, "second") == 0
    expected = [each for each in listed(tmp_path / "bundle") if not each.startswith("proc")]
    assert listed(copy) == expected
    assert copied(tmp_path, "third") == 0
    assert listed(copy) == expected


def test_a_copy_that_another_pod_finished_first_stays(tmp_path: Path) -> None:
    bundle(tmp_path / "bundle")
    (tmp_path / "node").mkdir()
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "sync"
    other.write_text('#!/bin/sh\nmkdir "$COPY"; echo first >"$COPY/whose"\n')
    other.chmod(0o755)
    copied(tmp_path, "late", programs=tmp_path / "bin")
    assert [each.name for each in (tmp_path / "node" / "codex").iterdir()] == ["whose"]
