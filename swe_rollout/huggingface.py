"""Find models and tokenizers by name: a folder, or a repository on a hub.

The libraries that read them report a missing folder as an invalid name, and retry an unreachable
hub for a minute. `check_source` reports the real problem within seconds; `hub_refusals` explains
why a hub that responds gives no files.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from swe_rollout.errors import PrerequisiteError, SweRolloutError, UnreachableError
from swe_rollout.text.paths import expanded, why_missing
from swe_rollout.text.user_code import chain

_HUB = "https://huggingface.co"
_PATIENCE_S = 5.0
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,96}(/[A-Za-z0-9_.-]{1,96})?")
_TRUE = ("1", "on", "true", "yes")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRANSIENT = frozenset({errno.EIO, errno.ESTALE, errno.ENOMEM, errno.ETIMEDOUT, errno.EHOSTUNREACH})
_PORTS = {"http": 80, "https": 443}


def check_source(name: str) -> None:
    """Raise PrerequisiteError unless `name` is a folder or the hub is reachable.

    Call it only for names that are not in the hub's local cache.
    """
    path = expanded(name)
    if path.is_dir():
        return
    what = f"there is no tokenizer at {name}"
    folder = "name an existing folder with tokenizer.json and a chat template"
    if path.exists():
        raise _missing(what, why=f"{path} is a file, not a folder", fix=folder)
    if is_path(name):
        missing = why_missing(path / "tokenizer.json")
        raise _missing(what, why=missing, fix=folder)
    here = f"beside the job file or in {Path.cwd()}"
    why = f"there is no folder {name} {here}, and the hub's cache on this machine does not have it"
    if variable := next((v for v in _OFFLINE if os.environ.get(v, "").lower() in _TRUE), None):
        fix = f"unset {variable}, or {folder}"
        raise _missing(what, why=f"{why}; {variable} forbids to ask the hub", fix=fix)
    if problem := unreachable_hub():
        raise _missing(what, why=f"{why}; {problem}", fix=f"{folder}, or go online once")


def check_tokenizer_folder(name: str) -> None:
    """Raise PrerequisiteError if a folder has no tokenizer or model files."""
    path = expanded(name)
    if path.is_dir() and not any((*path.glob("*token*"), *path.glob("*.json"))):
        raise _missing(
            f"there is no tokenizer at {name}",
            why=f"the folder {path} has no tokenizer.json",
            fix="write a folder with tokenizer.json and a chat template in spec.policy.tokenizer",
        )


@contextmanager
def hub_refusals(name: str) -> Iterator[None]:
    """Turn a hub's refusal inside the block into a PrerequisiteError with a fix.

    Libraries raise an OSError whose text names neither the hub nor the account.
    """
    try:
        yield
    except OSError as error:
        if (refused := _refusal(name, error)) is not None:
            raise refused from error
        raise


def _refusal(name: str, error: BaseException) -> PrerequisiteError | None:
    # Importing it takes half a second; whatever called the hub has already done so.
    from huggingface_hub import get_token  # noqa: PLC0415
    from huggingface_hub.errors import (  # noqa: PLC0415
        GatedRepoError,
        RepositoryNotFoundError,
    )

    causes = tuple(_causes(error))
    hub = hub_address()
    account = "no token is set here" if get_token() is None else "the token here may not read it"
    allow = "export HF_TOKEN=... with one that may read it (in pods: by spec.workers.secrets)"
    folder = "name a folder with its files"
    if any(isinstance(cause, GatedRepoError) for cause in causes):
        return PrerequisiteError(
            f"the hub does not give {name} to this machine",
            why=f"it is gated, and {account}",
            fix=f"accept its terms at {hub}/{name}, then {allow}; or {folder}",
        )
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return PrerequisiteError(
            f"the hub has no {name} for this machine",
            why=f"{hub} has none, or it is private, and {account}",
            fix=f"correct the name, or {allow}; or {folder}",
        )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _missing(what: str, *, why: str, fix: str) -> PrerequisiteError:
    """Return the error for a model that was not found (rather than one that is unusable)."""
    error = PrerequisiteError(what, why=why, fix=fix)
    error.__cause__ = FileNotFoundError(why)
    return error


def cached_file(repository: str, name: str) -> str | None:
    """Return the path of a repository's file in the hub's local cache, or None."""
    # Importing it takes half a second, and few callers need it.
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415

    if is_path(repository):
        return None
    found = try_to_load_from_cache(repository, name)
    return found if isinstance(found, str) else None


def is_path(name: str) -> bool:
    """Whether this can only be the path of a folder, and never a repository on the hub."""
    return name.startswith((".", "~")) or _REPOSITORY.fullmatch(name) is None


def unreachable_hub() -> str:
    """Describe why the hub can't be reached; empty if it can."""
    return _unreachable(hub_address())


def hub_address() -> str:
    """Return the hub's address, which `HF_ENDPOINT` may change."""
    return os.environ.get("HF_ENDPOINT") or _HUB


def _unreachable(endpoint: str) -> str:
    target = urlsplit(endpoint)
    host = target.hostname or ""
    proxy = getproxies().get(target.scheme)
    if proxy and not proxy_bypass(host):
        target = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    problem = [f"{host} does not respond"]

    def connect() -> None:
        try:
            address = (target.hostname or "", target.port or _PORTS.get(target.scheme, 443))
            socket.create_connection(address, timeout=_PATIENCE_S).close()
        except OSError as error:
            problem[0] = f"{host} can't be reached ({error.strerror or error})"
        else:
            problem[0] = ""

    # The system's resolver has no time limit of its own.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return problem[0]


@contextmanager
def as_prerequisite_error(what: str, *, fix: str) -> Iterator[None]:
    """Turn any error of a library that reads a user's files into a PrerequisiteError.

    `what` is the message. Libraries that read model files may raise anything, even Exception. What
    may pass, such as a lost connection or a full memory, becomes an UnreachableError.
    """
    try:
        yield
    except SweRolloutError:
        raise
    except Exception as error:
        text = str(error).strip().partition("\n")[0] or "no message"
        why = text if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {text}"
        if _may_pass(error):
            fix = f"try again; if that is no help, {fix}"
            raise UnreachableError(what, why=why, fix=fix) from error
        raise PrerequisiteError(what, why=why, fix=fix) from error


def _may_pass(error: BaseException) -> bool:
    """Return whether a fault of memory, disk or network is behind an error."""
    return any(
        isinstance(each, MemoryError | ConnectionError | TimeoutError)
        or (isinstance(each, OSError) and each.errno in _TRANSIENT)
        for each in chain(error)
    )
