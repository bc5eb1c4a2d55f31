"""The record that `up` writes for later commands: the processes of this checkout's cluster."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.process import Process


class Kind(StrEnum):
    """How the cluster runs."""

    NATIVE = "native"
    KIND = "kind"


@dataclass(frozen=True, slots=True)
class Forward:
    """A relay from the node's address to a loopback port of the machine."""

    port: int
    process: Process


@dataclass(frozen=True, slots=True)
class Record:
    """One run of the cluster."""

    kind: Kind
    checkout: str
    """Its path, so that a copy of the folder does not claim the original's processes."""
    port: int = 0
    node: Process | None = None
    """The native cluster's first process."""
    forwards: tuple[Forward, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether the native cluster's first process still runs."""
        return self.node is not None and self.node.alive

    @property
    def server(self) -> str:
        """The address of the native cluster's API server on this machine."""
        return f"https://127.0.0.1:{self.port}"

    def write(self, checkout: Checkout) -> None:
        """Write it atomically."""
        partial = _path(checkout).with_suffix(".new")
        partial.write_text(json.dumps(asdict(self)))
        partial.rename(_path(checkout))


def read(checkout: Checkout) -> Record | None:
    """Read the record of this checkout's last run, if there is one and it is not a copy."""
    try:
        value = json.loads(_path(checkout).read_text())
        found = Record(
            Kind(value["kind"]),
            str(value["checkout"]),
            int(value["port"]),
            Process(**value["node"]) if value["node"] else None,
            tuple(Forward(int(f["port"]), Process(**f["process"])) for f in value["forwards"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.checkout == str(checkout.root) else None


def delete(checkout: Checkout) -> None:
    """Delete the record: nothing of this checkout runs any more."""
    _path(checkout).unlink(missing_ok=True)


def _path(checkout: Checkout) -> Path:
    return checkout.state / "cluster.json"
