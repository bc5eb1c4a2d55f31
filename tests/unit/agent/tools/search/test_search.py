"""`search` on real files, with the programs of a whole system and with busybox alone."""

# ruff: noqa: ASYNC240 - files of a small test

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busybox import BusyboxSandbox
from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.conftest import EACH, files, said, use

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def see(
    sandbox: Sandbox,
    pattern: str,
    path: str = ".",
    command: str = "search_text",
    *,
    timeout_s: float = 20,
    **arguments: object,
) -> str:
    given = {"command": command, "pattern": pattern, "path": path, **arguments}
    return (await use(sandbox, "search", given, timeout_s=timeout_s)).text


@EACH
async def test_lines_are_shown_with_what_is_around_them_by_file(sandbox: Sandbox) -> None:
    files(
        sandbox,
        {"src/a.py": b"1\n2\nNeedle\n4\n5\n6\n7\n8\nneedle\n", "b.txt": b"needle, needle\n"},
    )

    assert await see(sandbox, "needle", context_lines=1) == (
        "3 matching lines in 2 files\n"
        "b.txt\n     1:needle, needle\n"
        "src/a.py\n     2-2\n     3:Needle\n     4-4\n   ...\n     8-8\n     9:needle"
    )
    assert await see(sandbox, "needle", "src/a.py", case_sensitive=True, context_lines=0) == (
        "1 matching line in 1 file\nsrc/a.py\n     9:needle"
    )


@EACH
@pytest.mark.parametrize(
    ("pattern", "arguments", "lines"),
    [
        ("a.c", {}, [2, 3]),
        ("a.c", {"regex": True}, [1, 2, 3]),
        ("A.C", {"case_sensitive": True}, [3]),
        ("a.c", {"whole_words": True}, [2]),
        (r"^\d{2}\s(x|y)$", {"regex": True}, [4]),
        (r"(?:x|q)$", {"regex": True}, [4]),
        ("[", {}, [5]),
        ("$HOME`id`'\"\\", {}, [6]),
        ("-e", {}, [7]),
        ("é", {"case_sensitive": True}, [8]),
        ("É", {}, [8]),
        ("", {}, "must be one line"),
        ("(", {"regex": True}, "no regular expression"),
        ("a\nb", {}, "must be one line"),
        ("x" * 5000, {}, "over 4096 bytes"),
    ],
)
async def test_a_pattern_is_text_unless_it_is_said_to_be_more(
    sandbox: Sandbox, pattern: str, arguments: dict[str, object], lines: list[int] | str
) -> None:
    files(sandbox, {"f": "abc\n_a.c_ a.c\nA.C_\n12 x\n[\n$HOME`id`'\"\\\n-e\né\n".encode()})

    if "É" in pattern and isinstance(sandbox, BusyboxSandbox):
        pytest.skip("busybox knows the case of ASCII letters alone")
    given = {"command": "search_text", "pattern": pattern, "path": ".", "context_lines": 0}
    seen = (await use(sandbox, "search", {**given, **arguments})).text
    if isinstance(lines, str):
        assert seen.startswith("error: ")
        assert lines in seen
    else:
        assert [int(n) for n in re.findall(r"^ +(\d+):", seen, re.MULTILINE)] == lines


@EACH
async def test_nothing_is_left_out_in_silence(sandbox: Sandbox) -> None:
    """Row WT3: a tree deeper than 5 and larger than 200 files is searched to its last file."""
    files(sandbox, {f"d{n % 9}/a/b/c/d/e/f{n}": b"x\nplanted %d\n" % n for n in range(270)})

    seen = await see(sandbox, "planted", max_results=7)
    assert seen.startswith(
        "270 matching lines in 270 files; the first 7, in 7 files, are shown\nd0/a/b/c/d/e/f0\n"
    )
    assert seen.count("planted") == 7
    few = await see(sandbox, "planted", max_results=1000, context_lines=0)
    assert few.startswith("270 matching lines in 270 files\n")
    assert "bytes omitted" not in few
    assert len(re.findall("planted", few)) == 270


