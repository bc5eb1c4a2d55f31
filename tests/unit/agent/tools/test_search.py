"""`search` on real files, with the programs of a whole system and with busybox alone."""

# ruff: noqa: ASYNC240 - files of a small test

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import busybox
from busybox import BusyboxSandbox
from swe_rollout.agent.tools import load_tool
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.sandbox.base import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")
SEARCH = load_tool("search")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    folder = tmp_path_factory.mktemp("busybox") / "bin"
    return busybox.install(folder) if busybox.PROGRAM else None


@pytest.fixture(params=["system", "busybox"])
def box(sandbox: Sandbox, programs: Path | None, request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "system":
        return sandbox
    if programs is None:
        pytest.skip("needs busybox")
    return BusyboxSandbox(sandbox, programs)


def write(sandbox: Sandbox, **files: str | bytes) -> None:
    for name, data in files.items():
        file = Path(sandbox.workdir, name.replace("__", "/").replace("_DOT_", "."))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)


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
    assert SEARCH.spec.problems(given) == []
    seen = await SEARCH.run(given, sandbox, ToolContext(timeout_s, 16384))
    return seen.text


async def test_lines_are_shown_with_what_is_around_them_by_file(box: Sandbox) -> None:
    write(box, src__a_DOT_py="1\n2\nNeedle\n4\n5\n6\n7\n8\nneedle\n", b_DOT_txt="needle, needle\n")

    assert await see(box, "needle", context_lines=1) == (
        "3 matching lines in 2 files\n"
        "b.txt\n     1:needle, needle\n"
        "src/a.py\n     2-2\n     3:Needle\n     4-4\n   ...\n     8-8\n     9:needle"
    )
    assert await see(box, "needle", "src/a.py", case_sensitive=True, context_lines=0) == (
        "1 matching line in 1 file\nsrc/a.py\n     9:needle"
    )


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
    box: Sandbox, pattern: str, arguments: dict[str, object], lines: list[int] | str
) -> None:
    write(box, f="abc\n_a.c_ a.c\nA.C_\n12 x\n[\n$HOME`id`'\"\\\n-e\né\n")

    if "É" in pattern and isinstance(box, BusyboxSandbox):
        pytest.skip("busybox knows the case of ASCII letters alone")
    given = {"command": "search_text", "pattern": pattern, "path": ".", "context_lines": 0}
    seen = (await SEARCH.run({**given, **arguments}, box, ToolContext(20, 16384))).text
    if isinstance(lines, str):
        assert seen.startswith("error: ")
        assert lines in seen
    else:
        assert [int(n) for n in re.findall(r"^ +(\d+):", seen, re.MULTILINE)] == lines


async def test_nothing_is_left_out_in_silence(box: Sandbox) -> None:
    """Row WT3: a tree deeper than 5 and larger than 200 files is searched to its last file."""
    for number in range(270):
        write(box, **{f"d{number % 9}__a__b__c__d__e__f{number}": f"x\nplanted {number}\n"})

    seen = await see(box, "planted", max_results=7)
    assert seen.startswith(
        "270 matching lines in 270 files; the first 7, in 7 files, are shown\nd0/a/b/c/d/e/f0\n"
    )
    assert seen.count("planted") == 7
    few = await see(box, "planted", max_results=1000, context_lines=0)
    assert few.startswith("270 matching lines in 270 files\n")
    assert "bytes omitted" not in few
    assert len(re.findall("planted", few)) == 270


async def test_a_file_with_many_matches_is_cut_where_the_number_says(box: Sandbox) -> None:
    write(box, a="x\n" * 500, b="x\n")

    seen = await see(box, "x", max_results=3, context_lines=0)
    assert seen == (
        "501 matching lines in 2 files; the first 3, in 1 file, are shown\n"
        "a\n     1:x\n     2:x\n     3:x"
    )


