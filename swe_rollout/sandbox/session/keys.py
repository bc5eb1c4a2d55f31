"""Session keys, which another process of the same job can derive again.

By default a session's key is random, and dies with its process. If a job has a secret, the key is
derived from it and the sandbox's identity instead: a process that replaces a killed one can prove
its identity to the supervisor, and verify the supervisor's. No pod's spec, journal or record
contains any of it. The key of one sandbox reveals nothing about any other.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from dataclasses import dataclass, field
from typing import Final, Self

from swe_rollout.errors import PrerequisiteError

VARIABLE: Final = "SWE_ROLLOUT_SANDBOX_KEY"
"""Holds a job's secret. Its name is among those whose values are redacted everywhere."""
_FORM: Final = re.compile(r"[0-9a-f]{64}")
_USE: Final = b"swe-rollout session key 1\0"


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of a job's sandboxes."""

    secret: bytes = field(repr=False)
    """32 random bytes: a guessable key could be tried on frames that a command saw."""

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read the job's secret; None if it is not set. PrerequisiteError if it is malformed."""
        text = os.environ.get(VARIABLE, "").strip().lower()
        if not text:
            return None
        if not _FORM.fullmatch(text):
            raise PrerequisiteError(
                f"{VARIABLE} holds no key",
                why="it is not 64 hexadecimal digits",
                fix="make one with `openssl rand -hex 32`",
            )
        return cls(bytes.fromhex(text))

    def of(self, sandbox: str) -> bytes:
        """Return the session key of a sandbox, by an identity that no other sandbox ever has."""
        return hmac.digest(self.secret, _USE + sandbox.encode(), hashlib.sha256)


@dataclass(frozen=True, slots=True)
class SessionLife:
    """The part of a session that belongs to one process; later processes continue the session."""

    key: bytes | None = field(default=None, repr=False)
    """The key; None for a random one, with which no other process can continue the session."""
    number: int = 0
    """0 for the process that begins the session and sends the key; later processes count up."""
    tried: int = 0
    """Streams of this life that may have begun and were lost: the next one has a higher number."""

    @property
    def first(self) -> int:
        """Return the number before its streams and requests, which no other life uses.

        A supervisor prefers the stream with the higher number, and a frame is sealed for its
        stream: neither an earlier process nor a recorded frame fits into a later life.
        """
        return self.number << 32
