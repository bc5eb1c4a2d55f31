"""Images of one static program over a base; shared steps of all images over a base."""

from __future__ import annotations

import asyncio
import csv
import fnmatch
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rollout_dev.dev_cluster import binaries
from rollout_dev.dev_cluster.checkout import Checkout, cache_folder
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.images import rootfs
from rollout_dev.images.archive import (
    Image,
    ImageConfig,
    Layer,
    layer_from_trees,
    write_archive,
)
from rollout_dev.images.recipe import Application, Python, project
from swe_rollout.datasets import release_pairs
from swe_rollout.sandbox.local.images import cache_dir, image_folder

_PROGRAMS = {"versitygw": binaries.VERSITYGW}
_KEPT = 2
"""Archives of one image to keep in the cache: the newest two."""


def image(one: Application, program: str, progress: Progress) -> Image:
    """Build the layers of an image with this program in `/usr/local/bin`."""
    group = _PROGRAMS.get(program)
    if group is None:
        raise ScriptError(f"{one.name}: no such program: {program}", fix=", ".join(_PROGRAMS))
    folder = binaries.ensure(group, progress)
    layer = rootfs.cached(
        f"{one.name}-{program}",
        group.digest,
        build=lambda out: _program_layer(folder / program, out),
    )
    return assembled(one, [rootfs.layer(one.base, progress), layer])


def assembled(one: Application, layers: Sequence[Layer]) -> Image:
    """Return the image of these layers, tagged by its content."""
    config = ImageConfig(
        env=one.environment,
        workdir=one.workdir,
        cmd=one.cmd,
        user=one.user,
        labels=one.labels,
    )
    content = repr((config, [layer.diff_id for layer in layers]))
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return Image((f"{one.image}:{digest}", f"{one.image}:local"), tuple(layers), config)


def archive(name: str, made: Image, progress: Progress) -> Path:
    """Write the docker-archive of an image, unless the cache has it; remove older ones."""
    digest = made.names[0].rpartition(":")[2]
    path = cache_folder() / "images" / f"{name}-{digest}.tar"
    if path.exists():
        progress.say(f"{made.names[0]}: built already")
    else:
        write_archive(made.names, made.layers, made.config, path)
        progress.say(f"{made.names[0]}: {path.stat().st_size >> 20} MiB")
    remove_older(path, f"{name}-{'?' * len(digest)}.tar")
    return path


def remove_older(current: Path, pattern: str) -> None:
    """Remove the files that `current` replaces; each change of the code leaves one."""
    current.touch()  # It may be old, but it is the newest in use.
    found = sorted(current.parent.glob(pattern), key=lambda path: path.stat().st_mtime)
    for path in found[:-_KEPT]:
        path.unlink(missing_ok=True)


def _program_layer(program: Path, out: Path) -> Layer:
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        root = Path(scratch)
        shutil.copyfile(program, root / program.name)
        (root / program.name).chmod(0o755)
        # Any user may run the server, with or without a mounted volume for its data.
        return layer_from_trees({"/usr/local/bin": root}, out)


_FORMAT = 2
"""Increment this when the builder's output for the same input changes."""
PACKAGES = "/usr/local/lib/python{python}/dist-packages"
"""Debian's Python looks here for packages from elsewhere."""
COMMAND = """\
#!/usr/bin/python3
from swe_rollout.cli.main import main

main()
"""


def python_image(one: Application, source: Python, progress: Progress) -> Image:
    """Build the layers of the image, or take them from the cache."""
    layers = [
        rootfs.layer(one.base, progress),
        _dependencies(one.name, source, progress),
        _datasets(one.name, dict(one.environment)["XDG_CACHE_HOME"], progress),
        _code(one.name, source, progress),
    ]
    return assembled(one, layers)


def _dependencies(name: str, source: Python, progress: Progress) -> Layer:
    locked = hashlib.sha256(source.requirements.read_bytes()).hexdigest()
    key = (_FORMAT, locked, source.python, source.left_out, source.not_compiled, _bytecode(source))

    def build(out: Path) -> Layer:
        progress.say(f"installing {source.requirements.name} for the {name} image")
        with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
            site = Path(scratch) / "site"
            _install(source, site)
            _leave_out(site, source.left_out)
            _compile(source, site)
            return layer_from_trees({PACKAGES.format(python=source.python): site}, out)

    layer = rootfs.cached(f"{name}-dependencies", _digest(*key), build=build)
    remove_older(layer.path, f"{name}-dependencies-*.layer.tar")
    return layer


