"""ClusterClient: the API requests of sandboxes, workers and the doctor, typed in and out.

Watches are in `watch`, exec streams in `exec`; both take a client and use its transport.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from swe_rollout.cluster import objects
from swe_rollout.cluster.api_error import decode_response
from swe_rollout.cluster.config import Access, load_access
from swe_rollout.cluster.manifests import (
    DaemonSetManifest,
    JsonPatchOperation,
    NetworkPolicyManifest,
    PodManifest,
    ResourceAttributes,
    TemplatedPod,
)
from swe_rollout.cluster.transport import JSON_PATCH, MERGE_PATCH, Transport

T = TypeVar("T")


class ClusterClient:
    """One Kubernetes API server. Safe for concurrent calls."""

    def __init__(
        self, access: Access, *, retry_timeout_s: float = 60.0, settling_s: float = 0.0
    ) -> None:
        """Open no connection yet; `retry_timeout_s` and `settling_s` as in `Transport`."""
        self.namespace = access.namespace
        self.cluster = access.fingerprint
        """Tells this cluster from others."""
        self.transport = Transport(access, retry_timeout_s=retry_timeout_s, settling_s=settling_s)

    @classmethod
    async def connect(
        cls,
        context: str | None = None,
        *,
        retry_timeout_s: float = 60.0,
        settling_s: float = 0.0,
    ) -> ClusterClient:
        """Build a client for the context's cluster; raises UsageError or PrerequisiteError."""
        access = await load_access(context)
        return cls(access, retry_timeout_s=retry_timeout_s, settling_s=settling_s)

    async def version(self) -> str:
        """Return the server's version, such as `v1.36.3`."""
        found = await self._get("/version", objects.Version, doing="report its version")
        return found.git_version

    async def create_pod(
        self, namespace: str, pod: PodManifest | TemplatedPod, *, dry_run: bool = False
    ) -> objects.Pod:
        """Create the pod; ApiError with `already_exists` where the name is taken.

        Unknown fields are refused. A dry run is validated in full but creates nothing.
        """
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        doing = f"create pod {pod.metadata.name}"
        return await self._post(pods_path(namespace, query=query), pod, objects.Pod, doing=doing)

    async def get_pod(self, namespace: str, name: str) -> objects.Pod:
        """Read the pod of that name."""
        return await self._get(
            pods_path(namespace, name), objects.Pod, doing=f"read pod {name} in {namespace}"
        )

    async def list_pods(self, namespace: str, selector: str) -> objects.PodList:
        """List the pods that match the label `selector`."""
        path = pods_path(namespace, query={"labelSelector": selector})
        return await self._get(path, objects.PodList, doing=f"list pods in {namespace}")

    async def delete_pod(
        self, namespace: str, name: str, *, uid: str, grace_period_s: int = 1
    ) -> None:
        """Delete the pod with this uid; ApiError when it is gone or another one has its name."""
        options = {"gracePeriodSeconds": grace_period_s, "preconditions": {"uid": uid}}
        doing = f"delete pod {name} in {namespace}"
        await self._delete(pods_path(namespace, name), options, doing=doing)

    async def delete_pods(
        self, namespace: str, *, labels: str, fields: str = "", grace_period_s: int = 1
    ) -> None:
        """Delete all pods that match both selectors, in one request; no match is no error."""
        query = {"labelSelector": labels} | ({"fieldSelector": fields} if fields else {})
        path = pods_path(namespace, query=query)
        options = {"gracePeriodSeconds": grace_period_s}
        await self._delete(path, options, doing=f"delete pods in {namespace}")

    async def annotate_pod(self, namespace: str, name: str, annotations: Mapping[str, str]) -> None:
        """Set these annotations of the pod and keep its others."""
        await self.transport.request(
            "PATCH",
            pods_path(namespace, name),
            doing=f"annotate pod {name} in {namespace}",
            body=msgspec.json.encode({"metadata": {"annotations": dict(annotations)}}),
            content_type=MERGE_PATCH,
        )

    async def patch_pod(
        self, namespace: str, name: str, operations: Sequence[JsonPatchOperation]
    ) -> objects.Pod:
        """Apply the operations, all or none; ApiError with `invalid` where a `test` fails."""
        doing = f"patch pod {name} in {namespace}"
        data = await self.transport.request(
            "PATCH",
            pods_path(namespace, name),
            doing=doing,
            body=msgspec.json.encode(operations),
            content_type=JSON_PATCH,
        )
        return decode_response(data, objects.Pod, doing=doing)

    async def pod_events(self, namespace: str, uid: str) -> list[objects.KubernetesEvent]:
        """List the events about the pod, oldest first."""
        found = await self.events(namespace, f"involvedObject.uid={uid}")
        return sorted(found, key=lambda event: event.last_timestamp or "")

    async def events(self, namespace: str, selector: str) -> list[objects.KubernetesEvent]:
        """List the events that match the field `selector`."""
        query = urlencode({"fieldSelector": selector}, quote_via=quote)
        path = f"/api/v1/namespaces/{quote(namespace)}/events?{query}"
        found = await self._get(path, objects.EventList, doing=f"list events in {namespace}")
        return found.items or []

    async def get_network_policy(self, namespace: str, name: str) -> objects.NetworkPolicy:
        """Read the NetworkPolicy of that name."""
        path = f"{_policies_path(namespace)}/{quote(name)}"
        return await self._get(path, objects.NetworkPolicy, doing=f"read NetworkPolicy {name}")

    async def create_network_policy(
        self, namespace: str, policy: NetworkPolicyManifest
    ) -> objects.NetworkPolicy:
        """Create the NetworkPolicy."""
        doing = f"create NetworkPolicy {policy.metadata.name}"
        return await self._post(
            _policies_path(namespace), policy, objects.NetworkPolicy, doing=doing
        )

    async def create_daemon_set(
        self, namespace: str, manifest: DaemonSetManifest
    ) -> objects.DaemonSet:
        """Create the DaemonSet."""
        doing = f"create DaemonSet {manifest.metadata.name} in {namespace}"
        return await self._post(
            _daemon_sets_path(namespace), manifest, objects.DaemonSet, doing=doing
        )

    async def get_daemon_set(self, namespace: str, name: str) -> objects.DaemonSet:
        """Read the DaemonSet of that name."""
        doing = f"read DaemonSet {name} in {namespace}"
        return await self._get(_daemon_sets_path(namespace, name), objects.DaemonSet, doing=doing)

    async def delete_daemon_set(self, namespace: str, name: str) -> None:
        """Delete the DaemonSet and, in the background, its pods."""
        path = _daemon_sets_path(namespace, name)
        doing = f"delete DaemonSet {name} in {namespace}"
        await self._delete(path, {"gracePeriodSeconds": 1}, doing=doing)

    async def get_namespace(self, name: str) -> objects.Namespace:
        """Read the namespace object."""
        path = f"/api/v1/namespaces/{quote(name)}"
        return await self._get(path, objects.Namespace, doing=f"read namespace {name}")

    async def is_allowed(self, request: ResourceAttributes) -> bool:
        """Whether these credentials are authorised to make `request`."""
        review = await self._post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": request}},
            objects.AccessReview,
            doing="review our own access",
        )
        return review.status.allowed

    async def user(self) -> str:
        """Return the name by which the API server knows these credentials."""
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        found = await self._post(path, {}, objects.Identity, doing="ask who we are")
        return found.status.user_info.username

    async def aclose(self) -> None:
        """Close every connection."""
        await self.transport.aclose()

    async def _get(self, path: str, kind: type[T], *, doing: str) -> T:
        data = await self.transport.request("GET", path, doing=doing)
        return decode_response(data, kind, doing=doing)

    async def _delete(self, path: str, options: object, *, doing: str) -> None:
        body = msgspec.json.encode(options)
        await self.transport.request("DELETE", path, doing=doing, body=body)

    async def _post(self, path: str, body: object, kind: type[T], *, doing: str) -> T:
        data = await self.transport.request(
            "POST", path, doing=doing, body=msgspec.json.encode(body)
        )
        return decode_response(data, kind, doing=doing)


def pods_path(namespace: str, name: str = "", *, query: Mapping[str, str] | None = None) -> str:
    """Build the path of a namespace's pods, or of one of them."""
    path = f"/api/v1/namespaces/{quote(namespace)}/pods"
    path += f"/{quote(name)}" if name else ""
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def _daemon_sets_path(namespace: str, name: str = "") -> str:
    return f"/apis/apps/v1/namespaces/{quote(namespace)}/daemonsets" + (name and f"/{quote(name)}")


def _policies_path(namespace: str) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/{quote(namespace)}/networkpolicies"
