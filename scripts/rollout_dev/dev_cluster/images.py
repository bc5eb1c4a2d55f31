"""Import image archives into containerd, without a registry."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.api import Json, inner, items, text
from rollout_dev.dev_cluster.binaries import CONTAINERD, RUNTIME
from rollout_dev.dev_cluster.components import CONTAINERD_SOCKET, PAUSE_IMAGE
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.images.archive import ImageConfig, layer_from_trees, write_archive


@dataclass(frozen=True, slots=True)
class Containerd:
    """The cluster's containerd, accessed from inside its mount namespace or from outside."""

    prefix: tuple[str, ...] = ()
    """The prefix that makes a command run in the socket's namespace."""

    @classmethod
    def of(cls, node_pid: int) -> Containerd:
        """Access it from outside, through the mount namespace of the cluster's first process."""
        return cls(("nsenter", f"--mount=/proc/{node_pid}/ns/mnt", "--"))

    def ready(self) -> bool:
        """Whether containerd responds."""
        return self._ctr("version").returncode == 0

    def load(self, archive: Path, progress: Progress) -> None:
        """Import the images of a docker-archive, unless all are loaded already."""
        wanted = _images(archive)
        present = self._present()
        if all(present.get(image.name) == image.digest for image in wanted):
            progress.say(f"{archive.name}: already loaded")
            return
        # Over stdin: the archive's path may not exist in the cluster's mount namespace.
        with archive.open("rb") as file:
            done = subprocess.run(
                self._command("images", "import", "-"),
                stdin=file,
                check=False,
                capture_output=True,
                text=True,
            )
        if done.returncode != 0:
            raise ScriptError(f"{archive} cannot be imported.", why=done.stderr.strip())
        progress.say(f"{archive.name}: loaded {', '.join(i.name for i in wanted)}")

    def _present(self) -> dict[str, str]:
        """Return the digest of each image's configuration, by name."""
        listing = self._ctr("images", "list").stdout.splitlines()[1:]
        found = {}
        for line in listing:
            reference, _, digest, *_ = line.split()
            if "@" not in reference:  # names only, not digest references
                manifest: Json = json.loads(self._ctr("content", "get", digest).stdout or "{}")
                found[_short(reference)] = text(inner(manifest, "config", "digest"))
        return found

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*arguments), check=False, capture_output=True, text=True
        )

    def _command(self, *arguments: str) -> list[str]:
        ctr = str(CONTAINERD.folder / "ctr")
        return [*self.prefix, ctr, "--address", CONTAINERD_SOCKET, "-n", "k8s.io", *arguments]


@dataclass(frozen=True, slots=True)
class _Image:
    name: str
    digest: str
    """The digest of the configuration, which names every layer and so identifies the content."""


def _images(archive: Path) -> list[_Image]:
    try:
        with tarfile.open(archive) as tar:
            manifest: Json = json.loads(_member(tar, "manifest.json"))
            return [
                _Image(_short(text(name)), f"sha256:{digest}")
                for image in items(manifest)
                for digest in [
                    hashlib.sha256(_member(tar, text(inner(image, "Config")))).hexdigest()
                ]
                for name in items(inner(image, "RepoTags"))
            ]
    except (OSError, tarfile.TarError, KeyError, json.JSONDecodeError) as error:
        raise ScriptError(
            f"{archive} is not a docker-archive.",
            why=str(error),
            fix="Make one with scripts/build-images, or with `docker save -o FILE IMAGE`.",
        ) from None


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    return b"" if file is None else file.read()


def _short(reference: str) -> str:
    """Remove the parts that containerd adds to a short image name."""
    first, _, rest = reference.partition("/")
    is_host = "." in first or ":" in first
    return rest.removeprefix("library/") if rest and is_host else reference


def write_pause_image(out: Path) -> None:
    """Write the docker-archive."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        program = root / "pause"
        program.write_bytes((RUNTIME.folder / "pause").read_bytes())
        program.chmod(0o755)
        layer = layer_from_trees({"/": root}, Path(scratch) / "layer.tar")
        write_archive(PAUSE_IMAGE, [layer], ImageConfig(cmd=("/pause",)), out)
