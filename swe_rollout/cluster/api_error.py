"""Typed errors for the failures that the API server reports, with a fix where one is known."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self

import msgspec

from swe_rollout.cluster.objects import Status
from swe_rollout.errors import ClusterError

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for bytes that are not JSON of the wanted type."""

TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""Status codes after which the same request may succeed."""
_RACE: Final = re.compile(r"cannot be fulfilled on resourcequotas|error looking up service account")
"""In a refusal: creations that count against one quota at the same time, or in a new namespace."""

_FIXES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "renew the credentials; `kubectl auth whoami` shows who you are",
    HTTPStatus.FORBIDDEN: "grant it by a Role; `swe-rollout doctor` lists the required permissions",
    HTTPStatus.NOT_FOUND: "check the namespace and the context",
    HTTPStatus.TOO_MANY_REQUESTS: "lower spec.parallelism; docs/how-to/size-a-cluster.md",
}
_DENIED: Final = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>[a-z]+) resource "(?P<resource>[a-z/.-]+)" '
    r'in API group "(?P<group>[a-z0-9.-]*)"'
    r'(?: in the namespace "(?P<namespace>[a-z0-9-]+)"| at the cluster scope)'
)
_ACCOUNT: Final = re.compile(r"system:serviceaccount:(?P<namespace>[^:]+):(?P<name>[^:]+)")
_OURS: Final = re.compile(r"swe-rollout-(operator|worker-.+)")
"""Accounts whose rights are part of the installation."""


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A verb on a resource, in a namespace or in the whole cluster, that an account lacks."""

    user: str
    verb: str
    resource: str
    """The resource with its API group and subresource, as kubectl writes it: `pods/exec`."""
    namespace: str
    """The namespace; empty for a cluster-wide right."""

    @classmethod
    def named_in(cls, message: str) -> Self | None:
        """Parse the message of a 403; return None if something other than RBAC refused."""
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
        """Return advice for whoever may grant the right."""
        account = _ACCOUNT.fullmatch(self.user)
        if account is not None and _OURS.fullmatch(account["name"]):
            return (
                f"the installation grants {self.verb} on {self.resource} to this account: apply "
                "what `swe-rollout install` prints again, or `helm upgrade` where Helm installed it"
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


class ApiError(ClusterError):
    """An error response of the API server: its HTTP code and the Status's reason."""

    def __init__(self, doing: str, status: Status, *, retry_after_s: float = 0.0) -> None:
        is_refusal = status.code == HTTPStatus.FORBIDDEN
        right = MissingRight.named_in(status.message) if is_refusal else None
        super().__init__(
            f"Kubernetes refused to {doing}",
            why=f"{status.code} {status.reason}: {status.message}",
            fix=_FIXES.get(status.code, "") if right is None else right.fix,
            retryable=status.code in TRANSIENT or _RACE.search(status.message) is not None,
        )
        self.code = status.code
        self.reason = status.reason
        self.message = status.message
        self.following = status.metadata.continue_
        """Where a list whose version is `gone` continues, in a newer version."""
        self.retry_after_s = retry_after_s
        """How long the server asks clients to wait before another attempt."""

    @property
    def not_found(self) -> bool:
        """Whether the object does not exist (any more)."""
        return self.code == HTTPStatus.NOT_FOUND

    @property
    def already_exists(self) -> bool:
        """Whether the name is taken."""
        return self.code == HTTPStatus.CONFLICT and self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """Whether the object differs from the expected one: another uid or a newer version."""
        return self.code == HTTPStatus.CONFLICT and self.reason == "Conflict"

    @property
    def is_absence(self) -> bool:
        """Whether the intended object does not exist: it is gone, or another one took its place."""
        return self.not_found or self.conflict

    @property
    def gone(self) -> bool:
        """Whether the resource version is too old to resume from, so that a new list is needed."""
        return self.code == HTTPStatus.GONE

    @property
    def unauthorized(self) -> bool:
        """Whether the credentials are not accepted (any more)."""
        return self.code == HTTPStatus.UNAUTHORIZED

    @property
    def lacks_right(self) -> bool:
        """Whether RBAC rejected the request, and neither a quota nor admission."""
        return self.forbidden and " cannot " in self.message and " resource " in self.message

    @property
    def may_be_premature(self) -> bool:
        """Whether it may come from a server that just started and doesn't know roles or CRDs.

        Refusals by a quota or by admission don't count: a server that makes them is ready.
        """
        is_unknown = self.not_found and "could not find the requested resource" in self.message
        return self.unauthorized or self.lacks_right or is_unknown

    @property
    def invalid(self) -> bool:
        """Whether the object itself violates a rule."""
        return self.code in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}

    @property
    def is_unexplained(self) -> bool:
        """Whether it is a refusal without a reason, as for a WebSocket: aiohttp drops the body."""
        refusals = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
        return self.code in refusals and not self.reason

    @property
    def forbidden(self) -> bool:
        """Whether authorisation, a quota or admission rejected the request."""
        return self.code == HTTPStatus.FORBIDDEN


class BusyServerError(ApiError):
    """The API server has too many requests, and has begun nothing of this one."""

    scarce = True


def api_error(doing: str, code: int, body: bytes, *, retry_after_s: float = 0.0) -> ApiError:
    """Build the error of a failed response, whose body may be a Status or a proxy's page."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except UNDECODABLE:
        status = Status(message=body[:500].decode(errors="replace"))
    kind = BusyServerError if code == HTTPStatus.TOO_MANY_REQUESTS else ApiError
    return kind(doing, msgspec.structs.replace(status, code=code), retry_after_s=retry_after_s)
