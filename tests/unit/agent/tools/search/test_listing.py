"""`Glob` and `LS` on real trees, and what is said about trees that are too large to walk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.conftest import EACH, files, folder_of, said, use

pytestmark = [pytest.mark.asyncio(loop_scope="module"), EACH]

TREE = ("a.py", "src/b.py", "src/deep/er/c.py", "src/d.txt", ".github/w.yml", ".git/e.py", "x y.py")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/*.py", ["a.py", "src/b.py", "src/deep/er/c.py", "x y.py"]),
        ("*.py", ["a.py", "x y.py"]),
        ("src/**", ["src/b.py", "src/d.txt", "src/deep/er/c.py"]),
        ("**/*.{yml,txt}", [".github/w.yml", "src/d.txt"]),
        ("src/?.[!t]*", ["src/b.py"]),
        ("nothing", []),
    ],
)
async def test_files_are_found_by_their_path(
    sandbox: Sandbox, pattern: str, found: list[str]
) -> None:
    files(sandbox, dict.fromkeys(TREE, b""))

    seen = await said(sandbox, "Glob", pattern=pattern)
    assert seen == ("\n".join(found) or f"no file matches {pattern}")


async def test_paths_are_as_the_policy_would_write_them(sandbox: Sandbox) -> None:
    files(sandbox, dict.fromkeys(TREE, b""))
    root = folder_of(sandbox)

    assert await said(sandbox, "Glob", pattern="*.py", path="src") == "src/b.py"
    assert await said(sandbox, "Glob", pattern=f"{root}/src/*.py") == "src/b.py"
    assert await said(sandbox, "Glob", pattern="*.py", path=str(root / "src")) == "src/b.py"
    assert "outside" in await said(sandbox, "Glob", pattern="/etc/*")
    assert "is a file" in await said(sandbox, "Glob", pattern="*", path="a.py")


async def test_what_does_not_fit_is_counted_wt3_wt9(sandbox: Sandbox) -> None:
    files(sandbox, {f"d{n % 7}/name-{n:04}.py": b"" for n in range(2000)})

    seen = (await use(sandbox, "Glob", {"pattern": "**/*.py"}, output_bytes=2000)).text
    *names, note = seen.split("\n")
    assert len(seen) <= 2000
    assert note == f"[more files that match: {2000 - len(names)}; narrow the pattern]"
    whole = (await use(sandbox, "Glob", {"pattern": "**/*.py"}, output_bytes=1 << 20)).text
    assert len(whole.split("\n")) == 2000


async def test_a_folder_is_a_tree_without_hidden_entries_l16(sandbox: Sandbox) -> None:
    files(
        sandbox,
        dict.fromkeys(
            ("src/pkg/x.py", "src/a'b.py", ".git/config", "src/.env", "z", "a/__pycache__/x.pyc"),
            b"",
        ),
    )
    (folder_of(sandbox) / "new\nline").touch()
    (folder_of(sandbox) / "link").symlink_to("src")

    assert await said(sandbox, "LS", path=".") == (
        f"{folder_of(sandbox)}/\n  a/\n  link\n  new?line\n"
        "  src/\n    a'b.py\n    pkg/\n      x.py\n  z"
    )


async def test_ignored_entries_are_left_out_with_what_is_below(sandbox: Sandbox) -> None:
    files(sandbox, dict.fromkeys(("a/b/c", "a/d.log", "e/d.log", "e/f"), b""))

    seen = await said(sandbox, "LS", path=".", ignore=["b/", "*.log"])
    assert seen.split("\n")[1:] == ["  a/", "  e/", "    f"]


async def test_a_large_tree_shows_its_upper_levels_first_wt9(sandbox: Sandbox) -> None:
    files(sandbox, {f"aaa/{n}": b"" for n in range(1500)})
    files(sandbox, {"zzz/deep/er": b""})

    lines = (await use(sandbox, "LS", {"path": "."}, output_bytes=1 << 20)).text.split("\n")
    assert lines[-1] == "[1000 of 1504 entries shown]"
    assert len(lines) == 1002
    assert "  zzz/" in lines
    small = (await use(sandbox, "LS", {"path": "."}, output_bytes=1024)).text
    assert len(small) <= 1024
    assert "  zzz/\n[" in small
    assert small.endswith("of 1504 entries shown]")


async def test_what_is_no_folder_is_a_failure(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b""})

    assert "error: " in await said(sandbox, "LS", path="f")
    assert "does not exist" in await said(sandbox, "LS", path="g")
    (folder_of(sandbox) / "f").unlink()
    assert (await said(sandbox, "LS", path=".")).endswith("[empty, or nothing but hidden entries]")


DEEP = "/".join(letter * 250 for letter in "bcdefghijklmn")


@pytest.fixture
def large(sandbox: Sandbox) -> Iterator[Sandbox]:
    """A sandbox with more bytes of names than are read."""
    files(sandbox, {"a.py": b"needle\n", "b/top.py": b""})
    (folder_of(sandbox) / DEEP).mkdir(parents=True)
    for number in range(1400):
        (folder_of(sandbox) / DEEP / f"{number:04}.txt").touch()
    yield sandbox
    shutil.rmtree(folder_of(sandbox) / DEEP.split("/")[0])


@pytest.mark.threat(point=10)
async def test_a_search_of_a_part_says_so(large: Sandbox) -> None:
    glob = await said(large, "Glob", pattern="*.nothing")
    assert glob == "no file matches *.nothing; the tree is too large to search: name a path"
    listed = await said(large, "Glob", pattern="**/*.txt")
    assert "[files looked at, which are not all: " in listed
    grep = await said(large, "Grep", pattern="absent")
    assert grep.startswith("nothing matches\n[files looked at, ")
    assert "looked at" not in await said(large, "Grep", pattern="absent", path="b")
    tree = await said(large, "LS", path=".")
    assert "\n  a.py\n" in tree
    assert "\n    top.py\n" in tree
    assert tree.endswith("entries shown, and what is below level 3 is not counted]")
