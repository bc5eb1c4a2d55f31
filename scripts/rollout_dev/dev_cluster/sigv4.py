"""Signed S3 requests in the standard library: enough to create a bucket and to test a server."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rollout_dev.dev_cluster.errors import ScriptError

REGION = "us-east-1"
_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class Account:
    """An access key and its secret."""

    key: str
    secret: str


@dataclass(frozen=True, slots=True)
class S3Response:
    """A server's response."""

    status: int
    body: bytes


def create_bucket(account: Account, port: int, bucket: str) -> None:
    """Create a bucket on a loopback server, unless it exists."""
    if request(account, port, "HEAD", f"/{bucket}").status in _SUCCESS:
        return
    response = request(account, port, "PUT", f"/{bucket}")
    if response.status not in _SUCCESS:
        raise ScriptError(
            f"The bucket {bucket} cannot be created.",
            why=f"the server responds {response.status}: {response.body.decode(errors='replace')}",
            fix="A bucket's name has 3 to 63 lower-case letters, digits and hyphens.",
        )


def request(
    account: Account,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> S3Response:
    """Send one request to a server on loopback, signed with AWS signature version 4."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    host = f"127.0.0.1:{port}"
    digest = hashlib.sha256(body).hexdigest()
    signed = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        (
            method,
            urllib.parse.quote(path),
            "",
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            digest,
        )
    )
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    signature = _signature(account.secret, scope, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashed}")
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={account.key}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    sent = {**(headers or {}), **signed, "authorization": authorization}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, urllib.parse.quote(path), body=body, headers=sent)
        response = connection.getresponse()
        return S3Response(response.status, response.read())
    finally:
        connection.close()


def _signature(secret: str, scope: str, text: str) -> str:
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()
