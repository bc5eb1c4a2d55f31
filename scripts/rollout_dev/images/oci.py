"""Write images as OCI layouts, whose digest is the one that a registry will have.

`skopeo copy oci:FOLDER docker://…` and `crane push FOLDER …` send the layout as it is. Layers are
compressed by the locked zstandard, so the same image is the same digest on every machine.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zstandard

from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.images.archive import Image, Layer, config_json

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
        # The same as the labels of the configuration: registries show these.
        "annotations": dict(image.config.labels),
    }
    return _blob(json.dumps(manifest).encode(), _MANIFEST, folder)


def _compressed(layer: Layer, folder: Path) -> _Blob:
    """Write a layer as a blob; memory use does not grow with its size."""
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as out, layer.path.open("rb") as tar:
        # One thread: the number of threads would be seen in the bytes.
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
