"""Archives in both directions, and the patches and deltas that policies make."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from rollout_dev.fuzz.surface import promise, split_head, surface, with_head
from rollout_dev.fuzz.surfaces import real
from swe_rollout.agent.tools.bundle import archive as bundles
from swe_rollout.datasets import harbor_files
from swe_rollout.datasets.archives import unpack_sdist, unpack_wheel
from swe_rollout.errors import DatasetError, SandboxError
from swe_rollout.extension import ExtensionError
from swe_rollout.integrations.sandboxes import transfer
from swe_rollout.sandbox import delta
from swe_rollout.sandbox.base import SandboxDelta
from swe_rollout.sandbox.patch_text import binary_attributes, file_diffs, touched_paths
from swe_rollout.sandbox.session.walk import records_of

_MOST_BYTES = 1 << 20


_ODD = (
    *(("top/a.txt", tarfile.REGTYPE, ""), ("top/task.toml", tarfile.REGTYPE, "")),
    *(("top/d", tarfile.DIRTYPE, ""), ("top/d/link", tarfile.SYMTYPE, "../a.txt")),
    *(("top/out", tarfile.SYMTYPE, "/etc/passwd"), ("top/hard", tarfile.LNKTYPE, "top/a.txt")),
    *(("top/fifo", tarfile.FIFOTYPE, ""), ("top/é日本", tarfile.REGTYPE, "")),
)
_PLAIN = tuple(
    (f"top/{name}", tarfile.REGTYPE, "")
    for name in ("a.py", "b/c.py", "task.toml", "instruction.md")
)


def _tar(members: Sequence[tuple[str, bytes, str]], mode: Literal["w", "w:xz"] = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, 0o755
            data = b"content of " + name.encode() if kind == tarfile.REGTYPE else b""
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("pkg/__init__.py", "x = 1\n")
        file.writestr("pkg-1.dist-info/METADATA", "Name: pkg\n" * 30)
    return buffer.getvalue()


def _samples() -> Sequence[bytes]:
    made = [
        with_head(reader, data)
        for reader in ("sdist", "harbor", "transfer")
        for data in (
            _tar(_ODD),
            _tar(_PLAIN),
            gzip.compress(_tar(_PLAIN), mtime=0),
            _tar(_ODD, "w:xz"),
        )
    ]
    bundle = json.dumps(
        {"files": [{"path": "tools.yaml", "executable": False, "content": "dG9vbHM6IFtdCg=="}]}
    )
    return [*made, with_head("wheel", _zip()), with_head("bundle", bundle.encode())]


def _unpack(data: bytes) -> None:
    head, body = split_head(data)
    root = real.scratch("archives")
    work, target = root / "work", root / "work" / "target"
    work.mkdir()
    (work / "beside").write_text("safe")
    try:
        _readers(work, target).get(head, _ignore)(body)
    finally:
        beside = sorted(each.name for each in work.iterdir())
        kept = (work / "beside").read_text() if (work / "beside").is_file() else ""
        size = sum(each.lstat().st_blocks * 512 for each in work.rglob("*"))
        _remove(work)
        promise(set(beside) <= {"beside", "target", "archive"}, f"it left its folder: {beside}")
        promise(kept == "safe", "it wrote beside its folder")
        promise(sorted(each.name for each in root.iterdir()) == [], "it wrote outside")
        promise(size <= 16 * _MOST_BYTES + 64 * len(body), "it wrote much more than there was")


def _ignore(data: bytes) -> None:
    """Read nothing: no reader has this name."""
    del data


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # modes of the archive
        for parent, _, _ in os.walk(folder):
            with suppress(OSError):
                Path(parent).chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _readers(work: Path, target: Path) -> dict[str, Callable[[bytes], None]]:
    archive = work / "archive"

    def of_file(reader: Callable[[Path, Path], None]) -> Callable[[bytes], None]:
        def read(data: bytes) -> None:
            archive.write_bytes(data)
            reader(archive, target)

        return read

    def harbor(data: bytes) -> None:
        harbor_files._of_archive("x.tar", data)  # noqa: SLF001 - read in memory

    return {
        "sdist": of_file(unpack_sdist),
        "wheel": of_file(unpack_wheel),
        "transfer": of_file(transfer._unpack),  # noqa: SLF001 - without a sandbox
        "harbor": harbor,
        "bundle": bundles.register,
    }


ARCHIVES = surface(
    "archives", _unpack, DatasetError, SandboxError, ExtensionError, samples=_samples
)


def _patch_samples() -> Sequence[bytes]:
    entries = [
        delta.Entry("app/a.txt", delta.Kind.FILE, b"one\ntwo"),
        delta.Entry("app/é x", delta.Kind.PROGRAM, b"\x00\xff" * 40),
        delta.Entry("app/link", delta.Kind.LINK, b"/etc/passwd"),
        delta.Entry("app/gone", delta.Kind.GONE),
        delta.Entry("app/d", delta.Kind.FOLDER),
    ]
    diff = (
        "diff --git a/x.py b/x.py\nindex 1..2 100644\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@\n"
        ' a\n-b\n+c\n+d\ndiff --git "a/\\303\\251" "b/\\303\\251"\nnew file mode 100644\nrename from q\n'  # noqa: E501
    )
    found = [*real.files(real.DATA, "eval-logs/**/patch.diff")]
    return [
        with_head("delta", delta.write(entries).encode()),
        with_head("patch", diff.encode()),
        with_head("records", b"swe-delta\x01\x28\xb5\x2f\xfd\x04\x00\x09\x00\x00E"),
        *(with_head("patch", each) for each in found),
    ]


def _read_patch(data: bytes) -> None:
    head, body = split_head(data)
    match head:
        case "delta":
            text = body.decode(errors="replace")
            found = delta.parse(text)
            again = delta.parse(delta.write(found))
            promise(again == tuple(sorted(found, key=lambda each: each.path)), "a delta changes")
        case "records":
            records_of(SandboxDelta(1, body))
        case _:
            parts = file_diffs(body)
            promise(b"".join(part.data for part in parts) == body, "a diff lost bytes")
            touched_paths(body.decode(errors="replace"))
            binary_attributes(body)


PATCHES = surface("patches", _read_patch, delta.DeltaError, SandboxError, samples=_patch_samples)
