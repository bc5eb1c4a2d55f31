"""Write container images without a daemon or a registry: folders in, a docker-archive out.

`ctr images import`, `kind load image-archive` and `docker load` all read the archive. The same
input gives the same bytes on every machine, so an image's digest names its content. Files are
streamed; memory use does not grow with their size.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import zstandard

from rollout_dev.dev_cluster.errors import ScriptError
from swe_rollout.errors import UsageError

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# All files have the same time. It is not 0: zip refuses times before 1980.
FILE_TIME = 946_684_800
"""The first second of the year 2000."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The defaults of a container of the image."""

    env: tuple[tuple[str, str], ...] = ()
    """Names and values; `PATH` has the usual value unless it is set here."""
    workdir: str = "/"
    cmd: tuple[str, ...] = ("/bin/sh",)
    user: str = ""
    """`uid:gid`; empty for root."""
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the OCI image specification: `org.opencontainers.image.…`."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image, before it is written in one of the formats."""

    names: tuple[str, ...]
    """The names of this content; the first one has a tag that no other content has."""
    layers: tuple[Layer, ...]
    config: ImageConfig


@dataclass(frozen=True, slots=True)
class Layer:
    """An uncompressed tar of files on top of the previous layers."""

    path: Path
    diff_id: str
    """`sha256:` and the digest of the tar."""

    @classmethod
    def of(cls, path: Path) -> Layer:
        """Wrap an existing tar as a layer."""
        with path.open("rb") as file:
            return cls(path, f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}")


def layer_from_trees(trees: Mapping[str, Path], out: Path) -> Layer:
    """Write a layer with each folder's content at its absolute path, everything owned by root.

    It keeps names, bytes, symbolic links, whether a file is executable, and whether a folder is
    open to all (`/tmp`). Times, owners and the umask of the folder's creator are not kept.
    """
    with _replacing(out) as file, _tar(file) as tar:
        for prefix in sorted(trees):
            _add_tree(tar, prefix.strip("/"), trees[prefix])
    return Layer.of(out)


def write_archive(
    names: str | Sequence[str], layers: Sequence[Layer], config: ImageConfig, out: Path
) -> str:
    """Write the docker-archive of an image with these names; return the image's digest."""
    body = config_json(layers, config)
    digest = hashlib.sha256(body).hexdigest()
    files = [f"{layer.diff_id.removeprefix('sha256:')}.tar" for layer in layers]
    manifest = [
        {
            "Config": f"{digest}.json",
            "RepoTags": [names] if isinstance(names, str) else list(names),
            "Layers": files,
        }
    ]
    with _replacing(out) as file, _tar(file) as tar:
        # Put it first, so that a reader finds it without scanning the layers.
        _add_bytes(tar, "manifest.json", json.dumps(manifest).encode())
        _add_bytes(tar, f"{digest}.json", body)
        written: set[str] = set()
        for layer, member in zip(layers, files, strict=True):
            if member not in written:
                _add_file(tar, _entry(member, size=layer.path.stat().st_size), layer.path)
            written.add(member)
    return f"sha256:{digest}"


def config_json(layers: Sequence[Layer], config: ImageConfig) -> bytes:
    """Return an image's configuration, which Docker and OCI share."""
    env = {"PATH": _PATH} | dict(config.env)
    machine = platform.machine()
    created = "1970-01-01T00:00:00Z"
    user = {"User": config.user} if config.user else {}
    labels = {"Labels": dict(config.labels)} if config.labels else {}
    return json.dumps(
        {
            "architecture": _ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "created": created,
            "config": {
                "Env": [f"{key}={value}" for key, value in env.items()],
                "WorkingDir": config.workdir,
                "Cmd": list(config.cmd),
                **user,
                **labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": created} for _ in layers],
        }
    ).encode()


def _add_tree(tar: tarfile.TarFile, prefix: str, root: Path) -> None:
    """Add the folder, then everything below it, in an order that does not depend on the disk."""
    if not root.is_dir():
        raise UsageError(
            f"No layer from {root}.",
            why="it is not a folder.",
            fix="Name the folder whose content is to appear in the image.",
        )
    if prefix:  # Parent folders belong to the layers below.
        open_to_all = root.stat().st_mode & stat.S_ISVTX
        mode = 0o1777 if open_to_all else 0o755
        tar.addfile(_entry(prefix, kind=tarfile.DIRTYPE, mode=mode))
    for item in sorted(os.scandir(root), key=lambda item: os.fsencode(item.name)):
        name = f"{prefix}/{item.name}" if prefix else item.name
        if item.is_symlink():
            target = os.readlink(item.path)  # noqa: PTH115 - a Path would normalise the target
            tar.addfile(_entry(name, kind=tarfile.SYMTYPE, link=target))
        elif item.is_dir():
            _add_tree(tar, name, Path(item.path))
        elif item.is_file():
            status = item.stat()
            executable = bool(status.st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH))
            mode = 0o755 if executable else 0o644
            _add_file(tar, _entry(name, size=status.st_size, mode=mode), Path(item.path))
        else:
            raise UsageError(
                f"No layer from {root}.",
                why=f"{item.path} is a device, a socket or a named pipe.",
                fix="Remove it from the folder.",
            )


