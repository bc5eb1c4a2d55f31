"""Claude Code's faces of files: pages that are read, and edits that change a span alone."""

from __future__ import annotations

import os
import stat
import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from swe_rollout.agent.tools import load_tool
from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.claude_files import Replacement, replaced
from swe_rollout.errors import UsageError
from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.conftest import EACH, files, folder_of, said, use, used

pytestmark = pytest.mark.asyncio(loop_scope="module")


@EACH
async def test_lines_are_numbered(sandbox: Sandbox) -> None:
    files(sandbox, {"a b.py": b"one\n\ttwo\r\nna\xefve\x0c\xc2\x85still\nfour"})

    seen = await said(sandbox, "Read", file_path="a b.py")
    assert seen == "     1\tone\n     2\t\ttwo\r\n     3\tna�ve\x0c\x85still\n     4\tfour"
    assert await said(sandbox, "k8s_file_read", file_path="a b.py") == seen


async def test_a_page_says_where_the_next_one_begins_l13(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"".join(b"line %d\n" % n for n in range(1, 5001))})

    offset, read = 1, []
    while offset:
        seen = await said(sandbox, "Read", file_path="f", offset=offset)
        *lines, last = seen.split("\n")
        more = last.startswith("[lines ")
        read += lines if more else [*lines, last]
        offset = int(last.partition("go on with offset ")[2].split(",")[0]) if more else 0

    assert [line.split("\t")[1] for line in read] == [f"line {n}" for n in range(1, 5001)]


async def test_offset_and_limit_choose_lines(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"1\n2\n3\n4\n"})

    assert await said(sandbox, "Read", file_path="f", offset=2, limit=2) == (
        "     2\t2\n     3\t3\n[lines 2 to 3 of 4; go on with offset 4, or search with Grep]"
    )
    assert await said(sandbox, "Read", file_path="f", offset=0, limit=1000) == (
        "     1\t1\n     2\t2\n     3\t3\n     4\t4"
    )
    assert "ends with line 4; offset is beyond" in await said(
        sandbox, "Read", file_path="f", offset=5
    )
    assert "error: limit must be" in await said(sandbox, "Read", file_path="f", limit=0)
    assert "error: offset must be" in await said(sandbox, "Read", file_path="f", offset=-1)


async def test_an_observation_is_bounded_at_256_kib_and_by_the_session_wt9(
    sandbox: Sandbox,
) -> None:
    files(sandbox, {"f": b"x" * 999 + b"\n"})
    files(sandbox, {"big": (b"x" * 999 + b"\n") * 3000})

    seen = await use(sandbox, "Read", {"file_path": "big"}, output_bytes=10 << 20)
    assert 250_000 < len(seen.text) < (256 << 10) + 300
    small = await use(sandbox, "Read", {"file_path": "big"}, output_bytes=5000)
    assert len(small.text) <= 5000
    assert "[lines 1 to 4 of 3000; go on with offset 5" in small.text
    assert not small.truncated


async def test_a_long_line_is_cut_and_says_so(sandbox: Sandbox) -> None:
    files(sandbox, {"min.js": "é".encode() * 300_000 + b"\nend\n"})

    seen = await said(sandbox, "Read", file_path="min.js")
    assert seen == f"     1\t{'é' * 1000} [... line cut after 2000 bytes]\n     2\tend"


@EACH
@pytest.mark.threat(point=10)
@pytest.mark.parametrize(
    "data", [b"\n" * (4 << 20), b"line\n" * (2 << 20), b"x" * (9 << 20)], ids=["nl", "long", "wide"]
)
async def test_a_huge_file_is_read_in_pages(sandbox: Sandbox, data: bytes) -> None:
    files(sandbox, {"log": data})

    seen = await said(sandbox, "Read", file_path="log")
    assert seen.startswith("     1\t")
    assert f"({len(data)} bytes in all); go on with offset" in seen
    if b"line" in data:
        assert (await said(sandbox, "Read", file_path="log", offset=2_000_000, limit=1)).startswith(
            "2000000\tline\n"
        )
    assert "no line" in await said(sandbox, "Read", file_path="log", offset=9_000_000)