@EACH
async def test_a_file_with_many_matches_is_cut_where_the_number_says(sandbox: Sandbox) -> None:
    files(sandbox, {"a": b"x\n" * 500, "b": b"x\n"})

    seen = await see(sandbox, "x", max_results=3, context_lines=0)
    assert seen == (
        "501 matching lines in 2 files; the first 3, in 1 file, are shown\n"
        "a\n     1:x\n     2:x\n     3:x"
    )


@EACH
async def test_what_is_skipped_and_what_is_not(sandbox: Sandbox) -> None:
    files(
        sandbox,
        {
            **dict.fromkeys((".git/x", "a/node_modules/x", "new\nline:0"), b"needle"),
            **dict.fromkeys((".hidden", "dev/x", "a/proc/sys"), b"needle"),
            "bin": b"needle\0\0",
            "latin": b"na\xefve needle\n",
        },
    )
    Path(sandbox.workdir, "link").symlink_to("latin")
    Path(sandbox.workdir, "loop").symlink_to(".")
    Path(sandbox.workdir, "broken").symlink_to("nothing")

    seen = await see(sandbox, "needle")
    assert ".hidden\n     1:needle" in seen
    assert "\nlatin\n     1:na�ve needle" in seen
    assert "node_modules" not in seen
    assert "\nlink\n" not in seen
    assert seen.startswith(
        "4 matching lines in 4 files\nnote: files with a line end in their name, not searched: 1\n"
    )
    assert (await see(sandbox, "needle", ".git")).startswith("1 matching line in 1 file")


@EACH
async def test_extensions_name_the_files(sandbox: Sandbox) -> None:
    files(sandbox, dict.fromkeys(("a.py", "a.pyc", "b.toml", "c", "d.PY"), b"x"))

    assert (await see(sandbox, "x", file_extensions=["py", ".toml"])).startswith("2 matching lines")
    assert await see(sandbox, "a", command="search_files", file_extensions=["py"]) == "1 file\na.py"


@EACH
async def test_long_lines_are_cut(sandbox: Sandbox) -> None:
    files(sandbox, {"min.js": b"x" * 1_000_000 + b"\nshort x\n"})

    seen = await see(sandbox, "x", context_lines=0)
    assert seen == f"2 matching lines in 1 file\nmin.js\n     1:{'x' * 400} [...]\n     2:short x"


@EACH
async def test_files_and_folders_are_found_by_name(sandbox: Sandbox) -> None:
    names = ("src/test_a.py", "src/deep/test_b.py", "src/Test/x", "a.b", "w[1]*", "w1")
    files(sandbox, dict.fromkeys(names, b""))

    assert await see(sandbox, "test", command="search_files") == (
        "2 files\nsrc/deep/test_b.py\nsrc/test_a.py"
    )
    assert (
        await see(sandbox, "test_?.py", "src/deep", "search_files") == "1 file\nsrc/deep/test_b.py"
    )
    assert await see(sandbox, "src/**/Test_{a,b}.py", command="search_files") == (
        "2 files\nsrc/deep/test_b.py\nsrc/test_a.py"
    )
    assert await see(sandbox, "src/*.py", command="search_files") == "1 file\nsrc/test_a.py"
    assert await see(sandbox, "*{" * 999, command="search_files") == (
        "error: a glob has 1 to 1000 characters, none of them NUL"
    )
    assert await see(sandbox, "{" * 1999, command="search_files") == "0 files"
    assert await see(sandbox, "test", command="search_dir") == "1 folder\nsrc/Test"
    assert await see(sandbox, "test", command="search_dir", case_sensitive=True) == "0 folders"
    assert await see(sandbox, "a.b", command="search_files") == "1 file\na.b"
    assert await see(sandbox, r"^T\w+_(a|b)", command="search_files", regex=True) == (
        "2 files\nsrc/deep/test_b.py\nsrc/test_a.py"
    )
    assert (await see(sandbox, "(", command="search_files", regex=True)).startswith(
        "error: the pattern is no regular expression: "
    )
    assert await see(sandbox, "x", command="search_files", max_results=0) == (
        "error: max_results must be from 1 to 1000"
    )


