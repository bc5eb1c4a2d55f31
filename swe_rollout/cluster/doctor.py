"""What pod sandboxes need of a cluster, checked one by one, each with its fix.

Changes nothing on the cluster. The command line prints it; whether a NetworkPolicy is really
enforced can only be seen from inside a pod: `swe_rollout.sandbox.pods.isolation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.manifests import ResourceAttributes
from swe_rollout.errors import SweRolloutError

_PATIENCE_S = 5.0
_ENFORCE = "pod-security.kubernetes.io/enforce"
_NEEDED = (
    ("create", "", "pods", ""),
    ("get", "", "pods", ""),
    ("list", "", "pods", ""),
    ("watch", "", "pods", ""),
    ("delete", "", "pods", ""),
    ("get", "", "pods", "exec"),
    ("create", "", "pods", "exec"),
    ("get", "networking.k8s.io", "networkpolicies", ""),
    ("create", "networking.k8s.io", "networkpolicies", ""),
)
"""verb, group, resource, subresource. Exec by WebSocket is a get, and a create since 1.35."""


class Level(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    """Works, with less than it should have."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    level: Level
    text: str
    fix: str = ""


async def check(context: str | None = None, namespace: str | None = None) -> list[Check]:
    """Every check of the cluster. What can't be reached or read is a failed check, no error."""
    found: list[Check] = []
    try:
        client = await ClusterClient.connect(context, patience_s=_PATIENCE_S)
        try:
            place = namespace or client.namespace
            found.append(await _version(client))
            found.append(await _permissions(client, place))
            found.append(await _events(client, place))
            found.append(await _pod_security(client, place))
        finally:
            await client.aclose()
    except SweRolloutError as error:
        found.append(Check("api server", Level.FAIL, str(error), error.fix))
    return found


async def _version(client: ClusterClient) -> Check:
    server = client.transport.access.server
    return Check("api server", Level.OK, f"Kubernetes {await client.version()} at {server}")


async def _permissions(client: ClusterClient, namespace: str) -> Check:
    missing = []
    for verb, group, resource, subresource in _NEEDED:
        wish = ResourceAttributes(
            verb=verb,
            group=group,
            resource=resource,
            subresource=subresource,
            namespace=namespace,
        )
        if not (await client.may(wish)).allowed:
            missing.append(f"{verb} {'/'.join(filter(None, (resource, subresource)))}")
    if not missing:
        return Check(
            "permissions", Level.OK, f"may run and cut off sandboxes in namespace {namespace}"
        )
    return Check(
        "permissions",
        Level.FAIL,
        f"may not {', '.join(missing)} in namespace {namespace}",
        "grant it by a Role and a RoleBinding in that namespace",
    )


async def _events(client: ClusterClient, namespace: str) -> Check:
    wish = ResourceAttributes(verb="list", resource="events", namespace=namespace)
    if (await client.may(wish)).allowed:
        return Check("events", Level.OK, "may read events: failed starts are explained")
    return Check(
        "events",
        Level.WARN,
        "may not list events: failed starts are explained less",
        "grant list on events",
    )


async def _pod_security(client: ClusterClient, namespace: str) -> Check:
    try:
        labels = (await client.get_namespace(namespace)).metadata.labels
    except ApiError as error:
        if error.not_found:
            fix = f"`kubectl create namespace {namespace}`"
            return Check("pod security", Level.FAIL, f"there is no namespace {namespace}", fix)
        if error.forbidden:
            text = f"may not read namespace {namespace}: its Pod Security level is unknown"
            return Check(
                "pod security",
                Level.WARN,
                text,
                "grant get on namespaces, or check the label by hand",
            )
        raise
    match labels.get(_ENFORCE, ""):
        case "baseline":
            return Check("pod security", Level.OK, f"Pod Security of {namespace} is baseline")
        case "restricted":
            return Check(
                "pod security",
                Level.FAIL,
                f"Pod Security of {namespace} is restricted: task images run as root",
                f"`kubectl label --overwrite namespace {namespace} {_ENFORCE}=baseline`; "
                "or, where no task needs root, spec.sandbox.pod.runAsUser",
            )
        case level:
            return Check(
                "pod security",
                Level.WARN,
                f"Pod Security of {namespace} is {level or 'not set'}",
                f"`kubectl label --overwrite namespace {namespace} {_ENFORCE}=baseline`",
            )
