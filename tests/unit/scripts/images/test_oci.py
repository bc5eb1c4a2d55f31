"""OCI layouts: what the specification asks for, digests that fit, and the same bytes each time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.images.archive import Image, ImageConfig, layer_from_trees
from rollout_dev.images.oci import write_layout

LABELS = (("org.opencontainers.image.title", "team/worker"),)


def image(folder: Path, text: str = "x = 1\n") -> Image:
    """Make an image of two layers."""
    layers = []
    for name, content in (("base", "#!/bin/sh\n"), ("code", text)):
        tree = folder / name
        tree.mkdir(parents=True)
        (tree / "file").write_text(content)
        layers.append(layer_from_trees({f"/{name}": tree}, folder / f"{name}.tar"))
    config = ImageConfig(env=(("A", "1"),), user="65532:65532", labels=LABELS)
    return Image(("team/worker:0123", "team/worker:local"), tuple(layers), config)


def blob(layout: Path, digest: str) -> bytes:
    data = (layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
    return data


def read(layout: Path, descriptor: dict[str, Any]) -> bytes:
    data = blob(layout, descriptor["digest"])
    assert len(data) == descriptor["size"]
    return data


def test_a_layout_is_complete_and_every_digest_fits(tmp_path: Path) -> None:
    made = image(tmp_path / "image")

    digest = write_layout(made, tmp_path / "layout")

    layout = tmp_path / "layout"
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    [entry] = json.loads((layout / "index.json").read_text())["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "0123"}
    manifest = json.loads(read(layout, entry))
    config = json.loads(read(layout, manifest["config"]))
    assert manifest["annotations"] == config["config"]["Labels"] == dict(LABELS)
    assert config["config"]["User"] == "65532:65532"
    assert config["rootfs"]["diff_ids"] == [layer.diff_id for layer in made.layers]
    for descriptor, layer in zip(manifest["layers"], made.layers, strict=True):
        assert descriptor["mediaType"] == "application/vnd.oci.image.layer.v1.tar+zstd"
        tar = zstandard.ZstdDecompressor().decompressobj().decompress(read(layout, descriptor))
        assert tar == layer.path.read_bytes()
    used = {entry["digest"], manifest["config"]["digest"]}
    used |= {each["digest"] for each in manifest["layers"]}
    assert {f"sha256:{path.name}" for path in (layout / "blobs" / "sha256").iterdir()} == used


def test_the_same_content_is_the_same_digest_and_other_content_another(tmp_path: Path) -> None:
    first = write_layout(image(tmp_path / "a"), tmp_path / "one")
    again = write_layout(image(tmp_path / "b"), tmp_path / "two")
    other = write_layout(image(tmp_path / "c", "x = 2\n"), tmp_path / "three")

    assert first == again != other
    names = [path.relative_to(tmp_path / "one") for path in sorted((tmp_path / "one").rglob("*"))]
    for name in names:
        one, two = tmp_path / "one" / name, tmp_path / "two" / name
        assert one.is_dir() or one.read_bytes() == two.read_bytes()


def test_an_older_layout_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    write_layout(image(tmp_path / "a", "x = 1\n"), tmp_path / "out")
    digest = write_layout(image(tmp_path / "b", "x = 2\n"), tmp_path / "out")
    assert blob(tmp_path / "out", digest)
    assert len(list((tmp_path / "out" / "blobs" / "sha256").iterdir())) == 4

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(ScriptError, match="not empty"):
        write_layout(image(tmp_path / "c"), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"