async def test_what_is_no_text_is_refused_with_its_reason(sandbox: Sandbox) -> None:
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480)
    files(sandbox, {"a.png": png, "elf": b"\x7fELF\0\0", "empty": b""})
    os.mkfifo(folder_of(sandbox) / "pipe")
    (folder_of(sandbox) / "loop").symlink_to("loop")
    with (folder_of(sandbox) / "holes").open("wb") as file:
        file.truncate(1 << 40)

    assert "binary file of 1099511627776 bytes" in await said(sandbox, "Read", file_path="holes")
    assert "is a PNG image; only text" in await said(sandbox, "Read", file_path="a.png")
    assert "binary file of 6 bytes" in await said(sandbox, "Read", file_path="elf")
    assert "is empty" in await said(sandbox, "Read", file_path="empty")
    assert "not a regular file" in await said(sandbox, "Read", file_path="pipe")
    assert "not a regular file" in await said(sandbox, "Read", file_path="loop")
    assert "is a directory" in await said(sandbox, "Read", file_path=".")


@EACH
@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("src/modul.py", "did you mean src/module.py?"),
        ("src/module.js", "did you mean src/module.py?"),
        ("module.py", "did you mean src/module.py?"),
        ("lib/module.py", "did you mean src/module.py?"),
        ("zzz", "does not exist"),
        ("*", "does not exist"),
    ],
)
async def test_a_missing_file_is_told_with_what_may_be_meant_l13(
    sandbox: Sandbox, asked: str, meant: str
) -> None:
    files(sandbox, {"src/module.py": b"", "src/other.txt": b""})

    assert (await said(sandbox, "Read", file_path=asked)).endswith(meant)


HOSTILE = 10_000 * (
    "a\\nb\\\\ \t$(touch pwned) `id` \"'\nEOF\nrm -rf /nowhere\nüñ🙂\r\n\x0b\x0c\x85 no newline"
)


@pytest.mark.parametrize("tool", ["Write", "Replace"])
async def test_content_is_written_byte_for_byte_and_never_run_wt5(
    sandbox: Sandbox, tool: str
) -> None:
    seen = await said(sandbox, tool, file_path="new/dir/f.txt", content=HOSTILE)

    assert (folder_of(sandbox) / "new/dir/f.txt").read_bytes() == HOSTILE.encode()
    assert [entry.name for entry in folder_of(sandbox).iterdir()] == ["new"]
    assert f"created {folder_of(sandbox)}/new/dir/f.txt, {len(HOSTILE.encode())} bytes" in seen
    assert len(seen) < 1000


async def test_a_file_is_replaced_and_keeps_its_mode_and_link(sandbox: Sandbox) -> None:
    files(sandbox, {"run.sh": b"old"})
    (folder_of(sandbox) / "run.sh").chmod(0o755)
    (folder_of(sandbox) / "link").symlink_to("run.sh")

    seen = await said(sandbox, "Write", file_path="link", content="one\ntwo\n")

    assert "replaced" in seen
    assert "lines 1 to 2 of 2 now:\n     1\tone\n     2\ttwo" in seen
    assert (folder_of(sandbox) / "link").is_symlink()
    assert (folder_of(sandbox) / "run.sh").read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE((folder_of(sandbox) / "run.sh").stat().st_mode) == 0o755


async def test_what_can_not_be_written_is_a_failure_that_says_why_wt11(sandbox: Sandbox) -> None:
    files(sandbox, {"file": b"x"})

    for path, why in (
        (".", "is a directory"),
        ("file/below", ""),
        ("/proc/nothing/f", ""),
    ):
        seen = await said(sandbox, "Write", file_path=path, content="x")
        assert seen.startswith("error: ")
        assert why in seen
    half = await said(sandbox, "Write", file_path="f", content="ab\ud800")
    assert half == "error: content holds half a surrogate pair at character 2"
    large = await said(sandbox, "Write", file_path="f", content="x" * ((4 << 20) + 1))
    assert "over 4194304" in large
    assert [entry.name for entry in folder_of(sandbox).iterdir()] == ["file"]


