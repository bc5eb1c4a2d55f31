"""The file part of every sandbox's contract, used by `sandbox_contract.SandboxContract`."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from swe_rollout.sandbox.base import Sandbox

_NAMES = ("a b", "it's", 'q"', "line\nbreak", "é漢", "-rf", "$HOME", "*", "back\\slash", ".hidden")


class FileContract:
    """The contract of reading and writing files."""

    async def test_every_byte_survives_the_round_trip(self, sandbox: Sandbox) -> None:
        for data in (b"", b"\n", bytes(range(256)), b"no newline", b"\r\n\0\x1a"):
            await sandbox.write_file("file", data)
            assert await sandbox.read_file("file") == data

    async def test_large_files_survive_the_round_trip(self, sandbox: Sandbox) -> None:
        data = os.urandom(3_000_001)
        await sandbox.write_file("file", data)
        assert await sandbox.read_file("file") == data

    async def test_names_are_only_names(self, sandbox: Sandbox) -> None:
        for name in _NAMES:
            await sandbox.write_file(name, name.encode())
            assert await sandbox.read_file(name) == name.encode()
        listed = await sandbox.exec("for n in * .hidden; do cat -- \"$n\"; printf '\\0'; done")
        assert sorted(listed.stdout.decode().split("\0")[:-1]) == sorted(_NAMES)

    async def test_relative_paths_begin_at_the_workdir(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("one/two/../three", b"3")
        assert await sandbox.read_file(f"{sandbox.workdir}/one/three") == b"3"

    async def test_parent_folders_are_made(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("new folder/deep/file", b"x")
        assert (await sandbox.exec(["cat", "new folder/deep/file"])).stdout == b"x"

    async def test_the_mode_is_set(self, sandbox: Sandbox) -> None:
        for mode in (0o644, 0o755, 0o600):
            await sandbox.write_file("file", b"#!/bin/sh\necho ran\n", mode=mode)
            shown = await sandbox.exec("ls -l file")
            bits = "".join(
                letter if mode >> (8 - index) & 1 else "-"
                for index, letter in enumerate("rwxrwxrwx")
            )
            assert shown.stdout[1:10].decode() == bits
        await sandbox.write_file("file", b"#!/bin/sh\necho ran\n", mode=0o755)
        assert (await sandbox.exec("./file")).stdout == b"ran\n"

    async def test_writing_replaces_and_leaves_nothing_else(self, sandbox: Sandbox) -> None:
        await sandbox.exec(["mkdir", "only"])
        await sandbox.write_file("only/file", b"a longer first text")
        await sandbox.write_file("only/file", b"second")
        assert await sandbox.read_file("only/file") == b"second"
        assert (await sandbox.exec("ls -A only")).stdout == b"file\n"

    async def test_readers_see_the_old_file_or_the_new_one(self, sandbox: Sandbox) -> None:
        texts = (b"a" * 300_000, b"b" * 400_000)
        await sandbox.write_file("file", texts[0])
        seen, *_ = await asyncio.gather(
            sandbox.read_file("file"), *(sandbox.write_file("file", text) for text in texts * 2)
        )
        assert seen in texts

    async def test_a_link_is_written_through(self, sandbox: Sandbox) -> None:
        await sandbox.exec("mkdir there; echo old >there/file; ln -s there/file link")
        await sandbox.write_file("link", b"new")
        assert (await sandbox.exec("readlink link; cat there/file")).stdout == b"there/file\nnew"

    async def test_a_missing_file_is_not_found(self, sandbox: Sandbox) -> None:
        for path in ("missing", "missing/deeper", "/no/such/file"):
            with pytest.raises(FileNotFoundError):
                await sandbox.read_file(path)

    async def test_a_folder_is_no_file(self, sandbox: Sandbox) -> None:
        await sandbox.exec(["mkdir", "folder"])
        with pytest.raises(IsADirectoryError):
            await sandbox.read_file("folder")
        with pytest.raises(IsADirectoryError):
            await sandbox.write_file("folder", b"x")

    async def test_a_file_is_no_folder(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("file", b"x")
        with pytest.raises(OSError, match="directory"):
            await sandbox.write_file("file/below", b"x")

    async def test_a_device_is_refused_and_does_not_hang(self, sandbox: Sandbox) -> None:
        with pytest.raises(OSError, match="Invalid"):
            await sandbox.read_file("/dev/zero")

    async def test_a_file_over_the_bound_is_refused(self, sandbox: Sandbox) -> None:
        await sandbox.write_file("file", b"0123456789")
        assert await sandbox.read_file("file", max_bytes=10) == b"0123456789"
        with pytest.raises(OSError, match="more than 9 bytes") as caught:
            await sandbox.read_file("file", max_bytes=9)
        assert caught.value.errno == errno.EFBIG
