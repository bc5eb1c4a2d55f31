"""The contract of our sandboxes behind other frameworks' protocols, whatever the protocol.

A `Face` is the protocol as a test needs it. The same tests run over local sandboxes, in the unit
tier and in the frameworks' environments, and over pods in the cluster tier.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.integrations.sandboxes import rllm, slime
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image
from waits import PATIENCE_S

IMAGE = "protocols:1"
WORKDIR = "/root"
"""A folder that the pods' image has, too."""
LARGE_BYTES = 20_000_003
"""Several pieces of a transfer, and a part of one."""
Spec = Mapping[str, object]


@dataclass(frozen=True)
class Ran:
    """What a protocol says of a command."""

    code: int
    stdout: str
    stderr: str = ""
    timed_out: bool = False


class Face(ABC):
    """A running sandbox behind a protocol."""

    lost: ClassVar[type[Exception]] = SandboxError
    """What is raised when the sandbox is gone."""
    cancellable: ClassVar[bool] = True
    takes_user: ClassVar[bool] = True
    told_of_time: ClassVar[bool] = True
    """Whether a command may be given a time limit."""
    shows_stderr: ClassVar[bool] = True

    @abstractmethod
    async def run(
        self, command: str, *, timeout_s: int | None = None, user: str | None = None
    ) -> Ran: ...

    @abstractmethod
    async def put(self, path: str, data: bytes) -> None: ...

    async def get(self, path: str) -> bytes:
        """Read a file; left out where the protocol reads no bytes."""
        pytest.skip(f"the protocol reads no bytes, so not {path}")

    @abstractmethod
    async def close(self) -> None: ...


Opener = Callable[..., Awaitable[Face]]
"""Opens a face over a sandbox that lives for `lifetime_s`."""


def local(folder: Path) -> Spec:
    """Make an image on this machine with an empty workdir; return the sandboxes that start it."""
    image = image_folder(IMAGE, folder / "images")
    mounts = []
    for number, target in enumerate((WORKDIR, "/logs", "/tests", "/solution")):
        (image / f"mount-{number}").mkdir(parents=True)
        mounts.append(Mount(f"mount-{number}", target, writable=True))
    save_image(LocalImage(IMAGE, tuple(mounts), {}), image)
    return {"local": {"images": str(folder / "images")}}


class ProtocolContract:
    """Override the fixture `opener`."""

    short_life_s: ClassVar[float] = 2.0
    """Long enough to start in."""

    @pytest.fixture
    async def face(self, opener: Opener) -> AsyncIterator[Face]:
        face = await opener(lifetime_s=300.0)
        yield face
        await face.close()

    async def test_exit_code_and_streams_come_back(self, face: Face) -> None:
        ran = await face.run("echo out; echo err >&2; exit 7")
        assert ran.code == 7
        assert not ran.timed_out
        if face.shows_stderr:
            assert "err" in ran.stderr
        assert (await face.run("printf 'a b\n'")).stdout == "a b\n"

    async def test_commands_start_in_the_workdir_and_share_its_files(self, face: Face) -> None:
        assert (await face.run("pwd")).stdout.strip() == WORKDIR
        await face.run("echo one >file")
        assert (await face.run("cat file")).stdout == "one\n"

    async def test_output_that_is_no_text_is_no_error(self, face: Face) -> None:
        assert (await face.run(r"printf 'a\377b\000c'")).stdout == "a\ufffdb\0c"

    async def test_output_without_end_is_cut_and_said_to_be(self, face: Face) -> None:
        ran = await face.run("head -c 30000000 /dev/zero | tr '\\0' x")
        assert ran.code == 0
        assert 0 < len(ran.stdout) < 30_000_000
        if face.shows_stderr:
            assert "were not kept" in ran.stderr

    async def test_a_command_whose_time_is_over_is_a_result_and_ends(self, face: Face) -> None:
        if not face.told_of_time:
            pytest.skip("the protocol gives a command no time limit")
        ran = await face.run("while :; do echo x >>beat; sleep 0.05; done", timeout_s=1)
        assert ran.timed_out
        assert "time was over" in ran.stderr
        await _until_still(face, "beat")
        assert (await face.run("echo next")).stdout == "next\n"

    async def test_every_byte_survives_the_round_trip(self, face: Face) -> None:
        for data in (b"", bytes(range(256)), b"no newline", b"\r\n\0\x1a"):
            await face.put(f"{WORKDIR}/deep folder/it's", data)
            digest = await face.run('sha256sum <"deep folder/it\'s"')
            assert digest.stdout.split()[0] == hashlib.sha256(data).hexdigest()
            assert await face.get(f"{WORKDIR}/deep folder/it's") == data

    async def test_large_files_survive_the_round_trip(self, face: Face) -> None:
        data = os.urandom(LARGE_BYTES)
        await face.put(f"{WORKDIR}/large", data)
        digest = await face.run("sha256sum <large; ls")
        assert digest.stdout.split()[0] == hashlib.sha256(data).hexdigest()
        assert digest.stdout.split()[2:] == ["large"]  # nothing else is left of the transfer
        assert await face.get(f"{WORKDIR}/large") == data

    async def test_results_find_their_callers(self, face: Face) -> None:
        async def one(number: int) -> bool:
            ran = await face.run(f"sleep 0.{number % 4}; echo {number}; exit 0")
            return ran.stdout == f"{number}\n"

        assert all(await asyncio.gather(*map(one, range(16))))

    async def test_cancelling_kills_the_command(self, face: Face) -> None:
        if not face.cancellable:
            pytest.skip("the protocol is synchronous")
        task = asyncio.create_task(face.run("while :; do echo x >>beat; sleep 0.05; done"))
        await _until_there(face, "beat")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _until_still(face, "beat")

    async def test_a_user_that_is_not_there_is_refused(self, face: Face) -> None:
        if not face.takes_user:
            pytest.skip("the protocol has no users")
        with pytest.raises(face.lost, match="no-such-user"):
            await face.run("echo ran", user="no-such-user")
        assert (await face.run("echo ran", user="root")).stdout == "ran\n"

    async def test_closing_twice_is_closing_once(self, face: Face) -> None:
        await face.close()
        await face.close()

    async def test_closing_while_a_command_runs_is_no_observation(self, face: Face) -> None:
        task = asyncio.create_task(face.run("echo x >begun; sleep 60"))
        await _until_there(face, "begun")
        await asyncio.gather(face.close(), face.close())
        with pytest.raises(face.lost):
            await task

    async def test_a_lost_sandbox_is_no_observation(self, opener: Opener) -> None:
        face = await opener(lifetime_s=self.short_life_s)
        try:
            with pytest.raises(face.lost):
                await face.run("sleep 60", timeout_s=60)
            with pytest.raises(face.lost):
                await face.run("true")
            with pytest.raises(face.lost):
                await face.put(f"{WORKDIR}/file", b"x")
        finally:
            await face.close()


