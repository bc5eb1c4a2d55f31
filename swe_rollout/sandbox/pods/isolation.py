"""Isolate the sandboxes of a namespace, and check from inside one what it can reach and do.

A manifest and a NetworkPolicy request isolation; container runtime, node and network plug-in
enforce it, or don't.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.doctor import ClusterCheck
from swe_rollout.cluster.objects import NETWORK_POLICIES, Json
from swe_rollout.errors import PrerequisiteError, SandboxError
from swe_rollout.sandbox.base import Role, Sandbox
from swe_rollout.sandbox.pods.pod_spec import MANAGED_BY, ROLE_LABEL, ROOT_CAPABILITIES
from swe_rollout.sandbox.script import read_script

_Facts: TypeAlias = defaultdict[str, list[str]]
"""Names with their values, as `isolation.sh` prints them."""
POLICY_NAME: Final = "swe-rollout-sandboxes-deny-all"

_CAPABILITIES: Final = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
"""Indexed by bit number, as in linux/capability.h."""
_SECCOMP_FILTER: Final = "2"
_TIMEOUT_S: Final = 60.0
FORBIDDEN_HOSTS: Final = (("1.1.1.1", "443"), ("169.254.169.254", "80"))
"""The internet, and the address where clouds serve a machine's credentials. The script adds the API
server."""


def deny_all_policy() -> Json:
    """Build the policy that denies all traffic to and from the sandboxes of a namespace.

    Workers have a role label as well, and need the network.
    """
    sandboxes = {"key": ROLE_LABEL, "operator": "In", "values": [role.value for role in Role]}
    return {
        "metadata": {"name": POLICY_NAME, "labels": MANAGED_BY},
        "spec": {
            "podSelector": {"matchExpressions": [sandboxes]},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


async def ensure_isolation(client: ClusterClient, namespace: str) -> None:
    """Create the policy where it is missing; PrerequisiteError when it allows any traffic."""
    policy = await client.ensure(NETWORK_POLICIES, namespace, POLICY_NAME, deny_all_policy())
    if not policy.spec.denies_all:
        raise PrerequisiteError(
            "the NetworkPolicy of the sandboxes allows some traffic",
            why=f"{POLICY_NAME} in {namespace} was changed after its creation",
            fix=f"`kubectl -n {namespace} delete networkpolicy {POLICY_NAME}`: it is created again",
        )


async def check_isolation(
    sandbox: Sandbox, *, hosts: Sequence[tuple[str, str]] = FORBIDDEN_HOSTS
) -> tuple[ClusterCheck, ...]:
    """Run one check per isolation mechanism; no host and port of `hosts` should respond.

    SandboxError when the script fails in the sandbox.
    """
    script = read_script("isolation")
    arguments = [word for host in hosts for word in host]
    result = await sandbox.exec(
        ["/bin/sh", "-c", script, "isolation", *arguments], cwd="/", timeout_s=_TIMEOUT_S
    )
    if not result.ok:
        raise SandboxError(
            "can't check the isolation of the sandbox",
            why=result.stderr.decode(errors="replace")[-300:] or f"exit code {result.exit_code}",
            fix="use an image with /bin/sh and check that /proc is mounted",
        )
    facts = defaultdict[str, list[str]](list)
    for line in result.stdout.decode(errors="replace").splitlines():
        name, _, value = line.partition(" ")
        facts[name].append(value)
    return tuple(_checks(facts))


def _checks(facts: _Facts) -> Iterator[ClusterCheck]:
    yield _absence(
        "credentials",
        facts["secret"],
        good="no service-account token, no mounted secret",
        fix="remove the volumes from spec.sandbox.pod.template",
    )
    yield _capabilities(facts)
    yield _system_calls(facts)
    yield _absence(
        "kernel files",
        [*facts["writable"], *facts["unmasked"], *facts["device"]],
        good="/proc and /sys are read-only and masked, no block device",
        fix="use a current container runtime on the node: this one leaves them open",
    )
    names = [name for name in facts["nameserver"] if not name.startswith("127.")]
    yield _absence(
        "name service", names, good="none", fix="remove dnsPolicy from spec.sandbox.pod.template"
    )
    yield _network(facts)


def _absence(name: str, found: Sequence[str], *, good: str, fix: str) -> ClusterCheck:
    if found:
        return ClusterCheck.fail(name, f"found: {', '.join(found)}", fix)
    return ClusterCheck.ok(name, good)


def _capabilities(facts: _Facts) -> ClusterCheck:
    both = int(_one(facts, "CapEff") or "0", 16) | int(_one(facts, "CapBnd") or "0", 16)
    have = [each for bit, each in enumerate(_CAPABILITIES) if both >> bit & 1]
    beyond = [each for each in have if each not in ROOT_CAPABILITIES]
    who = f"user {_one(facts, 'Uid')}"
    if beyond:
        text = f"{who} has more than requested: {', '.join(beyond)}"
        fix = "use a container runtime that honours capabilities.drop"
        return ClusterCheck.fail("capabilities", text, fix)
    return ClusterCheck.ok("capabilities", f"{who}: {', '.join(have) or 'none'}")


def _system_calls(facts: _Facts) -> ClusterCheck:
    name = "system calls"
    if _one(facts, "NoNewPrivs") != "1":
        fix = "use a container runtime that honours allowPrivilegeEscalation"
        return ClusterCheck.fail(name, "programs can gain privileges", fix)
    if _one(facts, "Seccomp") != _SECCOMP_FILTER:
        fix = "expected with gVisor or Kata, which filter outside; else use a current runtime"
        return ClusterCheck.warn(name, "no seccomp filter is visible", fix)
    return ClusterCheck.ok(name, "filtered by seccomp, no new privileges")


def _network(facts: _Facts) -> ClusterCheck:
    if reached := facts["open"]:
        fix = (
            "use a network plug-in that enforces NetworkPolicy (Cilium, Calico, kindnet); this one "
            "does not, so the agent can fetch its task's fix"
        )
        return ClusterCheck.fail("network", f"reached: {', '.join(reached)}", fix)
    if facts["untried"] or not facts["closed"]:
        text = "not checked: the image has neither python3, bash with timeout, nor nc"
        return ClusterCheck.warn("network", text, "use an image that has one of them")
    return ClusterCheck.ok("network", f"closed: {', '.join(facts['closed'])}")


def _one(facts: _Facts, name: str) -> str:
    """Return the only value of a name; an empty string if the kernel reports none."""
    return next(iter(facts[name]), "")
