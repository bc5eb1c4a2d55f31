"""The right that a request lacked, as the API server's refusal names it, and how to grant it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final, Self

_DENIED: Final = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>[a-z]+) resource "(?P<resource>[a-z/.-]+)" '
    r'in API group "(?P<group>[a-z0-9.-]*)"'
    r'(?: in the namespace "(?P<namespace>[a-z0-9-]+)"| at the cluster scope)'
)
_ACCOUNT: Final = re.compile(r"system:serviceaccount:(?P<namespace>[^:]+):(?P<name>[^:]+)")
_OURS: Final = re.compile(r"swe-rollout-(operator|worker-.+)")
"""Accounts whose rights come with the installation."""


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A verb on a resource, in a namespace or in the whole cluster, that an account lacks."""

    user: str
    verb: str
    resource: str
    """With its API group and subresource, as kubectl writes it: `pods/exec`."""
    namespace: str
    """Empty: in the whole cluster."""

    @classmethod
    def named_in(cls, message: str) -> Self | None:
        """Read the message of a 403; none where something else than RBAC refused."""
        found = _DENIED.search(message)
        if found is None:
            return None
        kind, slash, subresource = found["resource"].partition("/")
        resource = f"{kind}.{found['group']}" if found["group"] else kind
        return cls(
            found["user"], found["verb"], resource + slash + subresource, found["namespace"] or ""
        )

    @property
    def fix(self) -> str:
        """What somebody with the right to grant rights does."""
        account = _ACCOUNT.fullmatch(self.user)
        if account is not None and _OURS.fullmatch(account["name"]):
            return (
                f"the installation grants {self.verb} on {self.resource} to this account: run "
                "`swe-rollout install` again, or `helm upgrade` where Helm installed it"
            )
        scope = "" if self.namespace else "cluster"
        where = f" -n {self.namespace}" if self.namespace else ""
        name = f"may-{self.verb}-{re.sub('[^a-z]+', '-', self.resource)}"
        subject = (
            f"--serviceaccount={account['namespace']}:{account['name']}"
            if account
            else f"--user={shlex.quote(self.user)}"
        )
        return (
            "let whoever administers the cluster grant it: "
            f"`kubectl create {scope}role {name} --verb={self.verb} --resource={self.resource}"
            f"{where} && kubectl create {scope}rolebinding {name} --{scope}role={name} {subject}"
            f"{where}`; `swe-rollout doctor` checks the others"
        )
