"""A minimal client of the API server, in the standard library: get and watch."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.dev_cluster.network import API_PORT, NODE_ADDRESS
from rollout_dev.dev_cluster.pki import User, token_of

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"

_GONE = 410


def inner(value: Json, *path: str) -> Json:
    """Return the value at a path of keys; `None` if the path ends early."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def items(value: Json) -> Sequence[Json]:
    """Return the elements of a list; none if it is missing or something else."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def text(value: Json) -> str:
    """Return a string; empty if it is missing or something else."""
    return value if isinstance(value, str) else ""


def texts(value: Json) -> dict[str, str]:
    """Return a map of strings, such as labels."""
    return {k: text(v) for k, v in value.items()} if isinstance(value, Mapping) else {}


class ExpiredError(Exception):
    """The server no longer has the resource version of a watch, so that a new list is needed."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API server, as seen by one user."""

    host: str
    port: int
    authority: str
    token: str

    @classmethod
    def outside(cls, checkout: Checkout, user: User, port: int) -> Api:
        """Connect through the loopback port of this machine."""
        return cls("127.0.0.1", port, *_credentials(checkout, user))

    @classmethod
    def inside(cls, checkout: Checkout, user: User) -> Api:
        """Connect from within the cluster's network namespace."""
        return cls(NODE_ADDRESS, API_PORT, *_credentials(checkout, user))

    def ready(self) -> bool:
        """Whether the server reports that it is ready."""
        try:
            connection = self._connect(timeout_seconds=2)
            try:
                return self._request(connection, "/readyz").status == http.client.OK
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> Json:
        """Return the object at a path, or `None` if there is none."""
        connection = self._connect(timeout_seconds=15)
        try:
            response = self._request(connection, path)
            body: Json = json.loads(response.read())
            if response.status == http.client.NOT_FOUND:
                return None
            if response.status != http.client.OK:
                raise ScriptError(
                    f"GET {path}: {response.status}", why=text(inner(body, "message"))
                )
            return body
        finally:
            connection.close()

    def watch(self, path: str, version: str, selector: str = "") -> Iterator[Json]:
        """Yield the events after a resource version, until the server ends the stream.

        `selector` is a part of the query, ending with `&`.
        """
        query = f"{selector}watch=true&allowWatchBookmarks=true&timeoutSeconds=300"
        query += f"&resourceVersion={version}"
        # Longer than the server's own limit: detect a dead peer without cutting a quiet one.
        connection = self._connect(timeout_seconds=330)
        try:
            response = self._request(connection, f"{path}?{query}")
            if response.status == _GONE:
                raise ExpiredError
            if response.status != http.client.OK:
                raise ScriptError(f"GET {path}: {response.status}", why="the watch is refused")
            for line in response:
                event: Json = json.loads(line)
                if inner(event, "type") == "ERROR":
                    raise ExpiredError
                yield event
        finally:
            connection.close()

    def _connect(self, *, timeout_seconds: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.authority)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_seconds, context=context
        )

    def _request(
        self, connection: http.client.HTTPSConnection, path: str
    ) -> http.client.HTTPResponse:
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        return connection.getresponse()


def _credentials(checkout: Checkout, user: User) -> tuple[str, str]:
    return str(checkout.pki / "ca.crt"), token_of(checkout, user)
