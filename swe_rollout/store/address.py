"""Open the object storage at an address, and define the schemes and what each needs.

Settings come from the environment variables that each cloud's own tools use. Missing ones are
reported here, before anything is contacted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import from_url

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.store.faults import Advice, reason
from swe_rollout.text.redaction import register

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_SCHEMES = "file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
_CONNECT_S = 5
_REQUEST_S = 60
_NO_RETRIES: RetryConfig = {"max_retries": 0}
"""`Bucket` retries instead: obstore retries hopeless requests and can't be interrupted."""
_IS_SECRET = re.compile(r"_(KEY|KEY_ID|TOKEN)$")
_SHORTEST_SECRET = 12
"""Shorter secrets are plain words, such as the keys of test servers."""
_MOST_NAME_BYTES = 255
_MOST_LABEL_BYTES = 63
"""Of a bucket's name up to a dot or its end."""
_SHOWN = 60
_FALSE = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Provider:
    """One kind of object storage, with the environment variables that configure it."""

    name: str
    endpoints: tuple[str, ...]
    """Variables for the endpoint, the usual one first."""
    allow_http: str
    credentials: tuple[str, ...]
    """Variables of which one suffices. Without any, only the cloud's own machines can connect."""
    guide: str
    """Which variables to set, for error messages."""
    create: str
    """The command that creates a bucket, up to the bucket's name."""
    rights: Mapping[str, str]
    """The permission that each kind of call needs."""


PROVIDERS: Mapping[str, Provider] = {
    "s3": Provider(
        "S3",
        endpoints=("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"),
        allow_http="AWS_ALLOW_HTTP",
        credentials=(
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_SKIP_SIGNATURE",
        ),
        guide="export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (profiles are not read)",
        create="aws s3 mb s3://",
        rights={
            "read": "s3:GetObject and s3:ListBucket",
            "write": "s3:PutObject",
            "list": "s3:ListBucket",
            "delete": "s3:DeleteObject",
        },
    ),
    "gs": Provider(
        "Google Cloud Storage",
        endpoints=("GOOGLE_BASE_URL",),
        allow_http="GOOGLE_ALLOW_HTTP",
        credentials=(
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_BEARER_TOKEN",
        ),
        guide="export GOOGLE_APPLICATION_CREDENTIALS, the path of a key file",
        create="gcloud storage buckets create gs://",
        rights={
            "read": "storage.objects.get",
            "write": "storage.objects.create",
            "list": "storage.objects.list",
            "delete": "storage.objects.delete",
        },
    ),
    "az": Provider(
        "Azure Blob Storage",
        endpoints=("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
        allow_http="AZURE_ALLOW_HTTP",
        credentials=(
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_STORAGE_TOKEN",
            "AZURE_CLIENT_ID",
            "AZURE_STORAGE_CLIENT_ID",
            "AZURE_FEDERATED_TOKEN_FILE",
            "AZURE_USE_AZURE_CLI",
            "AZURE_SKIP_SIGNATURE",
            "AZURE_STORAGE_USE_EMULATOR",
        ),
        guide="export AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        create="az storage container create --name ",
        rights=dict.fromkeys(
            ("read", "write", "list", "delete"), "the role Storage Blob Data Contributor"
        ),
    ),
}


def provider_of(uri: str) -> Provider:
    """Return the provider of an address other than a folder's. Raises UsageError."""
    scheme, separator, rest = uri.partition("://")
    if "@" in rest.partition("/")[0]:
        raise UsageError(
            f"{scheme}://… can't be a store's address",
            why="it holds a user name or a password, which would be printed and stored",
            fix="keep credentials in the environment",
        )
    if not separator or scheme not in PROVIDERS or not re.match(r"[^/\s?#]", rest):
        raise UsageError(f"{uri} can't be opened as a store", fix=f"use {_SCHEMES}")
    return PROVIDERS[scheme]


def require_short(uri: str) -> None:
    """Raise UsageError for an address with a name that no folder or bucket can have."""
    scheme, _, rest = uri.partition("://")
    if scheme == "file":
        names, most, kind = rest.split("/"), _MOST_NAME_BYTES, "a part of a path"
    else:
        names, most, kind = rest.partition("/")[0].split("."), _MOST_LABEL_BYTES, "a bucket's name"
    longest = max(len(os.fsencode(name)) for name in names)
    if longest > most:
        raise UsageError(
            f"{uri[:_SHOWN]}… can't be opened as a store",
            why=f"{kind} has at most {most} bytes, and this one has {longest}",
            fix="correct the address",
        )


def advice_for(uri: str, verb: str) -> Advice:
    """Return advice for a failed call to the bucket at an address. Raises UsageError."""
    provider = provider_of(uri)
    bucket = uri.partition("://")[2].partition("/")[0]
    return Advice(provider.guide, provider.create + bucket, provider.rights.get(verb, ""))


def open_storage(uri: str) -> ObjectStore:
    """Open the object storage at `uri`; nothing is contacted.

    Raises UsageError for an invalid address or endpoint, PrerequisiteError if the environment lacks
    credentials.
    """
    provider = provider_of(uri)
    endpoint = _endpoint(provider)
    _hide(provider)
    _check_credentials(uri, provider, endpoint)
    try:
        return from_url(uri, client_options=_client(provider, endpoint), retry_config=_NO_RETRIES)
    except (BaseError, ValueError) as error:
        raise PrerequisiteError(
            f"{uri} can't be opened as a store", why=reason(error), fix=provider.guide
        ) from error


def _hide(provider: Provider) -> None:
    """Keep the provider's credentials, including the key's name, out of all output."""
    for variable in provider.credentials:
        value = os.environ.get(variable, "")
        if _IS_SECRET.search(variable) and len(value) >= _SHORTEST_SECRET:
            register(value)


def _endpoint(provider: Provider) -> str:
    """Return the endpoint that the environment sets in place of the cloud's own, or nothing."""
    for variable in provider.endpoints:
        if value := os.environ.get(variable, "").strip():
            if not re.match(r"https?://[^/\s]", value):
                raise UsageError(
                    f"{variable} is no address",
                    why="it has to begin with http:// or https://",
                    fix=f"export {variable}=https://HOST",
                )
            return value
    return ""


def _check_credentials(uri: str, provider: Provider, endpoint: str) -> None:
    if any(os.environ.get(variable) for variable in provider.credentials):
        return
    # Only the cloud itself gives its machines an identity, at an address of its own.
    if endpoint:
        raise PrerequisiteError(
            f"there are no credentials for {uri}",
            why=f"{provider.endpoints[0]} is set, {provider.credentials[0]} is not",
            fix=provider.guide,
        )


def _client(provider: Provider, endpoint: str) -> ClientConfig:
    # An explicit http:// is intentional. The variable can still forbid it; options given here
    # override those that obstore reads from the environment.
    wanted = os.environ.get(provider.allow_http, "").strip().lower()
    is_plain = endpoint.startswith("http://")
    if is_plain and wanted in _FALSE:
        raise UsageError(
            f"the endpoint {provider.name} is given is plain http",
            why=f"{provider.allow_http} forbids it",
            fix=f"use an https:// endpoint, or unset {provider.allow_http}",
        )
    return {
        "connect_timeout": timedelta(seconds=_CONNECT_S),
        "timeout": timedelta(seconds=_REQUEST_S),
        "allow_http": is_plain or (bool(wanted) and wanted not in _FALSE),
    }
