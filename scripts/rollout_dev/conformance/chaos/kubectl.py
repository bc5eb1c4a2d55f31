"""kubectl, for programs that break the cluster they talk to."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

_CALL_S = 20.0
_PATIENCE_S = 180.0
"""How long a call is repeated: the API server may be what was killed."""
_PAUSE_S = 0.5
_TRANSIENT = ("ServiceUnavailable", "InternalError", "Timeout", "TooManyRequests", "Conflict")


class NotInTimeError(Exception):
    """Something that was waited for did not happen."""


def kubectl(
    *arguments: str, namespace: str = "", stdin: str = "", patience_s: float = _PATIENCE_S
) -> str:
    """Run kubectl until it succeeds, and return its output. Raises NotInTimeError."""
    if namespace:
        arguments = ("--namespace", namespace, *arguments)
    end = time.monotonic() + patience_s
    while True:
        said = _run(arguments, stdin)
        if said.returncode == 0:
            return said.stdout
        if _is_final(said.stderr) or time.monotonic() > end:
            raise NotInTimeError(f"kubectl {' '.join(arguments)}: {said.stderr.strip()}")
        time.sleep(_PAUSE_S)


def objects(namespace: str, kinds: str, selector: str = "") -> list[Json]:
    """List the objects of these kinds."""
    chosen = ["--selector", selector] if selector else []
    listed = kubectl("get", kinds, *chosen, "--output", "json", namespace=namespace)
    items: list[Json] = json.loads(listed)["items"]
    return items


def until(true: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Wait until `true`; return the seconds. Raises NotInTimeError."""
    start = time.monotonic()
    while not true():
        if time.monotonic() - start > within_s:
            raise NotInTimeError(f"{what}: not within {within_s:g} s")
        time.sleep(_PAUSE_S / 2)
    return time.monotonic() - start


def _is_final(error: str) -> bool:
    """Whether the API server has understood the request, and refuses it."""
    _, is_answer, reason = error.partition("Error from server (")
    return bool(is_answer) and not reason.startswith(_TRANSIENT)


def _run(arguments: tuple[str, ...], stdin: str) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", f"--request-timeout={_CALL_S:g}s", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
