"""Images without a daemon: the same content gives the same bytes, as an archive and as a layout.

That containerd's importer reads the archive is in tests/cluster.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.images.archive import (
    Image,
    ImageConfig,
    layer_from_trees,
    write_archive,
    write_layout,
)
from swe_rollout.errors import UsageError

LABELS = (("org.opencontainers.image.title", "team/worker"),)
CONFIG = ImageConfig(
    env=(("LANG", "C.UTF-8"),),
    workdir="/testbed",
    cmd=("sleep", "1"),
    user="65532:65532",
    labels=LABELS,
)


def make_tree(root: Path) -> Path:
    (root / "empty").mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "pkg").mkdir()
    (root / "pkg" / "mod.py").write_text("x = 1\n")
    (root / "pkg" / "größe-日本 with space.txt").write_text("unicode")
    (root / "pkg" / os.fsdecode(b"caf\xe9")).touch()
    (root / "pkg" / ("n" * 180)).write_text("long")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o700)
    (root / "link").symlink_to("./pkg/mod.py")
    (root / "dangling").symlink_to("/nowhere/at all")
    return root


def image(folder: Path, text: str = "x = 1\n") -> Image:
    """Make an image of two layers."""
    layers = []
    for name, content in (("base", "#!/bin/sh\n"), ("code", text)):
        tree = folder / name
        tree.mkdir(parents=True)
        (tree / "file").write_text(content)
        layers.append(layer_from_trees({f"/{name}": tree}, folder / f"{name}.tar"))
    return Image(("team/worker:0123", "team/worker:local"), tuple(layers), CONFIG)


def test_times_modes_owners_and_order_do_not_matter_and_content_does(tmp_path: Path) -> None:
    first = make_tree(tmp_path / "first")
    second = tmp_path / "second"
    shutil.copytree(first, second, symlinks=True)
    (second / "run.sh").chmod(0o755)
    (second / "pkg").chmod(0o775)
    (second / "pkg" / "mod.py").chmod(0o664)
    os.utime(second / "pkg" / "mod.py", (1, 1))
    os.link(second / "run.sh", second / "zz")
    shutil.copy(first / "run.sh", first / "zz")

    one = layer_from_trees({"/t": first}, tmp_path / "one.tar")
    two = layer_from_trees({"/t": second}, tmp_path / "two.tar")
    assert one.diff_id == two.diff_id
    assert one.path.read_bytes() == two.path.read_bytes()

    (second / "pkg" / "mod.py").write_text("x = 2\n")
    assert layer_from_trees({"/t": second}, tmp_path / "two.tar").diff_id != one.diff_id


def test_an_archive_names_its_config_and_layers_by_digest(tmp_path: Path) -> None:
    made = image(tmp_path)
    for out in ("one.tar", "two.tar", "two.tar"):  # over an existing file, too
        digest = write_archive("team/task:1", made.layers, CONFIG, tmp_path / out)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()

    with tarfile.open(tmp_path / "one.tar") as tar:

        def member(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None
            return file.read()

        manifest = json.loads(member("manifest.json"))[0]
        described = member(manifest["Config"])
        layers = [hashlib.sha256(member(name)).hexdigest() for name in manifest["Layers"]]
    assert manifest["RepoTags"] == ["team/task:1"]
    assert digest == f"sha256:{hashlib.sha256(described).hexdigest()}"
    value = json.loads(described)
    assert value["rootfs"]["diff_ids"] == [layer.diff_id for layer in made.layers]
    assert value["rootfs"]["diff_ids"] == [f"sha256:{layer}" for layer in layers]
    assert value["config"]["WorkingDir"] == "/testbed"
    assert value["config"]["Cmd"] == ["sleep", "1"]
    assert "LANG=C.UTF-8" in value["config"]["Env"]
    assert any(entry.startswith("PATH=/") for entry in value["config"]["Env"])


def test_what_is_no_file_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    os.mkfifo(tmp_path / "tree" / "pipe")

    with pytest.raises(UsageError, match="pipe"):
        layer_from_trees({"/t": tmp_path / "tree"}, tmp_path / "layer.tar")
    with pytest.raises(UsageError, match="not a folder"):
        layer_from_trees({"/t": tmp_path / "nowhere"}, tmp_path / "layer.tar")

    assert [path.name for path in tmp_path.iterdir()] == ["tree"]


def read(layout: Path, descriptor: dict[str, Any]) -> bytes:
    digest = descriptor["digest"].removeprefix("sha256:")
    data: bytes = (layout / "blobs" / "sha256" / digest).read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (digest, descriptor["size"])
    return data


def test_a_layout_is_complete_and_every_digest_fits(tmp_path: Path) -> None:
    made, layout = image(tmp_path / "image"), tmp_path / "layout"

    digest = write_layout(made, layout)

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
    assert len(list((layout / "blobs" / "sha256").iterdir())) == 4


def test_the_same_content_is_the_same_layout_and_it_replaces_nothing_else(tmp_path: Path) -> None:
    first = write_layout(image(tmp_path / "a"), tmp_path / "one")
    assert write_layout(image(tmp_path / "b"), tmp_path / "two") == first
    assert write_layout(image(tmp_path / "c", "x = 2\n"), tmp_path / "two") != first
    assert len(list((tmp_path / "two" / "blobs" / "sha256").iterdir())) == 4

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(ScriptError, match="not empty"):
        write_layout(image(tmp_path / "d"), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"
