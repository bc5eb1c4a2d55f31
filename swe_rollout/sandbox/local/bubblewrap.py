"""Build bubblewrap's command line, and check whether bubblewrap works on this machine.

A sandbox gets new user, mount, pid, network, ipc and uts namespaces and no capabilities. It sees
the programs that `machine` chooses, what they need of /etc, and its image. Sources of mounts are
relative where they lie in the file system that `namespace` prepares.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from swe_rollout.sandbox.local import machine

PROGRAM = "/.swe-rollout"
"""Path of the supervisor's program in a sandbox."""
PROGRAM_FILE = "supervisor"
"""The same program among the files that a sandbox starts with."""

_USERS = (
    # No namespaces inside: a new user namespace would give its owner all capabilities over it.
    ("--unshare-user", "--disable-userns"),
    ("--unshare-user-try",),
)
"""Ways to enter a user namespace, the best one first; older versions lack the option."""
_ISOLATION = (
    *("--uid", "0", "--gid", "0"),
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "sandbox", "--new-session", "--die-with-parent", "--cap-drop", "ALL"),
    "--as-pid-1",
)
# Whole folders that may hold keys, such as /etc/ssl, are never shown.
_CONFIGURATION = ("alternatives", "ssl/certs", "pki/ca-trust", "pki/tls/certs")
# Small files: a copy in memory costs less than a mount.
_COPIED_CONFIGURATION = (
    *("ld.so.cache", "localtime", "timezone", "ssl/openssl.cnf", "os-release", "debian_version"),
    *("mime.types", "protocols", "services", "magic"),
)
_MOST_COPIED_BYTES = 256 << 10
# bubblewrap itself protects a few others, such as /proc/irq.
_READ_ONLY_PROC = ("acpi", "fs", "scsi", "sys")
_HIDDEN_PROC = ("kcore", "keys", "latency_stats", "sched_debug", "timer_list")
_OWN_CONFIGURATION = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "resolv.conf": "",
}
_RESOLUTION = ("resolv.conf", "hosts", "nsswitch.conf")
"""Files that configure name resolution, for sandboxes with a network."""
_WRITABLE = {"tmp": "/tmp", "home": "/root", "run": "/run", "vartmp": "/var/tmp"}  # noqa: S108


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder, and the path at which it appears in the sandbox."""

    path: Path
    target: str
    writable: bool


def arguments(
    binds: Sequence[Bind], env: Mapping[str, str], *, networked: bool = False
) -> list[str]:
    """Return the arguments that run an appended command in a sandbox with this `env`.

    A `networked` sandbox shares the machine's network.
    """
    return [
        shutil.which("bwrap") or "bwrap",
        *_users(),
        *(word for word in _ISOLATION if not (networked and word == "--unshare-net")),
        *_writable(),
        *machine.shown(),
        *_configuration(_RESOLUTION if networked else ()),
        *_kernel(),
        *("--bind", "shm", "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108
        *_mounts(binds),
        *("--ro-bind", PROGRAM_FILE, PROGRAM),
        *("--remount-ro", "/"),
        *(word for name, value in env.items() for word in ("--setenv", name, value)),
        *("--chdir", "/", "--"),
    ]


def new_namespace() -> tuple[str, ...]:
    """Return the prefix that runs a command in a mount namespace in which it may mount."""
    is_root = os.geteuid() == 0
    return ("unshare", "--mount", *(() if is_root else ("--user", "--map-root-user")), "--")


def configuration() -> dict[str, bytes]:
    """Return the files of /etc that every sandbox starts with."""
    files = {name: text.encode() for name, text in _OWN_CONFIGURATION.items()}
    for name in _COPIED_CONFIGURATION:
        path = Path("/etc", name)
        with suppress(OSError):
            if path.stat().st_size <= _MOST_COPIED_BYTES:
                files[name] = path.read_bytes()
    return files


@cache
def refusal() -> str:
    """Return why bubblewrap can't be used here; empty when a trial run succeeded."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    refusals = [_refusal(users) for users in _USERS]
    return "" if "" in refusals else refusals[-1]


@cache
def _users() -> tuple[str, ...]:
    return next((users for users in _USERS if not _refusal(users)), _USERS[-1])


@cache
def _refusal(users: tuple[str, ...]) -> str:
    programs = ("/usr", "/bin", "/lib", "/lib64")
    shown = [word for name in programs for word in ("--ro-bind-try", name, name)]
    inside = ["bwrap", *users, *_ISOLATION, *shown, *_kernel(), "--", "/bin/sh", "-c", "exit 0"]
    command = [*new_namespace(), *inside]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run: {error}"
    message = done.stderr.decode("utf-8", "replace").strip()[-300:]
    return "" if done.returncode == 0 else f"this machine refuses it: {message}"


def _writable() -> Iterator[str]:
    for name, target in _WRITABLE.items():
        yield from ("--bind", name, target)


def _configuration(more: Sequence[str]) -> Iterator[str]:
    yield from ("--bind", "etc", "/etc")
    for name in more:
        if (path := Path("/etc", name)).is_file():
            yield from ("--ro-bind", str(path.resolve()), f"/etc/{name}")
    for name in _CONFIGURATION:
        if Path("/etc", name).exists():
            yield from ("--ro-bind", f"/etc/{name}", f"/etc/{name}")
    yield from ("--remount-ro", "/etc")


def _kernel() -> Iterator[str]:
    """Mount fresh /proc and /dev; restrict machine-wide files of /proc as containers do."""
    yield from ("--proc", "/proc", "--dev", "/dev")
    for name in _READ_ONLY_PROC:
        # Without capabilities, root still passes as the owner of files that belong to root.
        if Path("/proc", name).exists():
            yield from ("--ro-bind", f"/proc/{name}", f"/proc/{name}")
    for name in _HIDDEN_PROC:
        if Path("/proc", name).exists():
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")


def _mounts(binds: Sequence[Bind]) -> Iterator[str]:
    for bind in sorted(binds, key=lambda bind: bind.target.count("/")):
        kind = "--bind" if bind.writable else "--ro-bind"
        yield from (kind, str(bind.path), bind.target)
