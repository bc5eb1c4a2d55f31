"""Build the programs for sandboxes with zig's C compiler, the same bytes on every machine.

`scripts/build-supervisor` runs this; `--check` compares with the programs in the tree.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Final

from swe_rollout.sandbox.local.images import cache_dir
from swe_rollout.sandbox.session.bootstrap import MACHINES

_ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = _ROOT / "swe_rollout" / "sandbox" / "supervisor"
PROGRAMS: Final = (SOURCES, SOURCES.with_name("listener"))
"""The folders of the programs, which are called like them."""
_LOCK: Final = _ROOT / "requirements" / "zig.txt"
_FLAGS: Final = (
    *("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-static", "-s", "-Wall", "-Wextra", "-Werror"),
    # The sanitizers that zig adds would double the size.
    *("-fno-sanitize=all", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare with the tree")
    options = parser.parse_args()
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        for program, machine in product(PROGRAMS, MACHINES):
            built = build(machine, Path(folder), program)
            path = program / f"{program.name}.{machine}"
            if path.exists() and path.read_bytes() == built:
                continue
            if options.check:
                stale.append(path.name)
            else:
                path.write_bytes(built)
                print(f"{path.relative_to(_ROOT)}: {len(built)} bytes")
    if stale:
        print(f"stale: {', '.join(stale)}; run scripts/build-supervisor", file=sys.stderr)
    return bool(stale)


def build(machine: str, folder: Path, program: Path = SOURCES) -> bytes:
    """Compile a program for a machine and return it."""
    target = folder / machine
    sources = sorted(path.name for path in program.glob("*.c"))
    zig = ["-m", "ziglang", "cc", "-target", f"{machine}-linux-musl", *_FLAGS]
    subprocess.run(
        [sys.executable, *zig, "-o", str(target), *sources],
        check=True,
        cwd=program,
        env={
            "PYTHONPATH": str(_compiler()),
            "ZIG_GLOBAL_CACHE_DIR": str(cache_dir() / "zig-cache"),
            "PATH": "/usr/bin:/bin",
        },
    )
    return target.read_bytes()


def _compiler() -> Path:
    """Return the locked compiler's folder, installing it on first use."""
    version = _LOCK.read_text("utf-8").partition("==")[2].split()[0]
    folder = cache_dir() / f"zig-{version}"
    if not (folder / "ziglang").exists():
        uv = str(_ROOT / ".uv" / "bin" / "uv")
        install = [uv, "pip", "install", "--quiet", "--require-hashes", "--python", sys.executable]
        subprocess.run([*install, "--target", str(folder), "-r", str(_LOCK)], check=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
