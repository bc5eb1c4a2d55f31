"""A scene for attacks on local sandboxes: planted secrets, a neighbour, and a watched controller.

Each attack runs in its own sandbox, started by a controller whose event loop is monitored, next to
another sandbox that must keep working.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import re
import secrets
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_dev.conformance.attacks.attack import Attack
from rollout_dev.conformance.attacks.trials import BEAT_S, CALM_S, Stalls
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attack ended."""

    attack: Attack
    output: str
    stall_s: float
    """The longest stall of the controller's event loop."""
    close_s: float
    neighbour_ok: bool
    """Whether commands in another sandbox worked meanwhile."""

    @property
    def problem(self) -> str:
        """What the attack achieved; empty if everything held."""
        if breaches := re.findall(r"^BREACH.*$", self.output, re.MULTILINE):
            return "; ".join(breaches)[:500]
        if re.search(self.attack.held, self.output, re.MULTILINE) is None:
            return f"it did not get as far as trying: {self.output[-300:]!r}"
        if not self.neighbour_ok:
            return "another sandbox stood still"
        if self.stall_s > CALM_S:
            return f"the controller stood still for {self.stall_s:.1f} s"
        return "" if self.close_s <= _CLOSE_S else f"ending it took {self.close_s:.1f} s"


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

    async def run(self, attack: Attack) -> Outcome:
        """Run an attack in a new sandbox, and end the sandbox."""
        script = attack.script
        for word, value in self.words.items():
            script = script.replace(f"@{word}@", value)
        self._number += 1
        stalls, neighbour = Stalls(), _Neighbour(self.neighbour)
        watching = [asyncio.create_task(stalls.watch()), asyncio.create_task(neighbour.watch())]
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
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        return Outcome(attack, output, stalls.longest_s, close_s, neighbour.answers)


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
        _environment(XDG_CACHE_HOME=home, SWE_ROLLOUT_SECRET=secret),
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
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