@pytest.mark.parametrize("tool", ["Edit", "k8s_file_edit"])
async def test_every_other_byte_stays_wt2_l15(sandbox: Sandbox, tool: str) -> None:
    before = b"\xef\xbb\xbfall:\r\n\tx = 1\n\r\nna\xefve\\n\n    keep  \x0c\xc2\x85"
    files(sandbox, {"Makefile": before})
    (folder_of(sandbox) / "Makefile").chmod(0o750)

    seen = await said(
        sandbox, tool, file_path="Makefile", old_string="\tx = 1", new_string="\t  x = 2 \\1"
    )

    after = (folder_of(sandbox) / "Makefile").read_bytes()
    assert after == before.replace(b"\tx = 1", b"\t  x = 2 \\1")
    assert stat.S_IMODE((folder_of(sandbox) / "Makefile").stat().st_mode) == 0o750
    assert "     2\t\t  x = 2 \\1\n" in seen


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("absent", "x", "does not occur in"),
        ("a", "x", "more than once in"),
        ("aa", "x", "more than once in"),
        ("b", "b", "nothing would change"),
        ("    b", "x", "line 2 holds one of its lines: compare whitespace"),
        ("", "x", "old_string is empty, which creates a file, but"),
        ("b\ud800", "x", "half a surrogate pair"),
    ],
)
async def test_a_replacement_that_is_not_clear_changes_nothing(
    sandbox: Sandbox, old: str, new: str, why: str
) -> None:
    files(sandbox, {"f": b"aaa\n\tb\n"})

    seen = await said(sandbox, "Edit", file_path="f", old_string=old, new_string=new)
    assert seen.startswith("error: ")
    assert why in seen
    assert (folder_of(sandbox) / "f").read_bytes() == b"aaa\n\tb\n"


def change(old: str, new: str, *, everywhere: bool = False) -> dict[str, object]:
    return {"old_string": old, "new_string": new, **({"replace_all": True} if everywhere else {})}


@pytest.mark.parametrize(
    ("path", "before", "edits", "after", "says"),
    [
        ("f", b"x\ny\nx\n", [change("x", "", everywhere=True)], b"\ny\n\n", "2 occurrences"),
        ("new/f", None, [change("", "a\r\nb")], b"a\r\nb", "created"),
        ("empty", b"", [change("", "a\r\nb")], b"a\r\nb", "created"),
        (
            "f",
            b"a\r\nb\r\nc\r\n",
            [change("a\nb\n", "1\n2\n3\n")],
            b"1\r\n2\r\n3\r\nc\r\n",
            "edited",
        ),
        ("f", b"a\r\nb\nc\n", [change("b\nc", "2\n3")], b"a\r\n2\n3\n", "edited"),
        ("n.ipynb", b"{a}", [change("a", "b")], b"{a}", "NotebookEdit"),
        ("bin", b"a\0b", [change("a", "b")], b"a\0b", "binary"),
        ("gone", None, [change("a", "b")], None, "does not exist"),
        (
            "f",
            b"a\nb\n",
            [change("a", "b"), change("b", "c", everywhere=True)],
            b"c\nc\n",
            "3 occurrences",
        ),
        (
            "f",
            b"a\nb\n",
            [change("a", "x"), change("gone", "y")],
            b"a\nb\n",
            "error: edit 2 of 2: old_string does not occur in ",
        ),
        ("new", None, [change("", "a\n"), change("a", "b")], b"b\n", "created"),
    ],
)
async def test_edits_are_made_in_order_or_not_at_all(
    sandbox: Sandbox,
    *,
    path: str,
    before: bytes | None,
    edits: list[dict[str, object]],
    after: bytes | None,
    says: str,
) -> None:
    for tool in ("MultiEdit", "Edit") if len(edits) == 1 else ("MultiEdit",):
        file = folder_of(sandbox) / path
        file.unlink(missing_ok=True)
        files(sandbox, {} if before is None else {path: before})
        given = {"edits": edits} if tool == "MultiEdit" else edits[0]
        assert says in await said(sandbox, tool, file_path=path, **given)
        assert (file.read_bytes() if file.exists() else None) == after


@pytest.mark.threat(point=10)
async def test_the_result_is_bounded_before_it_is_made(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"a" * (4 << 20)})

    seen = await said(
        sandbox, "Edit", file_path="f", old_string="a", new_string="b" * 10**6, replace_all=True
    )
    assert f"would have {(4 << 20) * 10**6} bytes, over 4194304" in seen


