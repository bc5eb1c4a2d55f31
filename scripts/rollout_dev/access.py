"""Find out from the API server who may do what on a cluster, as `kubectl auth can-i` does.

`table` makes the table of docs/how-to/tenants.md. It creates a namespace with the accounts of the
table's columns, asks for each of its rows, and deletes the namespace.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

Json: TypeAlias = "str | list[Json] | dict[str, Json]"

_RBAC: Final = "rbac.authorization.k8s.io"
_ROLLOUT: Final = "swe-rollout.dev"
_TENANT_VERBS: Final = ("create", "get", "list", "watch", "delete")


@dataclass(frozen=True, slots=True)
class Account:
    """A column: an account with one role in the namespace."""

    title: str
    name: str
    """The name of a service account there; one with `:` is in another namespace."""
    role: str = ""
    """`Role/NAME` or `ClusterRole/NAME` to bind; empty if it already has its rights, or none."""

    def user(self, namespace: str) -> tuple[str, str]:
        """Return the namespace and the name of its service account."""
        home, _, name = self.name.rpartition(":")
        return home or namespace, name


@dataclass(frozen=True, slots=True)
class Request:
    """A row: a verb and a resource, in the terms of `kubectl auth can-i`."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    name: str = ""
    limit: str = ""
    """What remains of the right under an admission policy."""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f"/{self.name}" if self.name else ""
        subresource = f" --subresource={self.subresource}" if self.subresource else ""
        return f"{self.verb} {resource}{named}{subresource}"


ACCOUNTS: Final = (
    Account("tenant", "tenant", "Role/tenant"),
    Account("`view`", "viewer", "ClusterRole/view"),
    Account("`edit`", "editor", "ClusterRole/edit"),
    Account("worker", "swe-rollout-worker-x", "ClusterRole/swe-rollout-worker"),
    Account("sandbox", "default"),
    Account("operator", "swe-rollout-system:swe-rollout-operator"),
)
_OWN: Final = "worker: sandboxes of its own job"
REQUESTS: Final = (
    Request("create", "rolloutjobs", _ROLLOUT, limit="templates, bounds, marked Secrets"),
    Request("get", "rolloutjobs", _ROLLOUT),
    Request("patch", "rolloutjobs", _ROLLOUT, limit="templates, bounds, marked Secrets"),
    Request("delete", "rolloutjobs", _ROLLOUT),
    Request("patch", "rolloutjobs", _ROLLOUT, subresource="status"),
    Request("get", "pods"),
    Request("create", "pods", limit=f"{_OWN}, hardened"),
    Request("patch", "pods", limit=f"{_OWN}, and progress on its own pod"),
    Request("delete", "pods", limit=f"{_OWN}; operator: sandboxes and workers"),
    Request("create", "pods", subresource="exec", limit=_OWN),
    Request("get", "pods", subresource="log"),
    Request("get", "secrets"),
    Request("patch", "secrets"),
    Request("create", "secrets", limit="none with a name that a job waits for"),
    Request("get", "configmaps"),
    Request("create", "jobs", "batch", limit="operator: workers of RolloutJobs"),
    Request("create", "serviceaccounts"),
    Request("create", "serviceaccounts", subresource="token"),
    Request("create", "rolebindings", _RBAC, limit="operator: `swe-rollout-worker` to workers"),
    Request("bind", "clusterroles", _RBAC, name="swe-rollout-worker"),
    Request("bind", "clusterroles", _RBAC, name="cluster-admin"),
    Request("escalate", "clusterroles", _RBAC),
    Request("create", "networkpolicies", "networking.k8s.io"),
    Request("delete", "networkpolicies", "networking.k8s.io"),
    Request(
        "delete", "networkpolicies", "networking.k8s.io", name="swe-rollout-sandboxes-deny-all"
    ),
    Request("list", "nodes"),
    Request("impersonate", "serviceaccounts"),
)


def table() -> str:
    """Return the table as Markdown."""
    with _namespace() as namespace:
        allowed = iter(_ask(namespace))
        header = ["may", *(account.title for account in ACCOUNTS), "narrowed by a policy to"]
        lines = [_row(header), _row(["---"] * len(header))]
        for request in REQUESTS:
            cells = ["yes" if next(allowed) else "" for _ in ACCOUNTS]
            lines.append(_row([f"`{request}`", *cells, request.limit]))
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


@contextmanager
def _namespace() -> Iterator[str]:
    """Create a namespace with all accounts, and delete it at the end."""
    name = f"swe-rollout-access-{secrets.token_hex(3)}"
    _kubectl("create", "namespace", name)
    try:
        _kubectl("create", "-f", "-", documents=list(_roles(name)))
        yield name
    finally:
        _kubectl("delete", "namespace", name, "--wait=false")


def _roles(namespace: str) -> Iterator[Json]:
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": "tenant", "namespace": namespace},
        "rules": [
            {
                "apiGroups": [_ROLLOUT],
                "resources": ["rolloutjobs"],
                "verbs": [*_TENANT_VERBS],
            }
        ],
    }
    for account in ACCOUNTS:
        kind, _, role = account.role.partition("/")
        if role:
            yield {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": account.name, "namespace": namespace},
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
                "subjects": [
                    {"kind": "ServiceAccount", "name": account.name, "namespace": namespace}
                ],
            }


def _ask(namespace: str) -> list[bool]:
    """Return whether each request is allowed for each account, with requests first."""
    reviews = [
        _review(request, *account.user(namespace), namespace=namespace)
        for request in REQUESTS
        for account in ACCOUNTS
    ]
    found = _kubectl(
        "create", "-f", "-", "-o", 'jsonpath={.status.allowed}{"\\n"}', documents=reviews
    )
    return [line == "true" for line in found.split()]


def _review(request: Request, home: str, name: str, *, namespace: str) -> Json:
    attributes: dict[str, Json] = {
        "namespace": namespace,
        "verb": request.verb,
        "group": request.group,
        "resource": request.resource,
        "subresource": request.subresource,
        "name": request.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{home}:{name}",
            "groups": [
                "system:authenticated",
                "system:serviceaccounts",
                f"system:serviceaccounts:{home}",
            ],
            "resourceAttributes": attributes,
        },
    }


def _kubectl(*arguments: str, documents: list[Json] | None = None) -> str:
    text = "\n".join(map(json.dumps, documents or []))
    done = subprocess.run(
        ["kubectl", *arguments], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"error: kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "tenants.md"
BEGIN: Final = "<!-- Made by scripts/access-table on a cluster. -->\n"
END: Final = "<!-- End of the table. -->\n"


def main() -> int:
    """Replace the page's table; with `--check` change nothing and return 1 on a difference."""
    parser = argparse.ArgumentParser(prog="scripts/access-table", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    check: bool = parser.parse_args().check
    before = PAGE.read_text(encoding="utf-8")
    after = with_table(before, table())
    if after == before:
        return 0
    if check:
        sys.stderr.write(f"error: {PAGE.name} differs from the cluster\n")
        sys.stderr.write("  fix   scripts/access-table\n")
        return 1
    PAGE.write_text(after, encoding="utf-8")
    return 0


def with_table(page: str, made: str) -> str:
    """Return the page with `made` as its table."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{made}{END}{tail}"


if __name__ == "__main__":
    sys.exit(main())
