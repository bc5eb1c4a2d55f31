"""Check addresses: which servers and objects a job may name, and where an engine may be.

The author of a job is not always trusted with everything that its worker can reach.
`engine_address` and `object_address` check the text; `refused_address` checks the address that a
name resolves to, when connecting. The CRD's rules (`cluster_rules`) are the same in CEL.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, StringConstraints, ValidationInfo

from swe_rollout.text.paths import expanded

MAX_ADDRESS_CHARS: Final = 1024
MAX_PATH_CHARS: Final = 4096
_MAX_NAME_BYTES: Final = 255
METADATA_HOSTS: Final = (
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
)
"""Names of the clouds' metadata services, which give credentials to any client."""
METADATA_IPS: Final = ("100.100.100.200", "168.63.129.16", "192.0.0.192")
METADATA_NETWORKS: Final = ("fd00:ec2::/32", "fd20:ce::/32", "fd00:c1::/32", "fd00:42::/32")
"""Addresses of metadata services that are not link-local, of each version of IP."""
CONTROL_PORTS: Final = (2379, 2380, 6443, 10248, 10249, 10250, 10255, 10256, 10257, 10259)
"""Ports of a cluster's own components: etcd, the API server, kubelets, the controllers."""
is_worker: Final = ContextVar("is_worker", default=False)
"""Whether this process is a worker on a cluster, rather than a person's own."""
_API_SERVER: Final = re.compile(r"kubernetes(\.default(\.svc(\..+)?)?)?")
_PLACEHOLDER: Final = re.compile(
    r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|\$\([A-Za-z_][A-Za-z0-9_]*\)|\{\{.*?\}\}|<[A-Za-z][\w -]*>"
)
"""Matches placeholders as shells, Kubernetes, Helm and people write them."""
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_NUMERIC: Final = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}")
_METADATA: Final = tuple(map(ipaddress.ip_network, (*METADATA_IPS, *METADATA_NETWORKS)))
_EMBEDDING: Final = tuple(
    map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"))
)
"""IPv6 networks whose addresses end with an IPv4 address that they lead to."""
_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def require_filled(value: str) -> None:
    """Raise ValueError if an address has a placeholder that was not filled in."""
    if found := _PLACEHOLDER.search(value):
        raise ValueError(
            f"an address, and not the placeholder {found[0]}: variables are not expanded here, "
            "write the value, or fill the file in before (envsubst)"
        )


def engine_address(value: str) -> str:
    """Return an engine's address; raises ValueError, whose text never repeats a password."""
    require_filled(value)
    value = value.rstrip("/")
    if not re.fullmatch(r"https?://[^/\s]+\S*", value):
        raise ValueError("an http:// or https:// address")
    if "@" in value:
        raise ValueError("an address without credentials: name the key's variable in apiKeyEnv")
    if "?" in value or "#" in value or "\\" in value:
        raise ValueError("the root of a server, without ?, # and backslashes")
    try:
        host, _ = urlsplit(value).hostname or "", urlsplit(value).port
    except ValueError as error:
        raise ValueError("an http:// or https:// address with a valid host and port") from error
    if problem := refused_host(host):
        raise ValueError(f"an engine's address, not {problem}")
    return value


HttpUrl = Annotated[
    str, StringConstraints(max_length=MAX_ADDRESS_CHARS), AfterValidator(engine_address)
]


def object_address(value: str) -> str:
    """Return the address of a folder or object; raises ValueError for one with credentials."""
    require_filled(value)
    if _UNPRINTABLE.search(unquote(value)):
        raise ValueError("an address without control characters")
    is_file = value.startswith("file://") or "://" not in value
    if not is_file and re.search("[@?#]", value):
        raise ValueError(
            "an address without credentials: they come from the environment (AWS_*), on a cluster "
            "from spec.workers.secrets"
        )
    return value


def local_path(value: str, info: ValidationInfo) -> str:
    """Return the absolute form of a relative path in a job file, which starts at the file's folder.

    The folder is the validation's context; without one, as for a job on a cluster, paths stay.
    """
    if _UNPRINTABLE.search(value):
        raise ValueError("a path without control characters")
    if not (value and isinstance(info.context, Path)):
        return value
    path = str(info.context / expanded(value))
    if len(path) > MAX_PATH_CHARS:
        raise ValueError(f"a path of at most {MAX_PATH_CHARS} characters")
    if any(len(name.encode()) > _MAX_NAME_BYTES for name in Path(path).parts):
        raise ValueError(f"a path whose parts have at most {_MAX_NAME_BYTES} bytes")
    return path


