"""What a sandbox sees of this machine: an allow-list without packages, whatever the layout."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from swe_rollout.sandbox.local import machine

pytestmark = pytest.mark.threat(point=3)
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


def make(root: Path, *paths: str) -> Path:
    """Make files, and folders where a path ends with a slash."""
    for path in paths:
        if path.endswith("/"):
            (root / path).mkdir(parents=True, exist_ok=True)
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("x")
    return root


def visible(words: Iterable[str], root: Path) -> set[str]:
    """Play bubblewrap: the files below `root` that its arguments show."""
    seen: dict[Path, bool] = {}
    left = iter(words)
    for kind in left:
        source, target = (next(left), next(left)) if kind != "--tmpfs" else ("", next(left))
        if kind == "--remount-ro":
            continue
        shows = kind == "--ro-bind" and source not in {machine.EMPTY_FOLDER, machine.EMPTY_FILE}
        below = [path for path in seen if path.is_relative_to(target)]
        for path in below:
            del seen[path]
        if shows:
            found = [Path(target), *Path(target).rglob("*")]
            seen |= {path: True for path in found if path.is_file()}
        elif kind == "--symlink":
            seen[Path(target)] = True
    return {str(path.relative_to(root)) for path in seen}


def pairs(words: Iterable[str]) -> list[str]:
    """Give `--remount-ro` two arguments like the others."""
    found = list(words)
    return [each for word in found for each in ((word, "") if word == "--remount-ro" else (word,))]


def test_of_a_folder_of_libraries_only_what_is_known_is_shown_without_packages(
    tmp_path: Path,
) -> None:
    make(
        tmp_path,
        "x86_64-linux-gnu/libc.so.6",
        "x86_64-linux-gnu/perl5/Jinja.pm",
        "x86_64-linux-gnu/nodejs/acorn/index.js",
        "gcc/x86_64-linux-gnu/12/cc1",
        "git-core/git-add",
        "python3/dist-packages/jinja2/__init__.py",
        "python3.11/os.py",
        "python3.11/json/__init__.py",
        "python3.11/dist-packages/yaml/__init__.py",
        "python3.11/ensurepip/__init__.py",
        "python3.11/ensurepip/_bundled/pip-23.whl",
        "python3.11/test/data/example-1.whl",
        "python3.11/junk/jinja2.py",
        "llvm-14/bin/clang",
        "llvm-14/lib/python3/dist-packages/lldb/__init__.py",
        "google-cloud-sdk/lib/third_party/jinja2/__init__.py",
        "node_modules/left-pad/index.js",
    )
    words = machine._selected(tmp_path)
    assert visible(words, tmp_path) == {
        "x86_64-linux-gnu/libc.so.6",
        "gcc/x86_64-linux-gnu/12/cc1",
        "git-core/git-add",
        "python3.11/os.py",
        "python3.11/json/__init__.py",
        "python3.11/ensurepip/__init__.py",
        "llvm-14/bin/clang",
    }


def test_a_folder_full_of_shared_libraries_is_shown_and_its_strange_folders_covered(
    tmp_path: Path,
) -> None:
    libraries = [f"lib{number}.so" for number in range(100)]
    make(
        tmp_path,
        *libraries,
        "gcc/cc1",
        "python3.12/os.py",
        "python3.12/site-packages/dnf/__init__.py",
        "google/third_party/jinja2.py",
    )
    words = machine._selected(tmp_path)
    assert visible(words, tmp_path) == {*libraries, "gcc/cc1", "python3.12/os.py"}


def test_of_an_interpreter_nothing_is_shown_that_was_installed(tmp_path: Path) -> None:
    make(
        tmp_path,
        "bin/pip",
        "bin/jinja",
        f"bin/{VERSION}",
        f"include/{VERSION}/Python.h",
        "lib/libpython3.so",
        "lib/stray-1.0.whl",
        f"lib/{VERSION}/os.py",
        f"lib/{VERSION}/site-packages/jinja2/__init__.py",
        f"lib/{VERSION}/ensurepip/_bundled/pip.whl",
        "lib/python2.7/site-packages/jinja2/__init__.py",
        "lib/node_modules/npm/index.js",
        "pkgs/jinja2-3.1.5/jinja2/__init__.py",
        "envs/other/lib/python3.9/site-packages/jinja2/__init__.py",
        "share/jinja2/x.py",
    )
    (tmp_path / "bin" / "python3").symlink_to(VERSION)
    words = machine._interpreter(tmp_path)
    assert visible(pairs(words), tmp_path) == {
        "bin/python3",
        f"bin/{VERSION}",
        f"include/{VERSION}/Python.h",
        "lib/libpython3.so",
        f"lib/{VERSION}/os.py",
    }


def test_an_interpreter_of_the_system_needs_no_mounts_of_its_own() -> None:
    assert list(machine._interpreter(Path("/usr"))) == []


def test_links_are_not_followed_in_the_search_for_packages(tmp_path: Path) -> None:
    make(tmp_path, "lib/", "elsewhere/site-packages/x.py")
    (tmp_path / "lib" / "loop").symlink_to(tmp_path / "lib")
    (tmp_path / "lib" / "out").symlink_to(tmp_path / "elsewhere")
    assert list(machine.find_packages(tmp_path / "lib")) == []


def test_neither_local_programs_nor_homes_are_shown() -> None:
    prefix = machine.interpreter_prefix()
    shown = [word for word in machine.shown() if word.startswith("/")]
    allowed = ("/usr/", "/bin", "/sbin", "/lib", f"{prefix}")
    assert all(path.startswith(allowed) for path in shown)
    assert not any(path.startswith("/usr/local") for path in shown if prefix != Path("/usr/local"))
