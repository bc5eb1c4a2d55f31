"""Address and credentials of the cluster, from a kubeconfig or from this process's pod.

The official package reads kubeconfigs: contexts, exec plugins, tokens and their renewal. Its import
takes a fifth of a worker's start-up, and a pod's own account does not need it. Requests are made by
`transport`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.text.redaction import register

if TYPE_CHECKING:
    from kubernetes import client as official

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account's token, certificate authority and namespace."""
_HEADER_TTL_S = 30.0
"""Renewal hooks read files or run programs, so they are called this often, not per request."""


class Authentication(Protocol):
    """The source of the credentials: the official client's configuration, or a pod's account."""

    def auth_settings(self) -> Mapping[str, object]:
        """Return the header's value under `BearerToken`, if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class PodAccount:
    """The service account of this process's pod; the kubelet renews its token."""

    folder: Path

    def auth_settings(self) -> Mapping[str, object]:
        """Read the token. Raises OSError."""
        return {"BearerToken": {"value": f"Bearer {(self.folder / 'token').read_text().strip()}"}}


class Credentials:
    """The `Authorization` header, renewed by the configuration's renewal hook."""

    def __init__(self, configuration: Authentication) -> None:
        self._configuration = configuration
        self._header: dict[str, str] = {}
        self._read_at = -_HEADER_TTL_S
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Return the headers to send; empty if a client certificate authenticates."""
        async with self._lock:
            if time.monotonic() - self._read_at >= _HEADER_TTL_S:
                await self._renew()
        return self._header

    async def renewed(self, refused: dict[str, str]) -> bool:
        """Renew the headers that the server refused; return whether they have changed."""
        async with self._lock:
            if self._header == refused:
                await self._renew()
            return self._header != refused

    async def _renew(self) -> None:
        self._header = await asyncio.to_thread(self._read)
        self._read_at = time.monotonic()

    def _read(self) -> dict[str, str]:
        match self._configuration.auth_settings().get("BearerToken"):
            case {"value": str(header)} if header:
                register(header.removeprefix("Bearer "))
                return {"Authorization": header}
            case _:
                return {}


@dataclass(frozen=True, slots=True)
class Access:
    """How this process reaches a cluster."""

    server: str
    """The server's URL, without a trailing slash."""
    namespace: str
    """The namespace of the context or the service account; `default` otherwise."""
    credentials: Credentials
    tls: ssl.SSLContext | None
    """None for a plain `http://` server."""
    tls_server_name: str | None
    proxy: str | None

    @property
    def fingerprint(self) -> str:
        """Return 12 hex characters that identify the cluster, the same in each of its pods.

        They are a digest of the authorities that verify its API server: every cluster has its own.
        """
        authorities = self.tls.get_ca_certs(binary_form=True) if self.tls else []
        known = b"".join(sorted(authorities)) or self.server.encode()
        return hashlib.sha256(known).hexdigest()[:12]


async def load_access(context: str | None = None) -> Access:
    """Load the access to the cluster of `context`, the current context, or this process's pod.

    Raises UsageError for an unknown context, PrerequisiteError if no configuration is found.
    """
    return await asyncio.to_thread(_load, context)


def _load(context: str | None) -> Access:
    kubeconfig = _kubeconfig()
    if kubeconfig is not None:
        return _from_kubeconfig(kubeconfig, context)
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_pod()
    raise PrerequisiteError(
        "no Kubernetes configuration was found",
        why="KUBECONFIG is not set, ~/.kube/config does not exist, and this is not a pod",
        fix="set KUBECONFIG to the cluster's configuration; without a cluster, `swe-rollout run` "
        "plays a job here, in sandboxes `local: {}`",
    )


def _kubeconfig() -> str | None:
    """Find kubeconfig files as kubectl does: `$KUBECONFIG` (a list), else `~/.kube/config`."""
    named = os.environ.get("KUBECONFIG")
    paths = (named or "~/.kube/config").split(os.pathsep)
    if any(path and Path(path).expanduser().exists() for path in paths):
        return os.pathsep.join(paths)
    if named:
        raise PrerequisiteError(
            "the Kubernetes configuration does not exist",
            why=f"KUBECONFIG is {named}",
            fix="set KUBECONFIG to an existing file, or unset it",
        )
    return None


def _from_kubeconfig(path: str, context: str | None) -> Access:
    from kubernetes import client as official  # noqa: PLC0415 - slow, and pods need none of it
    from kubernetes import config as loader  # noqa: PLC0415

    try:
        contexts, current = loader.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            config_file=path
        )
        names = [str(entry["name"]) for entry in contexts]
        if context is not None and context not in names:
            raise UsageError(
                f"the kubeconfig has no context {context}",
                why=f"{path} has: {', '.join(names)}",
                fix="use one of these, or omit the context to use the current one",
            )
        configuration = official.Configuration()
        loader.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except (loader.ConfigException, yaml.YAMLError, OSError) as error:
        raise _unusable(path, str(error)) from error
    except (TypeError, AttributeError, KeyError, ValueError) as error:  # of other YAML, or of none
        raise _unusable(path, "it is no kubeconfig") from error
    chosen = next((c for c in contexts if c["name"] == context), current)
    return _access(configuration, namespace=chosen["context"].get("namespace") or "default")


def _unusable(path: str, why: str) -> PrerequisiteError:
    return PrerequisiteError(
        "the Kubernetes configuration can't be used",
        why=f"{path}: {why}",
        fix="correct it until `kubectl version` works with it",
    )


def _from_pod() -> Access:
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    account = PodAccount(_ACCOUNT)
    proxies = getproxies()
    try:
        account.auth_settings()
        return Access(
            server=server,
            namespace=(_ACCOUNT / "namespace").read_text().strip(),
            credentials=Credentials(account),
            tls=ssl.create_default_context(cafile=_ACCOUNT / "ca.crt"),
            tls_server_name=None,
            proxy=_proxy(proxies.get("https"), proxies.get("no"), server),
        )
    except OSError as error:  # an SSLError is an OSError
        raise PrerequisiteError(
            "this pod can't access its cluster",
            why=str(error),
            fix="give the pod a service account with `automountServiceAccountToken: true`",
        ) from error


def _access(configuration: official.Configuration, *, namespace: str) -> Access:
    server = configuration.host.rstrip("/")
    return Access(
        server=server,
        namespace=namespace,
        credentials=Credentials(configuration),
        tls=_tls(configuration) if server.startswith("https:") else None,
        tls_server_name=getattr(configuration, "tls_server_name", None),
        proxy=_proxy(configuration.proxy, configuration.no_proxy, server),
    )


def _tls(configuration: official.Configuration) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    except OSError as error:  # an SSLError is an OSError
        raise PrerequisiteError(
            "the certificates of the Kubernetes configuration can't be used",
            why=str(error),
            fix="correct the kubeconfig until `kubectl version` works with it",
        ) from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy(proxy: str | None, no_proxy: str | None, server: str) -> str | None:
    """Return the proxy to use; some versions of the official client ignore `no_proxy`."""
    if not proxy or proxy_bypass(urlsplit(server).netloc, {"no": no_proxy or ""}):
        return None
    return proxy
