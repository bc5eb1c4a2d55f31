"""Install the system packages of the native cluster and the image builder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.errors import PREREQUISITE, ScriptError
from rollout_dev.dev_cluster.progress import Progress


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package, and a file or command that proves it is installed."""

    name: str
    proof: str

    @property
    def installed(self) -> bool:
        """Whether its file or command exists, from whatever source."""
        search = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        return Path(self.proof).exists() or shutil.which(self.proof, path=search) is not None


CLUSTER = (
    Package("runc", "runc"),
    Package("containernetworking-plugins", "/usr/lib/cni/bridge"),
    Package("nftables", "nft"),
    Package("iproute2", "ip"),
    Package("openssl", "openssl"),
    Package("conntrack", "conntrack"),
    Package("iptables", "iptables"),
    Package("util-linux", "nsenter"),
    Package("mount", "mount"),
)
IMAGES = (Package("mmdebstrap", "mmdebstrap"), Package("busybox-static", "busybox"))


def ensure(packages: tuple[Package, ...], progress: Progress) -> None:
    """Install missing packages as root on Debian or Ubuntu; otherwise raise ScriptError."""
    missing = [package.name for package in packages if not package.installed]
    if not missing:
        return
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        progress.say(f"installing system packages: {' '.join(missing)}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing],
        ):
            subprocess.run(command, check=False, env=environment, stdout=sys.stderr)
        missing = [package.name for package in packages if not package.installed]
    if missing:
        raise ScriptError(
            f"System packages are missing: {' '.join(missing)}",
            fix=f"apt-get install {' '.join(missing)}   (as root; other systems: their equivalent)",
            exit_code=PREREQUISITE,
        )
