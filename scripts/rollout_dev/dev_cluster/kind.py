"""The cluster in kind, on a Docker engine. Kept small, since kind does the work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from rollout_dev.dev_cluster import native
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import PREREQUISITE, Progress, ScriptError
from rollout_dev.dev_cluster.process import Kind, Record, delete_record, read_record


def docker_responds() -> bool:
    """Whether there is a Docker engine, not just its client."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], check=False, capture_output=True).returncode == 0


def name(checkout: Checkout) -> str:
    """Return the name of this checkout's cluster in kind."""
    return f"swe-rollout-{checkout.digest}"


def exists(checkout: Checkout) -> bool:
    """Whether kind has the cluster."""
    listing = subprocess.run(
        [_kind(), "get", "clusters"], check=False, capture_output=True, text=True
    )
    return name(checkout) in listing.stdout.split()


def up(checkout: Checkout, progress: Progress) -> None:
    """Create the cluster and its kubeconfig, unless it exists."""
    checkout.state.mkdir(exist_ok=True)
    if exists(checkout):
        progress.say("the cluster is up already")
        _run("export", "kubeconfig", "--name", name(checkout), "--kubeconfig", _path(checkout))
    else:
        config = checkout.root / "manifests" / "kind" / "cluster.yaml"
        _run(
            *("create", "cluster", "--name", name(checkout), "--config", str(config)),
            *("--kubeconfig", _path(checkout), "--wait", "180s"),
        )
    Record(Kind.KIND, str(checkout.root)).write(checkout)


def down(checkout: Checkout) -> None:
    """Delete the cluster; kind keeps nothing of it."""
    _run("delete", "cluster", "--name", name(checkout), "--kubeconfig", _path(checkout))
    delete_record(checkout)


def _path(checkout: Checkout) -> str:
    return str(checkout.kubeconfig)


def _run(*arguments: str) -> None:
    done = subprocess.run([_kind(), *arguments], check=False, stdout=sys.stderr)
    if done.returncode != 0:
        raise ScriptError(f"kind {arguments[0]} failed.", why="its own message is above.")


def _kind() -> str:
    found = shutil.which("kind")
    if found is None:
        raise ScriptError(
            "Docker runs here, but kind is not on PATH.",
            fix="go install sigs.k8s.io/kind@v0.33.0   (or, as root: dev-cluster up --native)",
            exit_code=PREREQUISITE,
        )
    return found


def load_images(checkout: Checkout, archives: list[Path], progress: Progress) -> None:
    """Import docker-archives into the running cluster, in kind or native."""
    if running_kind(checkout) is Kind.NATIVE:
        native.load_images(checkout, archives, progress)
        return
    for archive in archives:
        _run("load", "image-archive", str(archive), "--name", name(checkout))


def running_kind(checkout: Checkout) -> Kind:
    """Return the kind of the cluster; raises ScriptError if none runs."""
    found = read_record(checkout)
    if found is not None and found.kind is Kind.KIND:
        return Kind.KIND
    return native.running(checkout).kind
