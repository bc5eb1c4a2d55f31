"""A scene for attacks on local sandboxes: planted secrets, a neighbour, and a watched controller.

Each attack runs in its own sandbox, started by a controller whose event loop is monitored, next to
another sandbox that must keep working.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import secrets
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

from rollout_dev.conformance.attacks.attack import Attack
from rollout_dev.conformance.attacks.trials import BEAT_S, Trial, watched
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.local.images import (
    LocalImage,
    Mount,
    image_folder,
    save_image,
)
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId

_IMAGE: Final = "attacks:1"
_LIMITS: Final = {"memory": "1Gi", "disk": "256Mi", "processes": 512}
_TOO_MANY_MB: Final = 300
_CLOSE_S: Final = 15.0
_ASK_EVERY_S: Final = 0.2
_ANSWER_S: Final = 10.0
_KEYRINGS = {"x86_64": (250, 248), "aarch64": (219, 217)}


@asynccontextmanager
async def open_scene() -> AsyncIterator[Scene]:
    """Plant secrets on this machine and start a neighbour for the duration of the block."""
    with _planted() as words:
        provider = LocalProvider(LocalSandbox.model_validate(_LIMITS))
        try:
            neighbour = await provider.start(_request(0))
            yield Scene(provider, neighbour, words)
        finally:
            await provider.aclose()


@dataclass(slots=True)
class Scene:
    """A provider, a neighbour, and the placeholders in scripts for planted secrets."""

    provider: LocalProvider
    neighbour: Sandbox
    words: Mapping[str, str]
    _number: int = 0

    async def run(self, attack: Attack) -> Trial:
        """Run an attack in a new sandbox, and end the sandbox."""
        return await watched(self._run(attack))

    async def _run(self, attack: Attack) -> tuple[str, bool]:
        script = attack.script
        for word, value in self.words.items():
            script = script.replace(f"@{word}@", value)
        self._number += 1
        neighbour = _Neighbour(self.neighbour)
        watching = asyncio.create_task(neighbour.watch())
        sandbox = await self.provider.start(_request(self._number))
        try:
            result = await sandbox.exec(script, timeout_s=attack.seconds)
            output = (result.stdout + result.stderr).decode("utf-8", "replace")
        except SandboxError as error:
            output = f"(lost: {error.why})\n"
        began = time.monotonic()
        await sandbox.close()
        close_s = time.monotonic() - began
        await asyncio.sleep(BEAT_S)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        problem = attack.problem(output)
        if not problem and not neighbour.answers:
            problem = "another sandbox stood still"
        if not problem and close_s > _CLOSE_S:
            problem = f"ending it took {close_s:.1f} s"
        return problem or "held", not problem


@dataclass(slots=True)
class _Neighbour:
    """Keeps running commands in another sandbox."""

    sandbox: Sandbox
    answers: bool = True

    async def watch(self) -> None:
        while True:
            done = await self.sandbox.exec("echo here", timeout_s=_ANSWER_S)
            self.answers = self.answers and done.stdout == b"here\n"
            await asyncio.sleep(_ASK_EVERY_S)


@contextmanager
def _planted() -> Iterator[dict[str, str]]:
    """Leave secrets where a careless sandbox would expose them."""
    name = f"swe-rollout-attack-{secrets.token_hex(4)}"
    secret = secrets.token_hex(8)
    with (
        tempfile.TemporaryDirectory(prefix=name) as home,
        patch.dict(os.environ, XDG_CACHE_HOME=home, SWE_ROLLOUT_SECRET=secret),
        _socket(name),
        _segment() as segment,
        _queue(name),
    ):
        _make_key(name, secret)
        file = Path(home, "credentials")
        file.write_text(secret)
        _make_image(secret)
        yield {
            "SECRET": secret,
            "GOLD": secret,
            "FILE": str(file),
            "CACHE": home,
            "KEY": name,
            "SOCKET": name,
            "SHM": str(segment),
            "QUEUE": name,
            "HOST": f"no-name-{secret}"
            if socket.gethostname() == "sandbox"
            else socket.gethostname(),
            "TOO_MANY_MB": str(_TOO_MANY_MB),
        }


def _make_image(secret: str) -> None:
    folder = image_folder(_IMAGE)
    (folder / "tree").mkdir(parents=True)
    (folder / "tree" / "code.py").write_text("x = 1\n")
    (folder / "deps").mkdir()
    (folder / "gold.patch").write_text(secret)
    mounts = (Mount("tree", "/testbed", writable=True), Mount("deps", "/opt/deps", writable=False))
    save_image(LocalImage(_IMAGE, mounts, {}), folder)


@contextmanager
def _socket(name: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        yield


def _make_key(name: str, secret: str) -> None:
    """Give this thread, and the processes it starts, a session keyring with a key in it."""
    join, add_key = _KEYRINGS[platform.machine()]
    libc = ctypes.CDLL(None)
    libc.syscall(join, 1, None)
    libc.syscall(add_key, b"user", name.encode(), secret.encode(), len(secret), -3)


@contextmanager
def _segment() -> Iterator[int]:
    libc = ctypes.CDLL(None)
    key = secrets.randbelow(1 << 30) + 1
    made = libc.shmget(key, 4096, 0o1600)
    try:
        yield key
    finally:
        libc.shmctl(made, 0, None)


@contextmanager
def _queue(name: str) -> Iterator[None]:
    libc = ctypes.CDLL(None)
    made = libc.mq_open(f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    try:
        yield
    finally:
        if made >= 0:
            os.close(made)
            libc.mq_unlink(f"/{name}".encode())


def _request(number: int) -> SandboxRequest:
    episode = EpisodeId("attacks", "local", number)
    return SandboxRequest(episode, Role.AGENT, _IMAGE, "/testbed")
