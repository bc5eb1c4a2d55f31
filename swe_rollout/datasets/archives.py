"""Source distributions and wheels, unpacked as plain folders. Archives are not trusted.

Used by `release_pairs`. Nothing is run from what is unpacked.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from swe_rollout.errors import DatasetError, Problem


def unpack_sdist(archive: Path, into: Path, *, folder: str = "") -> None:
    """Put the content of the archive's one top folder (or of `folder` in it) into `into`."""
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".unpack-") as scratch:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(scratch, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise _unreadable(archive, str(error)) from error
        tops = list(Path(scratch).iterdir())
        source = tops[0] / folder if len(tops) == 1 else Path(scratch, "absent")
        if not source.is_dir():
            raise _unreadable(archive, f"expected one top folder with {folder or 'files'} in it")
        shutil.copytree(source, into, symlinks=True, dirs_exist_ok=True)


def unpack_wheel(archive: Path, into: Path) -> None:
    """Put the content of a pure-Python wheel into `into`, as an import path wants it."""
    try:
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts or "\\" in name:
                    raise _unreadable(archive, f"a member lies outside: {name[:80]!r}")
            wheel.extractall(into)  # noqa: S202 - the members were checked above
    except zipfile.BadZipFile as error:
        raise _unreadable(archive, str(error)) from error


def unpack_dependency(archive: Path, into: Path, *, folder: str = "") -> None:
    """Put a wheel, or the pure-Python `folder` of a source distribution, on an import path."""
    if archive.suffix == ".whl":
        unpack_wheel(archive, into)
    else:
        unpack_sdist(archive, into, folder=folder)


def _unreadable(archive: Path, why: str) -> DatasetError:
    return DatasetError(f"{archive.name} can't be unpacked", [Problem(archive.name, "", why)])
