"""Enforce network policies in the native cluster, only those that forbid all egress.

The bridge plugin enforces no policies, so this process does it for the one form that sandboxes
need. Access is closed by default: a pod's packets pass only once its address is in the set `open`,
so a pod reaches nothing before its policies are evaluated or while this process is down.

Policies that allow some connections are not supported here; the CNIs of real clusters support them.
"""

from __future__ import annotations

import http.client
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rollout_dev.dev_cluster import pki
from rollout_dev.dev_cluster.api import Api, ExpiredError, Json, inner, items, text, texts
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.dev_cluster.network import NODE_NAME, POD_RANGE

_TABLE = "bridge dev_cluster"

# Bridge family: pods that talk to each other do so over the bridge, which layer 3 never sees.
# IPv6: pods have link-local addresses, and the last rule knows only IPv4.
# tcp flags: any packet but the first belongs to a connection that another party opened, such as the
# kubelet's probe. (Connection tracking on bridges would be cleaner; some kernels lack it.)
_RULES = f"""\
table {_TABLE} {{
  set open {{ type ipv4_addr; }}
  chain egress {{
    type filter hook prerouting priority 0;
    ether type ip6 drop
    tcp flags & (syn | ack) != syn accept
    ip saddr {POD_RANGE} ip saddr != @open drop
  }}
}}
"""


def install_rules() -> None:
    """Install the rules; no pod may connect yet."""
    _run_nft(_RULES)


@dataclass(frozen=True, slots=True)
class Requirement:
    """An entry of `matchExpressions`."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels match."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:  # The API server accepts no other operator.
                return False


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """A policy: its pod selector, and whether it forbids all egress."""

    namespace: str
    requirements: tuple[Requirement, ...]
    denies_egress: bool

    @classmethod
    def of(cls, value: Json) -> NetworkPolicy:
        """Parse an API object."""
        selector = inner(value, "spec", "podSelector")
        labels = texts(inner(selector, "matchLabels"))
        expressions = [
            Requirement(
                text(inner(expression, "key")),
                text(inner(expression, "operator")),
                frozenset(text(v) for v in items(inner(expression, "values"))),
            )
            for expression in items(inner(selector, "matchExpressions"))
        ]
        equal = [Requirement(key, "In", frozenset({value})) for key, value in labels.items()]
        kinds = items(inner(value, "spec", "policyTypes"))
        return cls(
            text(inner(value, "metadata", "namespace")),
            (*equal, *expressions),
            "Egress" in kinds and not items(inner(value, "spec", "egress")),
        )

    def denies(self, pod: PolicyPod) -> bool:
        """Whether the policy forbids all egress of this pod."""
        return (
            self.denies_egress
            and self.namespace == pod.namespace
            and all(requirement.matches(pod.labels) for requirement in self.requirements)
        )


@dataclass(frozen=True, slots=True)
class PolicyPod:
    """The fields of a pod that policies need; no addresses once it has ended."""

    namespace: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]

    @classmethod
    def of(cls, value: Json) -> PolicyPod:
        """Parse an API object."""
        status = inner(value, "status")
        # An ended pod still has its address, which may already be another pod's.
        ended = inner(status, "phase") in ("Succeeded", "Failed")
        own = not ended and inner(value, "spec", "hostNetwork") is not True
        found = (
            [text(inner(entry, "ip")) for entry in items(inner(status, "podIPs"))] if own else []
        )
        return cls(
            text(inner(value, "metadata", "namespace")),
            texts(inner(value, "metadata", "labels")),
            tuple(address for address in found if address and ":" not in address),
        )


def open_addresses(
    pods: Iterable[PolicyPod], policies: Collection[NetworkPolicy]
) -> frozenset[str]:
    """Return the addresses of pods whose egress no policy forbids."""
    return frozenset(
        address
        for pod in pods
        if not any(policy.denies(pod) for policy in policies)
        for address in pod.addresses
    )


@dataclass(slots=True)
class Mirror:
    """The objects of one kind, kept current by a watch."""

    api: Api
    path: str
    changed: queue.Queue[None]
    selector: str = ""
    """A part of the query, ending with `&`; empty selects all objects."""
    objects: dict[str, Json] = field(default_factory=dict)
    complete: bool = False
    """Whether the first list has arrived."""

    def follow(self) -> None:
        """List and watch forever."""
        while True:
            try:
                self._follow_once()
            except ExpiredError:
                continue
            except (OSError, ValueError, http.client.HTTPException, ScriptError) as error:
                sys.stderr.write(f"{self.path}: {error}\n")
                time.sleep(1)

    def _follow_once(self) -> None:
        listing = self.api.get(f"{self.path}?{self.selector}")
        self.objects = {_uid(value): value for value in items(inner(listing, "items"))}
        self.complete = True
        self.changed.put(None)
        version = text(inner(listing, "metadata", "resourceVersion"))
        while True:
            for event in self.api.watch(self.path, version, self.selector):
                value = inner(event, "object")
                version = text(inner(value, "metadata", "resourceVersion")) or version
                match inner(event, "type"):
                    case "BOOKMARK":
                        continue
                    case "DELETED":
                        self.objects = {k: v for k, v in self.objects.items() if k != _uid(value)}
                    case _:
                        self.objects = {**self.objects, _uid(value): value}
                self.changed.put(None)


def main() -> None:
    """Keep the set `open` up to date until the process ends."""
    api = Api.inside(Checkout.here(), pki.POLICY)
    changed: queue.Queue[None] = queue.Queue()
    # Pods of other nodes, which `bench scale` makes up, send no packets.
    pods = Mirror(api, "/api/v1/pods", changed, f"fieldSelector=spec.nodeName%3D{NODE_NAME}&")
    policies = Mirror(api, "/apis/networking.k8s.io/v1/networkpolicies", changed)
    for mirror in (pods, policies):
        threading.Thread(target=mirror.follow, daemon=True).start()
    # The set may be stale from an earlier run of this process: start empty.
    _run_nft(f"flush set {_TABLE} open\n")
    keep_open(changed, pods, policies, _run_nft)


def keep_open(
    changed: queue.Queue[None], pods: Mirror, policies: Mirror, apply: Callable[[str], None]
) -> None:
    """After every change, compute the open addresses and update the set by the difference."""
    current: frozenset[str] = frozenset()
    while True:
        changed.get()
        if not (pods.complete and policies.complete):
            continue
        known = [NetworkPolicy.of(value) for value in policies.objects.values()]
        wanted = open_addresses((PolicyPod.of(value) for value in pods.objects.values()), known)
        if wanted != current:
            apply(_difference(current, wanted))
            sys.stderr.write(f"open: {len(wanted)} addresses\n")
            current = wanted


def _difference(current: frozenset[str], wanted: frozenset[str]) -> str:
    """Return one transaction, so that no pod is let through in between."""
    lines = []
    for verb, addresses in (("delete", current - wanted), ("add", wanted - current)):
        if addresses:
            lines.append(f"{verb} element {_TABLE} open {{ {', '.join(sorted(addresses))} }}\n")
    return "".join(lines)


def _uid(value: Json) -> str:
    return text(inner(value, "metadata", "uid"))


def _run_nft(script: str) -> None:
    command = ["nft", "-f", "-"]
    done = subprocess.run(command, input=script, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise ScriptError("nftables rejects a change.", why=f"{script}{done.stderr}")


if __name__ == "__main__":
    main()
