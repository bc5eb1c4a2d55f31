"""ClusterClient: the verbs that sandboxes and the doctor need, typed in and out.

Watches are in `watch`, exec streams in `exec`; both take a client and use its transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from swe_rollout.cluster import objects
from swe_rollout.cluster.config import load_access
from swe_rollout.cluster.manifests import (
    AccessQuestion,
    AccessReviewManifest,
    DaemonSetManifest,
    DeleteOptions,
    Marks,
    MarksPatch,
    NetworkPolicyManifest,
    Operation,
    PodManifest,
    Preconditions,
    ResourceAttributes,
    TemplatedPod,
)
from swe_rollout.cluster.transport import JSON_PATCH, MERGE_PATCH, Transport
from swe_rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swe_rollout.cluster.config import Access

T = TypeVar("T")


class ClusterClient:
    """One Kubernetes API server, seen from one process. Safe for concurrent calls."""

    def __init__(self, access: Access, *, patience_s: float = 60.0) -> None:
        """Nothing is opened yet; `patience_s` as in `Transport`."""
        self.namespace = access.namespace
        self.transport = Transport(access, patience_s=patience_s)

    @classmethod
    async def connect(
        cls, context: str | None = None, *, patience_s: float = 60.0
    ) -> ClusterClient:
        """A client of the context's cluster; raises UsageError or PrerequisiteError."""
        return cls(await load_access(context), patience_s=patience_s)

    async def version(self) -> str:
        """The server's version, such as `v1.36.3`."""
        found = await self._get("/version", objects.Version, doing="tell its version")
        return found.git_version

    async def create_pod(
        self, namespace: str, pod: PodManifest | TemplatedPod, *, dry_run: bool = False
    ) -> objects.Pod:
        """The pod as created; ApiError with `already_exists` where the name is taken.

        Unknown fields are refused. A dry run is checked like a real one, and makes nothing.
        """
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        doing = f"create pod {pod.metadata.name}"
        return await self._post(pods_path(namespace, query=query), pod, objects.Pod, doing=doing)

    async def get_pod(self, namespace: str, name: str) -> objects.Pod:
        """The pod of that name."""
        return await self._get(
            pods_path(namespace, name), objects.Pod, doing=f"read pod {name} in {namespace}"
        )

    async def list_pods(self, namespace: str, selector: str) -> objects.PodList:
        """The pods that carry the labels `selector` asks for."""
        path = pods_path(namespace, query={"labelSelector": selector})
        return await self._get(path, objects.PodList, doing=f"list pods in {namespace}")

    async def delete_pod(
        self, namespace: str, name: str, *, uid: str, grace_period_s: int = 1
    ) -> None:
        """Delete this incarnation of the pod; ApiError when it is gone or another one."""
        options = DeleteOptions(
            grace_period_seconds=grace_period_s, preconditions=Preconditions(uid=uid)
        )
        await self.transport.request(
            "DELETE",
            pods_path(namespace, name),
            doing=f"delete pod {name} in {namespace}",
            body=msgspec.json.encode(options),
        )

    async def delete_pods(
        self, namespace: str, *, labels: str, fields: str = "", grace_period_s: int = 1
    ) -> None:
        """Delete all pods that both selectors name, by one request; none is fine."""
        query = {"labelSelector": labels} | ({"fieldSelector": fields} if fields else {})
        await self.transport.request(
            "DELETE",
            pods_path(namespace, query=query),
            doing=f"delete pods in {namespace}",
            body=msgspec.json.encode(DeleteOptions(grace_period_seconds=grace_period_s)),
        )

    async def annotate_pod(self, namespace: str, name: str, annotations: Mapping[str, str]) -> None:
        """Set these annotations of the pod, and no others."""
        await self.transport.request(
            "PATCH",
            pods_path(namespace, name),
            doing=f"annotate pod {name} in {namespace}",
            body=msgspec.json.encode(MarksPatch(metadata=Marks(annotations=dict(annotations)))),
            content_type=MERGE_PATCH,
        )

    async def patch_pod(
        self, namespace: str, name: str, operations: Sequence[Operation]
    ) -> objects.Pod:
        """The pod after all operations; ApiError with `invalid` where a `test` among them fails."""
        doing = f"patch pod {name} in {namespace}"
        data = await self.transport.request(
            "PATCH",
            pods_path(namespace, name),
            doing=doing,
            body=msgspec.json.encode(operations),
            content_type=JSON_PATCH,
        )
        return _decode(data, objects.Pod, doing=doing)

    async def pod_events(self, namespace: str, uid: str) -> list[objects.Event]:
        """What components said about the pod, oldest first."""
        query = urlencode({"fieldSelector": f"involvedObject.uid={uid}"}, quote_via=quote)
        path = f"/api/v1/namespaces/{quote(namespace)}/events?{query}"
        found = await self._get(path, objects.EventList, doing=f"list events in {namespace}")
        return sorted(found.items or [], key=lambda event: event.last_timestamp or "")

    async def get_network_policy(self, namespace: str, name: str) -> objects.NetworkPolicy:
        """The NetworkPolicy of that name."""
        path = f"{_policies_path(namespace)}/{quote(name)}"
        return await self._get(path, objects.NetworkPolicy, doing=f"read NetworkPolicy {name}")

    async def create_network_policy(
        self, namespace: str, policy: NetworkPolicyManifest
    ) -> objects.NetworkPolicy:
        """The NetworkPolicy as created."""
        doing = f"create NetworkPolicy {policy.metadata.name}"
        return await self._post(
            _policies_path(namespace), policy, objects.NetworkPolicy, doing=doing
        )

    async def delete_network_policy(self, namespace: str, name: str) -> None:
        """Delete the NetworkPolicy of that name."""
        path = f"{_policies_path(namespace)}/{quote(name)}"
        await self.transport.request("DELETE", path, doing=f"delete NetworkPolicy {name}")

    async def create_daemon_set(
        self, namespace: str, manifest: DaemonSetManifest
    ) -> objects.DaemonSet:
        """The new DaemonSet."""
        doing = f"create DaemonSet {manifest.metadata.name} in {namespace}"
        return await self._post(
            _daemon_sets_path(namespace), manifest, objects.DaemonSet, doing=doing
        )

    async def get_daemon_set(self, namespace: str, name: str) -> objects.DaemonSet:
        """The DaemonSet as it is now."""
        doing = f"read DaemonSet {name} in {namespace}"
        return await self._get(_daemon_sets_path(namespace, name), objects.DaemonSet, doing=doing)

    async def delete_daemon_set(self, namespace: str, name: str) -> None:
        """Delete it and, in the background, its pods."""
        await self.transport.request(
            "DELETE",
            _daemon_sets_path(namespace, name),
            doing=f"delete DaemonSet {name} in {namespace}",
            body=msgspec.json.encode(DeleteOptions(grace_period_seconds=1)),
        )

    async def get_namespace(self, name: str) -> objects.Namespace:
        """The namespace itself."""
        path = f"/api/v1/namespaces/{quote(name)}"
        return await self._get(path, objects.Namespace, doing=f"read namespace {name}")

    async def may(self, request: ResourceAttributes) -> objects.AccessVerdict:
        """Whether we would be allowed to make `request`."""
        question = AccessReviewManifest(spec=AccessQuestion(resource_attributes=request))
        review = await self._post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            question,
            objects.AccessReview,
            doing="review our own access",
        )
        return review.status

    async def aclose(self) -> None:
        """Close every connection."""
        await self.transport.aclose()

    async def _get(self, path: str, kind: type[T], *, doing: str) -> T:
        return _decode(await self.transport.request("GET", path, doing=doing), kind, doing=doing)

    async def _post(self, path: str, body: msgspec.Struct, kind: type[T], *, doing: str) -> T:
        data = await self.transport.request(
            "POST", path, doing=doing, body=msgspec.json.encode(body)
        )
        return _decode(data, kind, doing=doing)


def pods_path(namespace: str, name: str = "", *, query: Mapping[str, str] | None = None) -> str:
    """The path of a namespace's pods, or of one of them."""
    path = f"/api/v1/namespaces/{quote(namespace)}/pods"
    path += f"/{quote(name)}" if name else ""
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def _daemon_sets_path(namespace: str, name: str = "") -> str:
    return f"/apis/apps/v1/namespaces/{quote(namespace)}/daemonsets" + (name and f"/{quote(name)}")


def _policies_path(namespace: str) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/{quote(namespace)}/networkpolicies"


def _decode(data: bytes, kind: type[T], *, doing: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise ClusterError(
            "the API server's answer could not be understood",
            why=f"asked to {doing}: {error}",
            fix="check that the address in the kubeconfig is a Kubernetes API server",
            retryable=False,
        ) from error