async def _until_there(face: Face, name: str) -> None:
    """Wait until a file has content, inside the sandbox."""
    ran = await face.run(f"until test -s {name}; do sleep 0.05; done", timeout_s=60)
    assert ran.code == 0


async def _until_still(face: Face, name: str) -> None:
    """Wait until a file has stopped growing."""
    async with asyncio.timeout(PATIENCE_S):
        sizes = ["", "-"]
        while sizes[-1] != sizes[-2]:
            await asyncio.sleep(0.5)
            sizes.append((await face.run(f"wc -c <{name}")).stdout)


class SlimeFace(Face):
    def __init__(self, sandbox: slime.Sandbox) -> None:
        self.sandbox = sandbox

    @classmethod
    async def open(cls, spec: Spec, *, image: str = IMAGE, lifetime_s: float) -> SlimeFace:
        sandbox = slime.Sandbox(image, spec=spec, workdir=WORKDIR, timeout=lifetime_s)
        return cls(await sandbox.__aenter__())

    async def run(
        self, command: str, *, timeout_s: int | None = None, user: str | None = None
    ) -> Ran:
        code, out, err = await self.sandbox.exec(
            command, timeout=timeout_s or 120, user=user or "root"
        )
        return Ran(code, out, err, timed_out=code == 124)

    async def put(self, path: str, data: bytes) -> None:
        if len(data) < 1000:
            await self.sandbox.write_file(path, data)
            return
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file"
            file.write_bytes(data)
            await self.sandbox.write_file(path, file)

    async def close(self) -> None:
        await self.sandbox.__aexit__(None, None, None)


class RllmFace(Face):
    cancellable = False
    shows_stderr = False

    def __init__(self, sandbox: rllm.Sandbox) -> None:
        self.sandbox = sandbox

    @classmethod
    async def open(cls, spec: Spec, *, image: str = IMAGE, lifetime_s: float) -> RllmFace:
        def opened() -> rllm.Sandbox:
            return rllm.Sandbox("one", image, spec=spec, workdir=WORKDIR, lifetime_s=lifetime_s)

        return cls(await asyncio.to_thread(opened))

    async def run(
        self, command: str, *, timeout_s: int | None = None, user: str | None = None
    ) -> Ran:
        try:
            out = await asyncio.to_thread(self.sandbox.exec, command, timeout_s, user)
        except RuntimeError as error:
            code = int(str(error).split()[2])
            return Ran(code, "", str(error), timed_out=code == 124)
        return Ran(0, out)

    async def put(self, path: str, data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file"
            file.write_bytes(data)
            await asyncio.to_thread(self.sandbox.upload_file, str(file), path)

    async def close(self) -> None:
        await asyncio.to_thread(self.sandbox.close)
