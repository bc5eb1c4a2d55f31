"""Refusals of the API server as typed errors, with the fix where we know it."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from swe_rollout.cluster.objects import Status
from swe_rollout.errors import ClusterError

TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""

_FIXES = {
    HTTPStatus.UNAUTHORIZED: "renew the credentials; `kubectl auth whoami` shows who you are",
    HTTPStatus.FORBIDDEN: "grant it by a Role; `swe-rollout doctor` lists what is needed",
    HTTPStatus.NOT_FOUND: "check the namespace and the context",
}


class ApiError(ClusterError):
    """The API server answered, with a failure: HTTP code and the Status's reason."""

    def __init__(self, doing: str, status: Status) -> None:
        super().__init__(
            f"Kubernetes refused to {doing}",
            why=f"{status.code} {status.reason}: {status.message}",
            fix=_FIXES.get(HTTPStatus(status.code), "") if status.code in _FIXES else "",
            retryable=status.code in TRANSIENT,
        )
        self.code = status.code
        self.reason = status.reason
        self.message = status.message
        self.retry_after_s = 0.0
        """What the server asked us to wait before the next try."""

    @property
    def not_found(self) -> bool:
        """There is no such object (any more)."""
        return self.code == HTTPStatus.NOT_FOUND

    @property
    def already_exists(self) -> bool:
        """The name is taken."""
        return self.code == HTTPStatus.CONFLICT and self.reason == "AlreadyExists"

    @property
    def conflict(self) -> bool:
        """The object is not the one that was meant: another uid or a newer version."""
        return self.code == HTTPStatus.CONFLICT and self.reason == "Conflict"

    @property
    def gone(self) -> bool:
        """A resource version is too old to go on from: list again."""
        return self.code == HTTPStatus.GONE

    @property
    def unauthorized(self) -> bool:
        """The credentials are not accepted (any more)."""
        return self.code == HTTPStatus.UNAUTHORIZED

    @property
    def invalid(self) -> bool:
        """The object itself breaks a rule."""
        return self.code in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}

    @property
    def forbidden(self) -> bool:
        """Authorisation, quota or admission said no."""
        return self.code == HTTPStatus.FORBIDDEN


def api_error(doing: str, code: int, body: bytes) -> ApiError:
    """The error for a failed answer, whether its body is a Status or a proxy's page."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status(message=body[:500].decode(errors="replace"))
    return ApiError(doing, msgspec.structs.replace(status, code=code))