def folder_or_name(value: str, info: ValidationInfo) -> str:
    """Return a model's folder as `local_path` does, and its name on a hub unchanged."""
    path = local_path(value, info)
    return path if value.startswith((".", "~")) or Path(path).is_dir() else value


def file_address(value: str, info: ValidationInfo) -> str:
    """Return the address of a file; of one that is there by its absolute path.

    So work on a stored job finds it from any folder. Others may be names on a hub.
    """
    is_address = "://" in value
    if not isinstance(info.context, Path) or (is_address and not value.startswith("file://")):
        return value
    path = local_path(unquote(value.removeprefix("file://")) if is_address else value, info)
    return path if Path(path).exists() and len(path) <= MAX_ADDRESS_CHARS else value


def store_address(value: str, info: ValidationInfo) -> str:
    """Return a store's address; in a job file, a plain path is a folder's, as for `status`."""
    if value != value.strip() or _UNPRINTABLE.search(value):
        raise ValueError("an address without blanks around it and without control characters")
    if isinstance(info.context, Path) and not re.match(r"[A-Za-z0-9]+:", value):
        value = f"file://{value}"
    if not re.match(r"(file|s3|gs|az)://.*[^/]", value):
        raise ValueError("a file://, s3://, gs:// or az:// address")
    if value.startswith("file://"):
        value = f"file://{local_path(value.removeprefix('file://'), info)}"
    if len(value) > MAX_ADDRESS_CHARS:
        raise ValueError(f"an address of at most {MAX_ADDRESS_CHARS} characters")
    return value.rstrip("/")


LocalPath = Annotated[str, StringConstraints(max_length=MAX_PATH_CHARS), AfterValidator(local_path)]
ModelFolder = Annotated[
    str, StringConstraints(min_length=1, max_length=512), AfterValidator(folder_or_name)
]
ObjectUrl = Annotated[
    str, StringConstraints(max_length=MAX_ADDRESS_CHARS), AfterValidator(object_address)
]
FileAddress = Annotated[ObjectUrl, AfterValidator(file_address)]


def refused_host(host: str) -> str:
    """Describe why no engine may be at this host, as written; empty if one may."""
    host = host.lower().rstrip(".")
    if host in METADATA_HOSTS:
        return "a cloud's metadata service"
    if _API_SERVER.fullmatch(host):
        return "the cluster's API server"
    ip = _literal(host)
    return "" if ip is None else _refused_anywhere(ip)


def refused_address(ip: str, port: int) -> str:
    """Describe why no engine may be at this resolved address; empty if one may.

    For a worker in a pod, its own pod and the cluster's components are refused too, because the
    author of the job may lack permission to call them.
    """
    found = _plain(ipaddress.ip_address(ip.partition("%")[0]))
    if problem := _refused_anywhere(found):
        return problem
    api_server = os.environ.get("KUBERNETES_SERVICE_HOST")
    if not (is_worker.get() and api_server):
        return ""
    if found.is_loopback or found.is_unspecified:
        return "the worker's own pod"
    if found == _literal(api_server):
        return "the cluster's API server"
    return "a port of the cluster's own components" if port in CONTROL_PORTS else ""


def _refused_anywhere(ip: _IpAddress) -> str:
    ip = _plain(ip)
    if ip.is_link_local:
        return "a link-local address, where clouds have their metadata service"
    if any(ip in network for network in _METADATA):
        return "a cloud's metadata service"
    return "a multicast or reserved address" if _goes_nowhere(ip) else ""


def _goes_nowhere(ip: _IpAddress) -> bool:
    return ip.is_multicast or (isinstance(ip, ipaddress.IPv4Address) and ip.is_reserved)


def _literal(host: str) -> _IpAddress | None:
    """Return the address that the text itself denotes; None if it is a name."""
    if _NUMERIC.fullmatch(host):
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))  # 127.1, 0x7f.1, 2130706433
        except OSError:
            return None
    try:
        return _plain(ipaddress.ip_address(host.strip("[]").partition("%")[0]))
    except ValueError:
        return None


def _plain(ip: _IpAddress) -> _IpAddress:
    """Return the IPv4 address embedded in an IPv6 address, or the address itself."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip.is_loopback or ip.is_unspecified:
        return ip
    if any(ip in network for network in _EMBEDDING):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.sixtofour or ip
