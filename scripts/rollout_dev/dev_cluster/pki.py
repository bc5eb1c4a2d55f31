"""Make keys, certificates, tokens and kubeconfigs of one cluster, once until `--wipe`."""

from __future__ import annotations

import base64
import csv
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.network import API_PORT, API_SERVICE_ADDRESS, NODE_ADDRESS, NODE_NAME

_EC_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = "3650"


@dataclass(frozen=True, slots=True)
class User:
    """A user that the API server identifies by token."""

    name: str
    group: str = ""

    @property
    def file(self) -> str:
        """The name of the kubeconfig in the certificates' folder."""
        return f"{self.name.replace(':', '-')}.kubeconfig"


ADMIN = User("admin", "system:masters")
CONTROLLER_MANAGER = User("system:kube-controller-manager")
SCHEDULER = User("system:kube-scheduler")
PROXY = User("system:kube-proxy")
KUBELET = User(f"system:node:{NODE_NAME}", "system:nodes")
# CoreDNS reads services everywhere; the policy watcher reads pods and policies.
COREDNS = User("dev-cluster:coredns", "system:masters")
POLICY = User("dev-cluster:policy", "system:masters")
USERS = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, PROXY, KUBELET, COREDNS, POLICY)


@dataclass(frozen=True, slots=True)
class _Leaf:
    name: str
    subject: str
    extension: str


_LEAVES = (
    _Leaf(
        "apiserver",
        "/CN=kube-apiserver",
        f"subjectAltName=IP:127.0.0.1,IP:{NODE_ADDRESS},IP:{API_SERVICE_ADDRESS},DNS:localhost,"
        "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"
        "DNS:kubernetes.default.svc.cluster.local",
    ),
    _Leaf("kubelet", f"/CN={NODE_NAME}", f"subjectAltName=IP:{NODE_ADDRESS},DNS:{NODE_NAME}"),
    _Leaf("kubelet-client", "/O=system:masters/CN=kube-apiserver", "extendedKeyUsage=clientAuth"),
)


def ensure(checkout: Checkout, *, port: int) -> None:
    """Make missing keys and tokens, and write the kubeconfigs for the loopback port of this run."""
    folder = checkout.pki
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / "complete").exists():
        _make_certificates(folder)
        _make_tokens(folder / "tokens.csv")
        (folder / "complete").touch()
    authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    inside = f"https://{NODE_ADDRESS}:{API_PORT}"
    for user in USERS:
        token = token_of(checkout, user)
        _write_private(folder / user.file, _kubeconfig(inside, authority, token))
    outside = f"https://127.0.0.1:{port}"
    _write_private(checkout.kubeconfig, _kubeconfig(outside, authority, token_of(checkout, ADMIN)))


def token_of(checkout: Checkout, user: User) -> str:
    """Return the bearer token of one user."""
    with (checkout.pki / "tokens.csv").open(newline="") as file:
        return next(row[0] for row in csv.reader(file) if row[1] == user.name)


def _make_tokens(path: Path) -> None:
    rows = [
        f'{secrets.token_hex(16)},{user.name},{user.name},"{user.group}"'
        if user.group
        else f"{secrets.token_hex(16)},{user.name},{user.name}"
        for user in USERS
    ]
    _write_private(path, "\n".join(rows) + "\n")


def _make_certificates(folder: Path) -> None:
    authority = ("-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=dev-cluster", "-days", _DAYS)
    _openssl(folder, "req", "-x509", *_EC_KEY, *authority)
    for leaf in _LEAVES:
        key, request, certificate = f"{leaf.name}.key", f"{leaf.name}.csr", f"{leaf.name}.crt"
        _openssl(folder, "req", *_EC_KEY, "-keyout", key, "-out", request, "-subj", leaf.subject)
        (folder / f"{leaf.name}.ext").write_text(leaf.extension)
        _openssl(
            folder,
            *("x509", "-req", "-in", request, "-out", certificate, "-days", _DAYS),
            *("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-extfile", f"{leaf.name}.ext"),
        )
    # Service account tokens are signed with RSA, as every client library expects.
    _openssl(folder, "genrsa", "-out", "service-account.key", "2048")
    _openssl(folder, "rsa", "-in", "service-account.key", "-pubout", "-out", "service-account.pub")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def _write_private(path: Path, content: str) -> None:
    path.touch(mode=0o600)
    path.write_text(content)


def _kubeconfig(server: str, authority: str, token: str) -> str:
    return f"""\
apiVersion: v1
kind: Config
clusters: [{{name: dev, cluster: {{server: "{server}", certificate-authority-data: {authority}}}}}]
users: [{{name: dev, user: {{token: {token}}}}}]
contexts: [{{name: dev, context: {{cluster: dev, user: dev}}}}]
current-context: dev
"""
