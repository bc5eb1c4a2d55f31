"""Find out from the API server who may do what on a cluster, as `kubectl auth can-i` does.

`table` makes the table of docs/how-to/tenants.md, whose columns and rows are in `access.yaml`. It
creates a namespace with the accounts, asks for each row, and deletes the namespace.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from rollout_dev import report

Json: TypeAlias = "str | list[Json] | dict[str, Json]"

_RBAC: Final = "rbac.authorization.k8s.io"


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


_ROWS: Final = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
ACCOUNTS: Final = [Account(**row) for row in _ROWS["accounts"]]
REQUESTS: Final = [Request(**row) for row in _ROWS["requests"]]


def table() -> str:
    """Return the table as Markdown."""
    with _namespace() as namespace:
        allowed = iter(_ask(namespace))
        header = ["may", *(account.title for account in ACCOUNTS), "narrowed by a policy to"]
        rows = (
            (f"`{each}`", *("yes" if next(allowed) else "" for _ in ACCOUNTS), each.limit)
            for each in REQUESTS
        )
        return "\n".join(report.table(header, rows))


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
                "apiGroups": ["swe-rollout.dev"],
                "resources": ["rolloutjobs"],
                "verbs": ["create", "get", "list", "watch", "delete"],
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
    groups = ["authenticated", "serviceaccounts", f"serviceaccounts:{home}"]
    attributes = asdict(request) | {"namespace": namespace}
    del attributes["limit"]
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{home}:{name}",
            "groups": [f"system:{group}" for group in groups],
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