def _install(source: Python, site: Path) -> None:
    uv = Checkout.here().root / ".uv" / "bin" / "uv"
    done = subprocess.run(
        [
            *(str(uv) if uv.exists() else "uv", "pip", "install", "--quiet", "--target", str(site)),
            *("--python-version", source.python),
            *("--python-platform", f"{platform.machine()}-manylinux_2_28"),
            *("--only-binary", ":all:", "--no-deps", "--require-hashes"),
            *("--requirement", str(source.requirements)),
        ],
        check=False,
        stdout=sys.stderr,
    )
    if done.returncode != 0:
        raise ScriptError(
            f"The packages of {source.requirements.name} could not be installed.",
            why="uv's own message is above.",
            fix="Is the package index reachable? Then run it again.",
        )


def _leave_out(site: Path, globs: tuple[str, ...]) -> None:
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if path.is_file() and any(fnmatch.fnmatch(name, glob) for glob in globs):
            path.unlink()
    for record in sorted(site.glob("*.dist-info/RECORD")):
        _forget_missing(record, site)


def _forget_missing(record: Path, site: Path) -> None:
    """Drop the rows of files that were left out.

    The rows of programs in bin/ have the hash of a file that names this machine's Python.
    """
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    names = (row[0] for row in csv.reader(lines))
    kept = [line for line, name in zip(lines, names, strict=True) if (site / name).exists()]
    record.write_text("".join(kept), encoding="utf-8")


def _datasets(name: str, cache: str, progress: Progress) -> Layer:
    """Pack the files with which a worker without network loads release pairs."""
    instances = asyncio.run(release_pairs.load(on_progress=progress.say))
    files = sorted((cache_dir() / "release-pairs").glob("*.json"))
    files += [image_folder(instance.image) / "image.json" for instance in instances]
    content = [(str(path.relative_to(cache_dir())), path.read_bytes()) for path in files]

    def build(out: Path) -> Layer:
        with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
            for relative, data in content:
                path = Path(scratch) / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            return layer_from_trees({f"{cache}/swe-rollout": Path(scratch)}, out)

    return rootfs.cached(f"{name}-datasets", _digest(_FORMAT, cache, content), build=build)


def _code(name: str, source: Python, progress: Progress) -> Layer:
    files = [
        (package, path.relative_to(package))
        for package in source.packages
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    content = [
        (package.name, str(path), hashlib.sha256((package / path).read_bytes()).hexdigest())
        for package, path in files
    ]
    described = metadata()
    key = _digest(_FORMAT, content, described, COMMAND, source.python, _bytecode(source))

    def build(out: Path) -> Layer:
        progress.say(f"packing {len(files)} files of the package")
        with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
            site, commands = Path(scratch) / "site", Path(scratch) / "bin"
            for package, path in files:
                (site / package.name / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(package / path, site / package.name / path)
            distribution = site / "swe_rollout.dist-info"
            distribution.mkdir()
            (distribution / "METADATA").write_text(described)
            _compile(source, site)
            commands.mkdir()
            (commands / "swe-rollout").write_text(COMMAND)
            (commands / "swe-rollout").chmod(0o755)
            trees = {
                PACKAGES.format(python=source.python): site,
                "/usr/local/bin": commands,
            }
            return layer_from_trees(trees, out)

    layer = rootfs.cached(f"{name}-code", key, build=build)
    remove_older(layer.path, f"{name}-code-*.layer.tar")
    return layer


def metadata() -> str:
    """Return what `importlib.metadata.version` reads: records name their version."""
    return f"Metadata-Version: 2.1\nName: swe-rollout\nVersion: {project().version}\n"


def _bytecode(source: Python) -> bool:
    """Return whether bytecode can be made here: another version's is never read."""
    return f"{sys.version_info.major}.{sys.version_info.minor}" == source.python


def _compile(source: Python, site: Path) -> None:
    """Compile the sources: a container cannot write bytecode, and starts in a third of the time.

    The hashes are unchecked: an image's files all have the same time, and never change.
    """
    if not _bytecode(source):
        return
    command = [
        *(sys.executable, "-m", "compileall", "-q", "-j", "0"),
        *("--invalidation-mode", "unchecked-hash", "-x", source.not_compiled),
        *("-s", str(site), "-p", PACKAGES.format(python=source.python), str(site)),
    ]
    # Some packages contain templates that are not valid Python; those are not compiled.
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _digest(*content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]