def _entry(
    name: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, link: str = ""
) -> tarfile.TarInfo:
    """Return an entry with owner root and the common time."""
    entry = tarfile.TarInfo(name)
    entry.mtime = FILE_TIME
    entry.type = kind
    entry.mode = 0o777 if kind == tarfile.SYMTYPE else mode
    entry.size = size
    entry.linkname = link
    return entry


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    with path.open("rb") as file:
        tar.addfile(entry, file)


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_entry(name, size=len(content)), io.BytesIO(content))


def _tar(file: IO[bytes]) -> tarfile.TarFile:
    # GNU: names of any length and any bytes, without extra headers for the usual ones.
    return tarfile.TarFile(
        fileobj=file, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape"
    )


@contextmanager
def _replacing(out: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `out` when it is complete."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=out.parent, prefix=f".{out.name}.") as file:
        yield file
        file.flush()
        partial = Path(file.name)
        partial.chmod(0o644)
        out.unlink(missing_ok=True)
        os.link(partial, out)


_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+zstd"
_REF_NAME: Final = "org.opencontainers.image.ref.name"
_LEVEL: Final = 3


@dataclass(frozen=True, slots=True)
class _Blob:
    """A file of the layout."""

    media_type: str
    digest: str
    size: int

    @property
    def descriptor(self) -> dict[str, object]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


def write_layout(image: Image, folder: Path) -> str:
    """Write the image into a new folder, in place of an older layout; return its digest."""
    is_ours = (folder / "oci-layout").exists()
    if folder.exists() and not is_ours and any(folder.iterdir()):
        raise ScriptError(
            f"{folder} is not empty.",
            why="it would be replaced, and it is no image.",
            fix="name a new folder",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        made = Path(scratch) / "layout"
        (made / "blobs" / "sha256").mkdir(parents=True)
        manifest = _manifest(image, made)
        tag = image.names[0].rpartition(":")[2]
        _write_json(made / "oci-layout", {"imageLayoutVersion": "1.0.0"})
        _write_json(
            made / "index.json",
            {
                "schemaVersion": 2,
                "mediaType": _INDEX,
                "manifests": [{**manifest.descriptor, "annotations": {_REF_NAME: tag}}],
            },
        )
        if is_ours:
            shutil.rmtree(folder)
        made.rename(folder)
    return manifest.digest


def _manifest(image: Image, folder: Path) -> _Blob:
    layers = [_compressed(layer, folder) for layer in image.layers]
    config = _blob(config_json(image.layers, image.config), _CONFIG, folder)
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": config.descriptor,
        "layers": [layer.descriptor for layer in layers],
        # The same as the configuration's labels, because registries show these.
        "annotations": dict(image.config.labels),
    }
    return _blob(json.dumps(manifest).encode(), _MANIFEST, folder)


def _compressed(layer: Layer, folder: Path) -> _Blob:
    """Write a layer as a blob; memory use does not grow with its size."""
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as out, layer.path.open("rb") as tar:
        # Use one thread: the number of threads would show in the bytes.
        zstandard.ZstdCompressor(level=_LEVEL).copy_stream(tar, out, size=layer.path.stat().st_size)
        path = Path(out.name)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    path.chmod(0o644)
    path.rename(folder / "blobs" / "sha256" / digest)
    size = (folder / "blobs" / "sha256" / digest).stat().st_size
    return _Blob(_LAYER, f"sha256:{digest}", size)


def _blob(content: bytes, media_type: str, folder: Path) -> _Blob:
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs" / "sha256" / digest).write_bytes(content)
    return _Blob(media_type, f"sha256:{digest}", len(content))


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
