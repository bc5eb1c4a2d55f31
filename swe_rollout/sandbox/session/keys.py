"""Keys of sessions, which another process of the same job can derive again.

A session's key is random, and dies with its process. Where a job has a secret of its own, the key
is derived from that and the sandbox's identity instead: a process that follows a killed one can
prove to the supervisor who it is, and be sure that it talks to the supervisor. No pod's spec, no
journal and no record has anything of it. Who has the key of one sandbox learns of no other one.
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
"""Holds the secret of a job. Its name is one of those whose values are redacted everywhere."""
_FORM: Final = re.compile(r"[0-9a-f]{64}")
_USE: Final = b"swe-rollout session key 1\0"


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of a job's sandboxes."""

    secret: bytes = field(repr=False)
    """32 random bytes: a key that can be guessed could be tried on frames that a command saw."""

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read the job's secret; None where it is not set. PrerequisiteError if it is malformed."""
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
        """Return the key of the session of a sandbox, by an identity that no other one ever has."""
        return hmac.digest(self.secret, _USE + sandbox.encode(), hashlib.sha256)


@dataclass(frozen=True, slots=True)
class SessionLife:
    """The part of a session that one process has; later ones continue it."""

    key: bytes | None = field(default=None, repr=False)
    """The key; None for a random one, with which no other process can continue the session."""
    number: int = 0
    """0 for the process that begins the session and sends the key; later processes count up."""

    @property
    def first(self) -> int:
        """The number before those of its streams and requests, which no other life uses.

        A supervisor prefers the stream with the higher number, and a frame is sealed for its
        stream: neither an earlier process nor what a command has recorded fits into a later life.
        """
        return self.number << 32
