"""What every sandbox must do with files: the part of the contract about single files and trees.

`sandbox_contract.SandboxContract` includes it; nobody else needs this module.
"""

# ruff: noqa: S101, PLR2004 - a test suite asserts, on literals

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from swe_rollout.errors import SandboxError

if TYPE_CHECKING:
    from pathlib import Path

    from swe_rollout.sandbox.base import Sandbox

_MIB = 1 << 20
_NAMES = ("a b", "it's", 'q"', "line\nbreak", "é漢", "-rf", "$HOME", "*", "back\\slash", ".hidden")


class FileContract:
    """Files go in and out as they are."""

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
                letter if mode >> (8 - place) & 1 else "-"
                for place, letter in enumerate("rwxrwxrwx")
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
        with pytest.raises(SandboxError) as caught:
            await sandbox.read_file("file", max_bytes=9)
        assert not caught.value.retryable

    # --- of any size, and trees ------------------------------------------------------------------

    async def test_a_file_of_any_size_goes_up_and_down(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        for size in (0, 1, 5 * _MIB + 3):
            (local := tmp_path / "it's one").write_bytes(os.urandom(size))
            local.chmod(0o751)
            await sandbox.upload(local, "new folder/it's there")
            shown = await sandbox.exec(["ls", "-l", "new folder/it's there"])
            assert shown.stdout.startswith(b"-rwxr-x--x")
            await sandbox.download("new folder/it's there", tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == local.read_bytes()
            assert (tmp_path / "back").stat().st_mode & 0o777 == 0o751
        listed = await sandbox.exec(["ls", "-A", "new folder"])
        assert listed.stdout == b"it's there\n"

    async def test_an_upload_replaces_a_file(self, sandbox: Sandbox, tmp_path: Path) -> None:
        await sandbox.write_file("file", b"a longer first text")
        (tmp_path / "local").write_bytes(b"second")
        await sandbox.upload(tmp_path / "local", "file")
        assert await sandbox.read_file("file") == b"second"

    async def test_a_tree_goes_up_and_down(self, sandbox: Sandbox, tmp_path: Path) -> None:
        tree = _tree(tmp_path / "tree")
        await sandbox.upload(tree, "deep/tree")
        script = "cat a/link; ./a/program; for n in * .hidden; do printf '\\0%s' \"$n\"; done"
        run = await sandbox.exec(script, cwd="deep/tree")
        said, *names = run.stdout.decode().split("\0")
        assert said == "linked\nran\n"
        assert sorted(names) == sorted(["a", "empty", *_NAMES])
        await sandbox.download("deep/tree", tmp_path / "back")
        assert _shape(tmp_path / "back") == _shape(tree)
        assert (await sandbox.exec(["ls", "-A", "deep"])).stdout == b"tree\n"

    async def test_a_tree_is_laid_over_a_folder(self, sandbox: Sandbox, tmp_path: Path) -> None:
        (tree := tmp_path / "tree").mkdir()
        (tree / "changed").write_bytes(b"new")
        await sandbox.exec("mkdir there; echo old >there/changed; echo kept >there/kept")
        await sandbox.upload(tree, "there")
        seen = await sandbox.exec("cat there/changed there/kept")
        assert seen.stdout == b"newkept\n"

    async def test_a_download_of_nothing_is_not_found(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError):
            await sandbox.download("missing", tmp_path / "back")
        with pytest.raises(OSError, match="Invalid"):
            await sandbox.download("/dev/zero", tmp_path / "back")
        with pytest.raises(FileNotFoundError):
            await sandbox.upload(tmp_path / "missing", "there")
        await sandbox.exec(["mkdir", "folder"])
        (tmp_path / "local").write_bytes(b"x")
        with pytest.raises(IsADirectoryError):
            await sandbox.upload(tmp_path / "local", "folder")
        assert not any("back" in name for name in _names(tmp_path))

    async def test_a_download_over_the_bound_is_refused(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        await sandbox.write_file("file", bytes(100))
        with pytest.raises(SandboxError, match="too large"):
            await sandbox.download("file", tmp_path / "back", max_bytes=99)
        assert not (tmp_path / "back").exists()

    async def test_a_tree_whose_links_lead_out_stays_there(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        await sandbox.exec("mkdir tree; ln -s /etc/passwd tree/link")
        with pytest.raises(SandboxError, match="link") as caught:
            await sandbox.download("tree", tmp_path / "back")
        assert not caught.value.retryable
        assert not (tmp_path / "back").exists()

    async def test_many_transfers_at_once(self, sandbox: Sandbox, tmp_path: Path) -> None:
        async def one(number: int) -> bool:
            (local := tmp_path / f"{number}").write_bytes(os.urandom(_MIB + number))
            await sandbox.upload(local, f"up/{number}")
            await sandbox.download(f"up/{number}", tmp_path / f"{number}.back")
            return (tmp_path / f"{number}.back").read_bytes() == local.read_bytes()

        assert await asyncio.gather(*map(one, range(4))) == [True] * 4


def _tree(root: Path) -> Path:
    (root / "a" / "b").mkdir(parents=True)
    (root / "empty").mkdir(mode=0o711)
    (root / "a" / "b" / "large").write_bytes(os.urandom(2 * _MIB + 1))
    (root / "a" / "b" / "text").write_bytes(b"linked\n")
    (root / "a" / "link").symlink_to("b/text")
    (root / "a" / "program").write_text("#!/bin/sh\necho ran\n", "ascii")
    (root / "a" / "program").chmod(0o755)
    for name in _NAMES:
        (root / name).write_bytes(name.encode())
    return root


def _shape(root: Path) -> dict[str, str | bytes]:
    """Everything below, with modes and contents."""
    found: dict[str, str | bytes] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[f"{name}: mode"] = oct(path.lstat().st_mode)
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]
