"""Unpack source distributions and wheels into plain folders. Archives are untrusted.

Nothing from an archive is run. Used by `release_pairs`.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Final

from swe_rollout.errors import DatasetError, Problem

MAX_BYTES: Final = 2 << 30
"""The most bytes that the members of an archive may have in total."""
DAMAGE: Final = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)
"""What the standard library raises for damaged archives and invalid names."""


def unpack_sdist(archive: Path, into: Path, *, folder: str = "") -> None:
    """Copy the content of the archive's only top folder (or of `folder` in it) into `into`."""
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".unpack-") as scratch:
        try:
            with tarfile.open(archive) as tar:
                left = MAX_BYTES
                for member in tar:
                    left -= member.size
                    _check_room(archive, left)
                    _extract(tar, member, Path(scratch), archive)
        except (tarfile.TarError, *DAMAGE) as error:
            raise _unreadable(archive, str(error)) from error
        tops = list(Path(scratch).iterdir())
        source = tops[0] / folder if len(tops) == 1 else Path(scratch, "absent")
        if not source.is_dir():
            raise _unreadable(archive, f"expected one top folder with {folder or 'files'} in it")
        shutil.copytree(source, into, symlinks=True, dirs_exist_ok=True)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path, archive: Path) -> None:
    """Write one folder or plain file with a mode that git knows; refuse everything else.

    `extractall` has a safe filter only from Python 3.11.4 on.
    """
    _check_inside(archive, member.name)
    path = into / member.name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        raise _unreadable(archive, f"a member is not a plain file: {member.name[:80]!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _check_inside(archive: Path, name: str) -> None:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name:
        raise _unreadable(archive, f"a member lies outside the archive: {name[:80]!r}")


def _check_room(archive: Path, left: int) -> None:
    if left < 0:
        raise _unreadable(archive, f"more than {MAX_BYTES >> 30} GiB come out of it")


def unpack_wheel(archive: Path, into: Path) -> None:
    """Unpack a pure-Python wheel into `into`, from which it can be imported."""
    try:
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                _check_inside(archive, name)
            _check_room(archive, MAX_BYTES - sum(each.file_size for each in wheel.infolist()))
            wheel.extractall(into)  # noqa: S202 - the members were checked above
    except (zipfile.BadZipFile, *DAMAGE, NotImplementedError, RuntimeError) as error:
        # These also cover unknown compression methods and encrypted files.
        raise _unreadable(archive, str(error)) from error


def unpack_dependency(archive: Path, into: Path, *, folder: str = "") -> None:
    """Unpack a wheel, or the pure-Python `folder` of a source distribution, for import."""
    if archive.suffix == ".whl":
        unpack_wheel(archive, into)
    else:
        unpack_sdist(archive, into, folder=folder)


def _unreadable(archive: Path, why: str) -> DatasetError:
    return DatasetError(f"{archive.name} can't be unpacked", [Problem(archive.name, "", why)])
