"""The walk and the restoration under the sanitizers: hostile trees, and deltas that are none.

The seeds are fixed. `FUZZ_DELTAS` says how many deltas.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

_SOURCES = Path(__file__).parents[4] / "swe_rollout" / "sandbox" / "supervisor"
_DRIVER = Path(__file__).with_name("snapshot_driver.c")
_DELTAS = 1500
_SANITIZED = {
    "ASAN_OPTIONS": "exitcode=99:detect_leaks=0:abort_on_error=0",
    "UBSAN_OPTIONS": "exitcode=99:halt_on_error=1",
    "PATH": os.environ["PATH"],
}
_HOSTILE = r"""
cd "$TREE"; rm -r old; mkdir -p d/e; echo x >d/e/f; ln d/e/f d/g; ln -s /etc/passwd d/l; mkfifo p
printf y >$'new\nline\xff'; head -c 3000000 /dev/zero >large; truncate -s 1T sparse; chmod 600 kept
n=0; while [ $n -lt $DEPTH ]; do mkdir "$(printf %0255d $n)" && cd "$(printf %0255d $n)" || exit
n=$((n + 1)); done; true
"""
_KINDS = b"RCDLUFSPHGE"
_NAMES = (
    b"a",
    b"d",
    b"link",
    b"..",
    b".",
    b"",
    b"a/b",
    b"x" * 255,
    b".swe-rollout.restored",
    b"n\0",
)


def _built(folder: Path, *options: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    program = folder / "driver"
    names = ("tree", "moments", "snapshot", "restore", "bytes")
    sources = [str(_SOURCES / f"{name}.c") for name in names]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-fsanitize=address,undefined", *options]
    command = [compiler, *flags, f"-I{_SOURCES}", "-o", str(program), str(_DRIVER), *sources]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find -lasan" in built.stderr or "libasan" in built.stderr:
        pytest.skip("needs the sanitizers of the C compiler")
    assert built.returncode == 0, built.stderr
    return program


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(tmp_path_factory.mktemp("driver"))


@pytest.mark.parametrize("nested", [False, True])
def test_too_many_files_are_refused(tmp_path: Path, *, nested: bool) -> None:
    driver = _built(tmp_path, "-DMOST_FILES=50")
    (tree := tmp_path / "tree").mkdir()
    make = f"cd {tree}; for n in $(seq 100); do {'mkdir $n; cd $n' if nested else ': >$n'}; done"
    done = subprocess.run(
        [driver, "walk", tree, make], env=_SANITIZED, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (errno.EFBIG, b"it has too many files")


def _walked(driver: Path, folder: Path, depth: int) -> subprocess.CompletedProcess[bytes]:
    """Return the delta of a tree with all that files can be, and its report."""
    tree, script = folder / "walked", folder / "hostile.sh"
    (tree / "old" / "e").mkdir(parents=True)
    (tree / "kept").write_text("kept")
    script.write_text(_HOSTILE)
    done = subprocess.run(
        [driver, "walk", tree, f"bash {script}"],
        env={**_SANITIZED, "TREE": str(tree), "DEPTH": str(depth)},
        capture_output=True,
        check=False,
    )
    subprocess.run(["rm", "-rf", tree], check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_a_hostile_tree_is_walked_and_what_is_left_out_is_said(
    driver: Path, tmp_path: Path
) -> None:
    done = _walked(driver, tmp_path, 300)
    assert struct.unpack_from("<QQ", done.stderr)[1] == len(("old", "old/e"))
    assert b"large: it is too large" in done.stderr
    assert b": it is too deep" in done.stderr
    assert done.stdout.startswith(b"R\x04\0tree")
    assert done.stdout.endswith(b"E")


class _Fuzzer:
    """Deltas that are nearly valid."""

    def __init__(self, seed: int, real: bytes) -> None:
        self.chance = random.Random(seed)
        self._real = real

    def delta(self) -> bytes:
        match self.chance.randrange(4):
            case 0:
                return self._cut()
            case 1:
                return self._flipped()
            case _:
                return self._made()

    def _cut(self) -> bytes:
        return self._real[: self.chance.randrange(len(self._real))]

    def _flipped(self) -> bytes:
        data = bytearray(self._real)
        for _ in range(self.chance.choice((1, 2, 8))):
            data[self.chance.randrange(min(len(data), 4000))] = self.chance.randrange(256)
        return bytes(data)

    def _made(self) -> bytes:
        records = [self._record() for _ in range(self.chance.randrange(12))]
        start = b"" if self.chance.random() < 0.05 else b"R" + self._name(b"tree")
        return start + b"".join(records) + self.chance.choice((b"E", b"E", b"EE", b""))

    def _record(self) -> bytes:
        kind = bytes([self.chance.choice(_KINDS[1:-1])])
        match kind:
            case b"U":
                rest = b""
            case b"L":
                names = [self._name() for _ in range(self.chance.randrange(4))]
                count = self.chance.choice((len(names), len(names), 0xFFFFFFFF, 1 << 31))
                rest = self._meta() + struct.pack("<I", count) + b"".join(names)
            case b"F":
                rest = self._name() + self._meta() + self._content()
            case b"S":
                target = self._name(self.chance.choice((b"/etc", b"..", b"", b"x" * 4095)))
                rest = self._name() + self._meta() + target
            case b"P":
                rest = self._name() + self._meta()
            case b"H":
                path = self.chance.choice(
                    (b"a", b"link/secret", b"../outside/secret", b"d//a", b"")
                )
                rest = self._name() + struct.pack("<I", len(path)) + path
            case _:
                rest = self._name()
        return kind + rest

    def _name(self, name: bytes | None = None) -> bytes:
        name = self.chance.choice(_NAMES[:3] * 5 + _NAMES) if name is None else name
        length = len(name) if self.chance.random() < 0.98 else self.chance.randrange(1 << 16)
        return struct.pack("<H", length) + name

    def _meta(self) -> bytes:
        mode = self.chance.choice((0o644, 0o755, 0, 0o7777, 1 << 31))
        seconds = self.chance.choice((0, 10**9, 1 << 40, (1 << 64) - 1, 1 << 63))
        part = self.chance.choice((0, 0, 0, 10**9))
        return struct.pack("<IIIIQ", mode, os.getuid(), os.getgid(), part, seconds)

    def _content(self) -> bytes:
        size = self.chance.choice((0, 5, 1 << 40, (1 << 64) - 1))
        offset = self.chance.choice((0, 3, size, (1 << 64) - 1))
        length = self.chance.choice((5, 2, 0, (1 << 32) - 1))
        last = self.chance.choice((0, 0, 1, 2))
        return struct.pack("<QQI", size, offset, length) + b"bytes" + struct.pack("<QI", last, 0)


def _state(folder: Path) -> list[tuple[str, int, int, bytes]]:
    found = []
    for path in sorted(folder.rglob("*")):
        info = path.stat()
        data = path.read_bytes() if path.is_file() else b""
        found.append((path.name, info.st_mode, info.st_mtime_ns, data))
    return found


def test_no_delta_crashes_the_restoration_or_leaves_its_tree(driver: Path, tmp_path: Path) -> None:
    delta = _walked(driver, tmp_path, 3).stdout
    tree, outside = tmp_path / "restored", tmp_path / "outside"
    tree.mkdir()
    (outside / "folder").mkdir(parents=True)
    (outside / "secret").write_text("secret")
    (tree / "link").symlink_to("../outside")
    (tree / "old").mkdir()
    (tree / "kept").write_text("kept")
    before = _state(outside)
    fuzzer = _Fuzzer(1, delta)
    count = int(os.environ.get("FUZZ_DELTAS", _DELTAS))
    deltas = [delta, *(fuzzer.delta() for _ in range(count))]
    done = subprocess.run(
        [driver, "restore", tree],
        input=b"".join(struct.pack("<I", len(each)) + each for each in deltas),
        env=_SANITIZED,
        capture_output=True,
        check=False,
    )
    codes = done.stdout.split()
    assert done.returncode == 0, (deltas[len(codes) - 1], done.stderr[-3000:])
    assert len(codes) == count + 1
    assert codes[0] == b"0"
    seen = Counter(codes)
    assert seen[b"0"] > count / 100, "the deltas are not near enough to valid ones"
    assert len(seen) > 3
    assert _state(outside) == before