TEXT = st.text(st.sampled_from("ab\n\r\t\\é\x85 "), max_size=12)
NOISE = st.binary(max_size=40) | TEXT.map(str.encode)


@given(NOISE, TEXT.filter(bool), NOISE, TEXT)
async def test_all_but_the_span_is_identical(head: bytes, old: str, tail: bytes, new: str) -> None:
    data = head + old.encode() + tail
    # What stands for line ends is a matter of its own.
    assume(b"\n" not in data or data.count(b"\r\n") != data.count(b"\n"))
    try:
        done = replaced(data, [Replacement(old, new)], "f")
    except ToolError:
        assert old == new or data.find(old.encode(), data.find(old.encode()) + 1) >= 0
        return
    at = data.find(old.encode())
    assert done.data == data[:at] + new.encode() + data[at + len(old.encode()) :]
    assert (done.at, done.size) == (at, len(new.encode()))


@given(NOISE, st.lists(st.tuples(TEXT.filter(bool), TEXT, st.booleans()), max_size=5))
async def test_several_are_one_after_the_other_or_none(
    data: bytes, edits: list[tuple[str, str, bool]]
) -> None:
    replacements = [Replacement(*each) for each in edits]
    expected: bytes | None = data
    for each in replacements:
        try:
            expected = replaced(expected, [each], "f").data if expected is not None else None
        except ToolError:
            expected = None
    try:
        assert replaced(data, replacements, "f").data == expected
    except ToolError:
        assert expected is None


@given(st.lists(TEXT.map(lambda text: text.replace("\r", "").replace("\n", ""))), TEXT)
async def test_a_file_of_crlf_lines_stays_one(lines: list[str], new: str) -> None:
    assume("\r" not in new)
    data = "".join(f"{line}\r\n" for line in [*lines, "the span", "end"]).encode()

    done = replaced(data, [Replacement("the span\n", f"{new}\n")], "f").data
    assert done.count(b"\n") == done.count(b"\r\n")


CHANGES: dict[str, dict[str, object]] = {
    "Write": {"content": "new"},
    "Edit": {"old_string": "old", "new_string": "new"},
    "MultiEdit": {"edits": [{"old_string": "old", "new_string": "new"}]},
}


async def write(sandbox: Sandbox, tool: str, path: str) -> str:
    allowed = used(tool, folders=["src", "new"])
    return await said(sandbox, allowed, file_path=path, **CHANGES[tool])


@EACH
@pytest.mark.parametrize("tool", CHANGES)
async def test_only_these_folders_are_written_to_l14(sandbox: Sandbox, tool: str) -> None:
    files(sandbox, {"src/f": b"old", "f": b"old", "srcs/f": b"old"})
    root = folder_of(sandbox)
    (root / "src/out").symlink_to("..")
    (root / "in").symlink_to("src/f")

    for path in ("f", "srcs/f", "src/../f", "src/out/f", "src/out/x", "src/x/../../y", "/tmp/x"):  # noqa: S108
        seen = await write(sandbox, tool, path)
        assert seen.startswith("error: ")
        assert "is not in src or new, where changes belong" in seen
    assert not seen_as_new(sandbox)
    assert (await write(sandbox, tool, "in")).startswith(("edited", "replaced"))
    assert seen_as_new(sandbox) == ["src/f"]


async def test_a_new_file_may_be_in_a_new_folder(sandbox: Sandbox) -> None:
    files(sandbox, {"src/f": b"old", "new/f": b""})

    assert (await write(sandbox, "Write", "src/a/b/c")).startswith("created")
    assert (await write(sandbox, "Write", str(folder_of(sandbox) / "new/d/e"))).startswith("cre")


def seen_as_new(sandbox: Sandbox) -> list[str]:
    root = folder_of(sandbox)
    found = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path.relative_to(root)) for path in found if path.read_bytes() == b"new"]


async def test_what_is_no_list_of_paths_is_refused() -> None:
    for folders in ("src", [1]):
        with pytest.raises(UsageError) as raised:
            load_tool(used("Write", folders=folders))
        assert "list of paths" in raised.value.why
