"""What a sandbox can reach and do, seen from inside it: the cluster decides what holds.

A manifest asks for isolation; runtime, node and network plug-in give it, or don't. `doctor` and the
tests use this.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from swe_rollout.cluster.doctor import Check, Level
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.pods.pod_spec import ROOT_POWERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from swe_rollout.sandbox.base import Sandbox

_CAPABILITIES: Final = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
"""By the number of their bit: linux/capability.h."""
_FILTERED: Final = "2"
_WITHIN_S: Final = 60.0
OUTSIDE: Final = (("1.1.1.1", "443"), ("169.254.169.254", "80"))
"""The internet, and where clouds keep a machine's credentials. The API server is tried too."""


@dataclass(frozen=True, slots=True)
class Inside:
    """What was seen: names with their values, as `isolation.sh` prints them."""

    facts: tuple[tuple[str, str], ...]

    def all(self, *names: str) -> list[str]:
        """Every value under one of the names."""
        return [value for name, value in self.facts if name in names]

    def one(self, name: str) -> str:
        """The only value; "" when the kernel tells none."""
        return next(iter(self.all(name)), "")


async def look_inside(
    sandbox: Sandbox, *, hosts: Sequence[tuple[str, str]] = OUTSIDE
) -> tuple[Check, ...]:
    """One check for each wall. Host and port of `hosts` should not answer.

    SandboxError when the sandbox can't tell.
    """
    script = files("swe_rollout.sandbox.pods").joinpath("isolation.sh").read_text()
    arguments = [word for host in hosts for word in host]
    result = await sandbox.exec(
        ["/bin/sh", "-c", script, "isolation", *arguments], cwd="/", timeout_s=_WITHIN_S
    )
    if not result.ok:
        raise SandboxError(
            "the sandbox does not tell how it is isolated",
            why=result.stderr.decode(errors="replace")[-300:] or f"exit code {result.exit_code}",
            fix="the image needs /bin/sh and /proc",
        )
    lines = result.stdout.decode(errors="replace").splitlines()
    pairs = (line.partition(" ") for line in lines)
    return tuple(_checks(Inside(tuple((name, value) for name, _, value in pairs))))


def _checks(inside: Inside) -> Iterator[Check]:
    yield _none(
        "credentials",
        inside.all("secret"),
        good="no service-account token, no mounted secret",
        fix="take the volumes out of spec.sandbox.pod.template",
    )
    yield _powers(inside)
    yield _filter(inside)
    yield _none(
        "kernel files",
        inside.all("writable", "unmasked", "device"),
        good="/proc and /sys are read-only and masked, no block device",
        fix="the node's container runtime leaves them open: use a current one",
    )
    names = [name for name in inside.all("nameserver") if not name.startswith("127.")]
    yield _none("name service", names, good="none", fix="leave dnsPolicy to the sandbox")
    yield _network(inside)


def _none(name: str, found: Sequence[str], *, good: str, fix: str) -> Check:
    if found:
        return Check(name, Level.FAIL, f"there: {', '.join(found)}", fix)
    return Check(name, Level.OK, good)


def _powers(inside: Inside) -> Check:
    name = "capabilities"
    both = int(inside.one("CapEff") or "0", 16) | int(inside.one("CapBnd") or "0", 16)
    have = [each for bit, each in enumerate(_CAPABILITIES) if both >> bit & 1]
    beyond = [each for each in have if each not in ROOT_POWERS]
    who = f"user {inside.one('Uid')}"
    if beyond:
        text = f"{who} has more than asked for: {', '.join(beyond)}"
        return Check(name, Level.FAIL, text, "the container runtime ignores capabilities.drop")
    return Check(name, Level.OK, f"{who}: {', '.join(have) or 'none'}")


def _filter(inside: Inside) -> Check:
    name = "system calls"
    if inside.one("NoNewPrivs") != "1":
        return Check(
            name,
            Level.FAIL,
            "programs can gain privileges",
            "the container runtime ignores allowPrivilegeEscalation",
        )
    if inside.one("Seccomp") != _FILTERED:
        return Check(
            name,
            Level.WARN,
            "no seccomp filter is seen",
            "good with gVisor or Kata, which filter outside; else use a current container runtime",
        )
    return Check(name, Level.OK, "filtered by seccomp, no new privileges")


def _network(inside: Inside) -> Check:
    name = "network"
    closed, untried = inside.all("closed"), inside.all("untried")
    if reached := inside.all("open"):
        return Check(
            name,
            Level.FAIL,
            f"reached: {', '.join(reached)}",
            "the cluster does not enforce NetworkPolicy: use a network plug-in that does "
            "(Cilium, Calico, kindnet), or the agent can fetch its task's fix",
        )
    if untried or not closed:
        return Check(
            name,
            Level.WARN,
            "not tried: the image has neither python3, bash with timeout, nor nc",
            "give an image that has one of them",
        )
    return Check(name, Level.OK, f"closed: {', '.join(closed)}")
