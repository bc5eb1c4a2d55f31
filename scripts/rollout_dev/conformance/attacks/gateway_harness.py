"""The beginning of a harness that attacks: its parts, and the variables that the scene gives it."""

import json
import os
import socket
import struct
import sys
import time

# Attacks use what is here and not used.
_ALL = (json, struct, sys, time)
KEY, ENDED, OTHER = (os.environ.pop(name) for name in ("KEY", "ENDED", "OTHER"))
PORT = int(os.environ["DOOR_PORT"])
SOCKET = "/tmp/swe-rollout-door/socket"  # noqa: S108 (in the sandbox)
CHAT = "/v1/chat/completions"
GOOGLE = "/v1beta/models/policy:"
PATHS = (
    CHAT,
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    f"{GOOGLE}generateContent",
    f"{GOOGLE}countTokens",
)
SAY: dict[str, object] = {"model": "policy", "messages": [{"role": "user", "content": "Begin."}]}
HELD: list[socket.socket] = []


def breach(*said: object) -> None:
    print("BREACH", repr(said)[:300])


def head(path: str, *lines: str) -> bytes:
    text = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {KEY}", *lines])
    return f"{text}\r\n\r\n".encode()


def raw(data: bytes, wait: float = 20.0, *, close: bool = False) -> bytes:
    """Send bytes on a connection of their own, and return what comes back within some seconds."""
    one = socket.create_connection(("127.0.0.1", PORT), timeout=30)
    said = b""
    try:
        one.sendall(data)
        one.settimeout(wait or None)
        while wait and (more := one.recv(1 << 16)):
            said += more
    except OSError:
        pass
    if close or wait:
        one.close()
    else:
        HELD.append(one)
    return said


def ask(method: str, path: str, body: object = None, key: str = KEY) -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
    lines += [f"Authorization: Bearer {key}", f"Content-Length: {len(data)}"]
    said = raw("\r\n".join([*lines, "", ""]).encode(errors="surrogateescape") + data)
    first = said.split(b"\r\n", 1)[0].split()
    return (int(first[1]) if len(first) > 1 else 0), said.decode(errors="replace")


def door(data: bytes) -> None:
    """Send bytes to the listener's own socket."""
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(5)
    try:
        one.connect(SOCKET)
        one.sendall(data)
    except OSError:
        pass
    one.close()
