"""Download files from the Python package index by name and SHA-256; build and install nothing.

uv locates the files, so the user's own index configuration applies and no address is hard-coded
here. Used by `release_pairs`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp

from swe_rollout.errors import (
    DatasetError,
    PrerequisiteError,
    Problem,
    UnreachableError,
    gather_all,
)
from swe_rollout.sandbox.local.images import cache_dir

_DOWNLOADS_AT_A_TIME = 4
_TIMEOUT_S = 60.0
_INDEX_FIX = (
    "check the network, or point uv at an index you can reach (UV_DEFAULT_INDEX, or uv.toml)"
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A pinned file from the index."""

    project: str
    version: str
    filename: str
    sha256: str

    @property
    def path(self) -> Path:
        """The path of the file once downloaded."""
        return cache_dir() / "downloads" / self.sha256 / self.filename


async def fetch(artifacts: Sequence[Artifact], *, on_progress: Callable[[str], None]) -> None:
    """Download and check whatever is not cached; afterwards every `artifact.path` exists."""
    missing = [artifact for artifact in dict.fromkeys(artifacts) if not artifact.path.is_file()]
    if not missing:
        return
    urls: dict[Artifact, str] = {}
    for group in _rounds(missing):
        urls |= await _locate(group)
    on_progress(f"downloading {len(missing)} files from the package index")
    gate = asyncio.Semaphore(_DOWNLOADS_AT_A_TIME)
    timeout = aiohttp.ClientTimeout(sock_connect=_TIMEOUT_S, sock_read=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as client:
        await gather_all(
            _download(artifact, url, client=client, gate=gate) for artifact, url in urls.items()
        )


def _rounds(artifacts: Sequence[Artifact]) -> Iterator[list[Artifact]]:
    """Group artifacts so that a group has one version of each project, as a resolution requires."""
    left = list(artifacts)
    while left:
        versions: dict[str, str] = {}
        for artifact in left:
            versions.setdefault(artifact.project, artifact.version)
        yield [a for a in left if versions[a.project] == a.version]
        left = [a for a in left if versions[a.project] != a.version]


async def _locate(artifacts: Sequence[Artifact]) -> dict[Artifact, str]:
    """Find the address of each artifact in uv's lock file for exactly these versions."""
    requirements = "".join(sorted({f"{a.project}=={a.version}\n" for a in artifacts}))
    lock = tomllib.loads(await _uv_lock(requirements))
    known: dict[str, str] = {}
    for package in lock.get("packages", []):
        for file in [*package.get("wheels", []), *filter(None, [package.get("sdist")])]:
            place = file.get("url") or file.get("path", "")
            known[unquote(urlsplit(place).path.rsplit("/", 1)[-1])] = place
    absent = [artifact.filename for artifact in artifacts if artifact.filename not in known]
    if absent:
        raise UnreachableError(
            f"the package index does not have {', '.join(absent)}",
            why="it has the version, but not this file",
            fix=_INDEX_FIX,
        )
    return {artifact: known[artifact.filename] for artifact in artifacts}


async def _uv_lock(requirements: str) -> str:
    command = [
        _find_uv(), "pip", "compile", "--quiet", "--no-header", "--format", "pylock.toml",
        "--no-deps", "--generate-hashes", "--python", sys.executable, "-",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(requirements.encode())
    if process.returncode:
        raise UnreachableError(
            "the package index could not be searched for " + ", ".join(requirements.split()),
            why=_without_credentials(err.decode(errors="replace").strip()[-600:]),
            fix=_INDEX_FIX,
        )
    return out.decode()


def _find_uv() -> str:
    """Find the uv that the extra `release-pairs` installs, or the one on PATH."""
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - an optional dependency

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise PrerequisiteError(
            "uv was not found",
            why="release pairs are located in the package index with it",
            fix="pip install 'swe-rollout[release-pairs]'",
        )
    return found


async def _download(
    artifact: Artifact, url: str, *, client: aiohttp.ClientSession, gate: asyncio.Semaphore
) -> None:
    parts = urlsplit(url)
    try:
        if parts.scheme in {"http", "https"}:
            async with gate, client.get(url, raise_for_status=True) as response:
                data = await response.read()
        else:
            data = await asyncio.to_thread(Path(unquote(parts.path)).read_bytes)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnreachableError(
            f"{artifact.filename} could not be downloaded",
            why=_without_credentials(f"{type(error).__name__}: {error}"),
            fix=_INDEX_FIX,
        ) from error
    _check(artifact, data)
    await asyncio.to_thread(_keep, artifact.path, data)


def _check(artifact: Artifact, data: bytes) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != artifact.sha256:
        expected = f"expected {artifact.sha256}, found {found} ({len(data)} bytes)"
        raise DatasetError(
            f"{artifact.filename} is not the file that these tasks were recorded with",
            [Problem(artifact.filename, "sha256", expected)],
            fix="use another index; this one serves another file under this name",
        )


def _keep(path: Path, data: bytes) -> None:
    """Write atomically: another process may be downloading the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        part.write(data)
    Path(part.name).replace(path)


def _without_credentials(text: str) -> str:
    """Remove user names and passwords from addresses in `text`."""
    return re.sub(r"(\w+://)[^/\s@]*@", r"\1", text)
