"""Build Kubernetes, containerd and the other programs from pinned sources, once per user.

Each group of programs is cached under a digest of everything that decides its bytes: sources, pins
and flags. A cached group is complete: it is built elsewhere and renamed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from rollout_dev.dev_cluster.checkout import SOURCES, cache_folder
from rollout_dev.dev_cluster.errors import Progress, ScriptError
from rollout_dev.dev_cluster.toolchain import find_go


@dataclass(frozen=True, slots=True)
class Folder:
    """Sources in this repository; the go.sum beside them pins what they import."""

    path: Path


@dataclass(frozen=True, slots=True)
class Module:
    """Upstream's own module at one version.

    `digest` pins its content, and so its go.sum, which pins every dependency: the build is exactly
    upstream's, and no proxy can change it.
    """

    path: str
    version: str
    digest: str
    replaced: tuple[tuple[str, str], ...] = ()
    """The files of the module that are built with a changed text."""


@dataclass(frozen=True, slots=True)
class Group:
    """Programs that are built and cached together."""

    name: str
    source: Folder | Module
    programs: tuple[tuple[str, str], ...]
    """Each program's name and its package, relative to the module."""
    variables: tuple[tuple[str, str], ...] = ()
    """String variables the linker sets, such as the version a program reports."""

    @property
    def digest(self) -> str:
        """A hash of everything that may change the programs."""
        content = hashlib.sha256(repr((self.programs, self.flags)).encode())
        match self.source:
            case Folder(path):
                for file in sorted(p for p in path.rglob("*") if p.is_file()):
                    content.update(f"{file.relative_to(path)}\0".encode() + file.read_bytes())
            case Module(path, version, digest, replaced):
                content.update(f"{path}@{version} {digest}".encode())
                content.update(repr(replaced).encode() if replaced else b"")
        return content.hexdigest()[:12]

    @property
    def flags(self) -> tuple[str, ...]:
        """The arguments of `go build`."""
        variables = "".join(f" -X {name}={value}" for name, value in self.variables)
        return ("-trimpath", "-v", "-ldflags", f"-s -w{variables}")

    @property
    def folder(self) -> Path:
        """The folder of the built programs."""
        return cache_folder() / "bin" / f"{self.name}-{self.digest}"


def group(name: str) -> Group:
    """Return the group of that name in `programs.yaml`."""
    row = yaml.safe_load((SOURCES / "programs.yaml").read_text())[name]
    source: Folder | Module = (
        Folder(SOURCES / row["folder"])
        if "folder" in row
        else Module(row["path"], row["version"], row["digest"], _pairs(row, "replaced"))
    )
    return Group(row.get("name", name), source, _pairs(row, "programs"), _pairs(row, "variables"))


def _pairs(row: Mapping[str, Mapping[str, str]], key: str) -> tuple[tuple[str, str], ...]:
    return tuple(row.get(key, {}).items())


KUBE = group("kube")
CONTAINERD = group("containerd")
COREDNS = group("coredns")
RUNTIME = group("runtime")
VERSITYGW = group("versitygw")
PROMETHEUS = group("prometheus")
CLUSTER = (RUNTIME, CONTAINERD, COREDNS, KUBE)


def ensure(group: Group, progress: Progress) -> Path:
    """Return the folder with the group's programs; build them if the cache lacks them."""
    if group.folder.is_dir():
        return group.folder
    with _locked(group.folder):
        if group.folder.is_dir():  # Another checkout built it while this one waited.
            return group.folder
        go = find_go(progress)
        source = _source(go, group.source, progress)
        with tempfile.TemporaryDirectory(dir=group.folder.parent, prefix=".build-") as scratch:
            source = _with_replaced(source, group.source, Path(scratch))
            built = Path(scratch) / "built"
            built.mkdir()
            for number, (program, package) in enumerate(group.programs, 1):
                label = f"{program} ({number} of {len(group.programs)} in {group.name})"
                command = [str(go), "build", *group.flags, "-o", str(built / program), package]
                _build(command, source, label, progress)
            built.rename(group.folder)
    return group.folder


def ensure_cluster(progress: Progress) -> None:
    """Build what the cluster lacks; report the expected duration first, and then the progress."""
    missing = [group for group in CLUSTER if not group.folder.is_dir()]
    if missing:
        names = ", ".join(group.name for group in missing)
        progress.say(
            f"building {names} from source, once for this user: "
            "a quarter of an hour on two cores, up to 30 on a busy machine"
        )
    for number, group in enumerate(missing, 1):
        progress.say(f"{group.name}: {number} of {len(missing)}")
        ensure(group, progress)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a group, so that two checkouts build it once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go_environment() -> dict[str, str]:
    return {
        **os.environ,
        "CGO_ENABLED": "0",  # Static programs need no C compiler.
        "GOFLAGS": "-buildvcs=false -mod=readonly",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _source(go: Path, source: Folder | Module, progress: Progress) -> Path:
    match source:
        case Folder(path):
            return path
        case Module(path, version, digest, _):
            progress.say(f"fetching {path} {version}")
            return _download(go, path, version, digest)


def _with_replaced(folder: Path, source: Folder | Module, scratch: Path) -> Path:
    """Return the sources with the replacements applied; a copy if there are any."""
    if isinstance(source, Folder) or not source.replaced:
        return folder
    copy = scratch / "source"
    shutil.copytree(folder, copy)
    for name, text in source.replaced:
        file = copy / name
        for each in (file.parent, file):  # a module's files are read-only
            each.chmod(0o755)
        file.write_text(text, encoding="utf-8")
    return copy


def _download(go: Path, path: str, version: str, digest: str) -> Path:
    done = subprocess.run(
        [go, "mod", "download", "-json", f"{path}@{version}"],
        check=False,
        capture_output=True,
        text=True,
        env=_go_environment(),
        cwd=cache_folder(),
    )
    try:
        module = json.loads(done.stdout)
        folder, found = str(module["Dir"]), str(module["Sum"])
    except (json.JSONDecodeError, KeyError):
        raise ScriptError(
            f"Cannot fetch the Go module {path} {version}.",
            why=(done.stdout + done.stderr).strip()[-2000:],
            fix="Check that `go mod download` works here (GOPROXY, network), then run it again.",
        ) from None
    if found != digest:
        raise ScriptError(
            f"The Go module {path} {version} does not match its pinned digest.",
            why=f"its digest is {found}, expected {digest}.",
            fix="Do not use it. Check which proxy serves it (`go env GOPROXY`).",
        )
    return Path(folder)


def _build(command: list[str], folder: Path, label: str, progress: Progress) -> None:
    """Run one `go build`, with a progress line every ten seconds."""
    process = subprocess.Popen(
        command, cwd=folder, env=_go_environment(), stderr=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    stderr = process.stderr
    reader = threading.Thread(target=lambda: lines.extend(stderr or ()), daemon=True)
    reader.start()
    progress.say(f"building {label}")
    while reader.is_alive():
        reader.join(10)
        if reader.is_alive():
            progress.tick(f"building {label}: {len(lines)} packages compiled")
    if process.wait() != 0:
        raise ScriptError(
            f"Building {label} failed.",
            why="".join(lines[-20:]).strip(),
            fix="Check for free memory (2 GiB) and disk (5 GiB), then run it again.",
        )
    progress.say(f"built {label}")