async def test_what_is_skipped_and_what_is_not(box: Sandbox) -> None:
    write(
        box,
        _DOT_git__x="needle",
        a__node_modules__x="needle",
        _DOT_hidden="needle",
        bin=b"needle\0\0",
        latin=b"na\xefve needle\n",
    )
    Path(box.workdir, "link").symlink_to("latin")
    Path(box.workdir, "loop").symlink_to(".")
    Path(box.workdir, "broken").symlink_to("nothing")
    shutil.copy(Path(box.workdir, "latin"), Path(box.workdir, "new\nline:0"))

    seen = await see(box, "needle")
    assert ".hidden\n     1:needle" in seen
    assert "\nlatin\n     1:na�ve needle" in seen
    assert "node_modules" not in seen
    assert "\nlink\n" not in seen
    # Files that are binary, or have a newline in their path, are counted where grep can tell them.
    assert re.match(r"[234] matching lines in [234] files\n", seen)
    assert (await see(box, "needle", ".git")).startswith("1 matching line in 1 file")


async def test_extensions_name_the_files(box: Sandbox) -> None:
    write(box, a_DOT_py="x", a_DOT_pyc="x", b_DOT_toml="x", c="x", d_DOT_PY="x")

    assert (await see(box, "x", file_extensions=["py", ".toml"])).startswith("2 matching lines")
    assert await see(box, "a", command="search_files", file_extensions=["py"]) == "1 file\na.py"


async def test_long_lines_are_cut(box: Sandbox) -> None:
    write(box, min_DOT_js="x" * 1_000_000 + "\nshort x\n")

    seen = await see(box, "x", context_lines=0)
    assert seen == f"2 matching lines in 1 file\nmin.js\n     1:{'x' * 400} [...]\n     2:short x"


async def test_files_and_folders_are_found_by_name(box: Sandbox) -> None:
    write(box, src__test_a_DOT_py="", src__deep__test_b_DOT_py="", src__Test__x="", a_DOT_b="")
    write(box, **{"w[1]*": "", "w1": ""})

    assert await see(box, "test", command="search_files") == (
        "2 files\nsrc/deep/test_b.py\nsrc/test_a.py"
    )
    assert await see(box, "test_?.py", "src/deep", "search_files") == "1 file\nsrc/deep/test_b.py"
    assert await see(box, "src/**/test_*.py", command="search_files") == (
        "1 file\nsrc/deep/test_b.py"
    )
    assert await see(box, "test", command="search_dir") == "1 folder\nsrc/Test"
    assert await see(box, "test", command="search_dir", case_sensitive=True) == "0 folders"
    assert await see(box, "a.b", command="search_files") == "1 file\na.b"
    assert await see(box, r"^T\w+_(a|b)", command="search_files", regex=True) == (
        "2 files\nsrc/deep/test_b.py\nsrc/test_a.py"
    )
    assert (await see(box, "(", command="search_files", regex=True)).startswith(
        "error: the pattern is no regular expression: "
    )
    assert await see(box, "x", command="search_files", max_results=0) == (
        "error: max_results must be from 1 to 1000"
    )


async def test_the_number_of_files_is_told_whatever_is_shown(box: Sandbox) -> None:
    write(box, **{f"d__{'0' * 100}{number}": "" for number in range(3000)})

    seen = await see(box, "0", command="search_files", max_results=2)
    assert seen.startswith("3000 files; the first 2 are shown\n")


@pytest.mark.parametrize("path", ["nothing", "", "a\nb", "/dev/null"])
async def test_a_path_that_can_not_be_searched_is_told(box: Sandbox, path: str) -> None:
    if not path:
        assert (await see(box, "x", path)).startswith("0 matching lines")
        return
    assert (await see(box, "x", path)).startswith("error: ")


async def test_paths_and_patterns_are_never_shell(box: Sandbox) -> None:
    write(box, **{"-rf": "needle", "$(touch pwned)": "needle", "'; touch pwned; '": "needle"})

    for path in ("-rf", "$(touch pwned)", "'; touch pwned; '"):
        assert (await see(box, "needle", path)).startswith("1 matching line in 1 file")
    await see(box, "$(touch pwned); `touch pwned` '\"; touch pwned; #", regex=True)
    await see(box, "*", command="search_files")
    assert not Path(box.workdir, "pwned").exists()


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