@EACH
async def test_the_number_of_files_is_told_whatever_is_shown(sandbox: Sandbox) -> None:
    files(sandbox, {f"d/{'0' * 100}{number}": b"" for number in range(3000)})

    seen = await see(sandbox, "0", command="search_files", max_results=2)
    assert seen.startswith("3000 files; the first 2 are shown\n")


@EACH
@pytest.mark.parametrize("path", ["nothing", "", "a\nb", "/dev/null"])
async def test_a_path_that_can_not_be_searched_is_told(sandbox: Sandbox, path: str) -> None:
    if not path:
        assert (await see(sandbox, "x", path)).startswith("0 matching lines")
        return
    assert (await see(sandbox, "x", path)).startswith("error: ")


@EACH
async def test_paths_and_patterns_are_never_shell(sandbox: Sandbox) -> None:
    files(sandbox, dict.fromkeys(("-rf", "$(touch pwned)", "'; touch pwned; '"), b"needle"))

    for path in ("-rf", "$(touch pwned)", "'; touch pwned; '"):
        assert (await see(sandbox, "needle", path)).startswith("1 matching line in 1 file")
    await see(sandbox, "$(touch pwned); `touch pwned` '\"; touch pwned; #", regex=True)
    await see(sandbox, "*", command="search_files")
    assert not Path(sandbox.workdir, "pwned").exists()


@pytest.mark.threat(point=10)
async def test_a_search_that_takes_too_long_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    slow = tmp_path / "bin"
    slow.mkdir()
    for name in ("sh", "grep", "stat", "readlink", "sleep"):
        (slow / name).symlink_to(shutil.which(name) or name)
    (slow / "find").write_text("#!/bin/sh\nsleep 60\n")
    (slow / "find").chmod(0o755)

    for command in ("search_text", "search_files"):
        seen = await see(BusyboxSandbox(sandbox, slow), "x", command=command, timeout_s=0.5)
        assert "note: the search was stopped after 0.5 s: there may be more" in seen


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.text(alphabet="ab.*\\[é :-\t", max_size=8), max_size=8),
    pattern=st.text(alphabet="ab.*\\[é :-\t", min_size=1, max_size=3),
)
async def test_lines_with_a_text_are_those_that_python_finds(
    shared: Sandbox, lines: list[str], pattern: str
) -> None:
    file = Path(shared.workdir, "any")
    file.write_text("\n".join(lines))

    seen = await see(shared, pattern, "any", case_sensitive=True, context_lines=0)
    numbers = [int(n) for n in re.findall(r"^ +(\d+):", seen, re.MULTILINE)]
    assert numbers == [n for n, line in enumerate(lines, 1) if pattern in line]


async def test_r2e_tells_files_or_the_lines_of_one_wt3(sandbox: Sandbox) -> None:
    files(sandbox, {f"d{number}/f.py": b"a.b\n" for number in range(120)})
    files(sandbox, {"x.md": b"aXb\na.b\nA.B\na.b\n"})

    seen = await said(sandbox, "r2e_search", search_term="a.b")
    assert seen.startswith("122 matching lines in 121 files\nd0/f.py (1)\n")
    assert seen.endswith("\nx.md (2)")
    python = await said(sandbox, "r2e_search", search_term="a.b", python_only=True)
    assert python.startswith("120 ")
    assert await said(sandbox, "r2e_search", search_term="a.b", path="x.md") == (
        "2 matching lines in 1 file\nx.md\n     2:a.b\n     4:a.b"
    )
    none = await said(sandbox, "r2e_search", search_term="none", path="x.md")
    assert none == "0 matching lines in 0 files"
    assert (await said(sandbox, "r2e_search", search_term="")).startswith("error: ")


async def test_code_and_files_are_found_l21(sandbox: Sandbox) -> None:
    files(sandbox, {"a.py": b"Needle\n", "a.md": b"needle\n"})

    assert (await said(sandbox, "search_code", query="needle")).startswith("2 matching lines")
    assert await said(sandbox, "search_code", query="needle", file_pattern="*.py") == (
        "1 matching line in 1 file\na.py\n     1:Needle"
    )
    exact = await said(sandbox, "search_code", query="Needle", case_sensitive=True)
    assert exact.startswith("1 ")
    assert await said(sandbox, "search_files", pattern="*.md") == "1 file\na.md"
