"""Interpret errors of object storage: what went wrong, what to do, and whether to retry.

obstore has few exception classes, so the text decides: the first line names the request, a server's
response has a status and usually XML, and the dump below shows the network error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)

_IDENTITY = re.compile(
    r"://(169\.254\.\d+\.\d+|metadata\.google\.internal)[:/]"
    r"|://[^/\s]+/(latest/(api/token|meta-data)|computeMetadata/v1|metadata/identity)"
)
"""Matches requests to a cloud's metadata service, which obstore makes without credentials."""
_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})
_DENIED = frozenset({"AccessDenied", "AuthorizationPermissionMismatch", "AuthorizationFailure"})
"""Codes for a valid key that lacks the permission."""
_CLOCK = re.compile(r"RequestTimeTooSkewed|Request date header too old")
"""Clock errors of S3 and Azure: a signature's time may be off by 15 minutes at most."""
_CONFLICTS = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|specified bucket does not exist")
_WRONG_REGION = re.compile(
    r"redirect without LOCATION|PermanentRedirect|AuthorizationHeaderMalformed"
    r"|IllegalLocationConstraint"
)
_NETWORK = {
    "failed to lookup address information: Temporary": "its name can't be resolved at the moment",
    "dns error": "its name can't be resolved",
    "BadScheme": "plain http is not allowed",
    "TimedOut": "it does not respond",
    "kind: Timeout": "it does not respond",
    "ConnectionRefused": "it refuses connections",
    "InvalidContentType": "it does not speak https",
    "invalid peer certificate": "its certificate is not valid",
    "UnknownIssuer": "its certificate is not trusted here",
}
"""Network errors by a part of obstore's dump; the first match counts."""
_PERMANENT_NETWORK = (
    "dns error",
    "BadScheme",
    "InvalidContentType",
    "certificate",
    "UnknownIssuer",
)
_RESOLVE_LATER = "failed to lookup address information: Temporary"
_OF_FOLDERS = {
    "No space left on device": "free space on its disk",
    "Disk quota exceeded": "free space, or raise the quota of this user",
    "File name too long": "correct the address: no part of a path has more than 255 bytes",
    "Read-only file system": "mount it for writing; a disk with errors is mounted read-only",
}
"""Fixes by the operating system's error message."""
OF_ONE_FILE = (PermissionError, IsADirectoryError)
"""Errors of a folder that concern one file, not all."""
_MESSAGE_CHARS = 300
_BODY_CHARS = 100

_CHECK_ACCESS = "check the credentials in the environment and their permissions"
_SET_CLOCK = "set the clock (`timedatectl set-ntp true`; `date -u` shows it); the call is repeated"
_CHECK_ADDRESS = "check the store's address, and that it can be reached from here"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request to object storage failed."""

    why: str
    fix: str
    transient: bool = False
    """Whether the same request may succeed later."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for one kind of storage and call."""

    guide: str = ""
    """How to set credentials."""
    create: str = ""
    """The command that creates the bucket."""
    right: str = ""
    """The permission that is needed."""


def is_missing_object(error: FileNotFoundError) -> bool:
    """Whether the object is missing, rather than its bucket."""
    return _NO_BUCKET.search(_response(str(error))) is None


def is_conflict(error: AlreadyExistsError) -> bool:
    """Whether another write of the object was in progress, whose outcome is unknown."""
    return _code(_response(str(error))) in _CONFLICTS


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    match error:
        case AlreadyExistsError():
            return is_conflict(error)
        case FileNotFoundError():
            return False
        case PermissionDeniedError() | UnauthenticatedError():
            return _CLOCK.search(_response(str(error))) is not None
        case BaseError():
            return fault_of(error, Advice()).transient
        case _:
            return False


def fault_of(error: Exception, advice: Advice) -> Fault:
    """Describe an error that obstore raised."""
    text = str(error)
    response, status = _response(text), _status(text)
    if _IDENTITY.search(text.partition("\n")[0]):
        return Fault("there are no credentials, and this machine has no identity", advice.guide)
    if _NO_BUCKET.search(response):
        create = f"create it (`{advice.create}`)" if advice.create else "create it"
        return Fault("the bucket does not exist", f"{create}, or correct its name")
    if _WRONG_REGION.search(response):
        region = "set the bucket's region (AWS_REGION)"
        return Fault(f"the region is wrong: {reason(error)}", region)
    if status in _REFUSED:
        return _refusal(error, response, advice)
    if status is not None:
        return Fault(reason(error), _CHECK_ADDRESS, transient=status in _TRANSIENT_STATUS)
    return Fault(reason(error), _CHECK_ADDRESS, transient=_may_pass(text))


def _may_pass(text: str) -> bool:
    """Whether a network error may pass."""
    is_permanent = _RESOLVE_LATER not in text and any(part in text for part in _PERMANENT_NETWORK)
    return "HTTP error" in text.partition("\n")[0] and not is_permanent


def _refusal(error: Exception, response: str, advice: Advice) -> Fault:
    if _CLOCK.search(response):
        # The time service may be correcting the clock after the machine was suspended.
        return Fault(f"this machine's clock is wrong: {reason(error)}", _SET_CLOCK, transient=True)
    return Fault(reason(error), _fix_of_refusal(_code(response), advice))


def _fix_of_refusal(code: str, advice: Advice) -> str:
    if code in _DENIED and advice.right:
        return f"give these credentials the permissions ({advice.right}), or correct the address"
    return f"{_CHECK_ACCESS}: {advice.guide}" if advice.guide else _CHECK_ACCESS


def fix_of_folder(error: Exception) -> str:
    """Return the fix for an error of a store in a folder."""
    text = str(error)
    found = (fix for words, fix in _OF_FOLDERS.items() if words in text)
    return next(found, "give this user access to the folder, or name another store")


def reason(error: Exception) -> str:
    """Return the cause in one line: the server's or the network's error, or the text itself.

    Only the code and message of a server's response are used: some echo the whole request.
    """
    text = str(error)
    first = text.partition("\n\nDebug source")[0].strip().partition("\n")[0]
    status = _status(text)
    if status is not None:
        return _short(f"{_host(first)} responded {status} {_said(text)}".strip())
    network = next((said for part, said in _NETWORK.items() if part in text), None)
    if network is not None and (host := _host(first)) != "the server":
        return _short(f"{host}: {network}")
    return _short(first) or type(error).__name__


def _said(text: str) -> str:
    """Return a server's code and message, or the start of its response if it has none."""
    response = _response(text)
    message = re.search(r"<Message>(.*?)</Message>", response, re.DOTALL)
    if code := _code(response):
        return f"{code}: {message[1]}" if message else code
    body = re.search(r"status code: \d{3}[^:]*: (.*)", response, re.DOTALL)
    plain = " ".join(re.sub(r"<[^>]*>", " ", body[1]).split()) if body else ""
    return plain[:_BODY_CHARS]


def _response(text: str) -> str:
    """Return obstore's line with the server's response, without the request's path."""
    head = text.partition("\n\nDebug source")[0]
    _, found, after = head.partition(" - ")
    return after if found else head


def _code(response: str) -> str:
    code = re.search(r"<Code>(\w+)</Code>", response)
    return code[1] if code else ""


def _status(text: str) -> int | None:
    status = re.search(r"non-2xx status code: (\d{3})", text.partition("\n\nDebug source")[0])
    return int(status[1]) if status else None


def _host(line: str) -> str:
    address = re.search(r"Error performing \w+ (https?://[^/\s]+)", line)
    return address[1] if address else "the server"


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_CHARS else f"{text[:_MESSAGE_CHARS]}…"
