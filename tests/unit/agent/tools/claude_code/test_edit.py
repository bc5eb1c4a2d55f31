"""The `Edit` and `MultiEdit` tools: the span alone changes, or nothing does."""

from __future__ import annotations

import stat

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.claude_files import Replacement, replaced
from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.claude_code.conftest import files, folder_of, said

on_sandbox = pytest.mark.asyncio(loop_scope="module")


@on_sandbox
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


@on_sandbox
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


@on_sandbox
async def test_replace_all_and_its_count(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"x = 1\ny\nx = 1\n"})

    seen = await said(
        sandbox, "Edit", file_path="f", old_string="x = 1", new_string="", replace_all=True
    )
    assert (folder_of(sandbox) / "f").read_bytes() == b"\ny\n\n"
    assert "2 occurrences" in seen


@on_sandbox
async def test_an_empty_old_string_creates(sandbox: Sandbox) -> None:
    files(sandbox, {"empty": b""})

    for path in ("new/f", "empty"):
        assert "created" in await said(
            sandbox, "Edit", file_path=path, old_string="", new_string="a\r\nb"
        )
        assert (folder_of(sandbox) / path).read_bytes() == b"a\r\nb"


@on_sandbox
async def test_line_ends_of_a_file_are_kept(sandbox: Sandbox) -> None:
    files(sandbox, {"dos": b"a\r\nb\r\nc\r\n", "mixed": b"a\r\nb\nc\n"})

    await said(sandbox, "Edit", file_path="dos", old_string="a\nb\n", new_string="1\n2\n3\n")
    await said(sandbox, "Edit", file_path="mixed", old_string="b\nc", new_string="2\n3")

    assert (folder_of(sandbox) / "dos").read_bytes() == b"1\r\n2\r\n3\r\nc\r\n"
    assert (folder_of(sandbox) / "mixed").read_bytes() == b"a\r\n2\n3\n"


@on_sandbox
async def test_notebooks_and_binary_files_are_refused(sandbox: Sandbox) -> None:
    files(sandbox, {"n.ipynb": b"{}", "bin": b"a\0b"})

    for path, why in (("n.ipynb", "NotebookEdit"), ("bin", "binary"), ("gone", "does not exist")):
        assert why in await said(sandbox, "Edit", file_path=path, old_string="a", new_string="b")


@on_sandbox
@pytest.mark.threat(point=10)
async def test_the_result_is_bounded_before_it_is_made(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"a" * (4 << 20)})

    seen = await said(
        sandbox, "Edit", file_path="f", old_string="a", new_string="b" * 10**6, replace_all=True
    )
    assert f"would have {(4 << 20) * 10**6} bytes, over 4194304" in seen


@on_sandbox
async def test_multi_edit_is_made_in_order(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"a\nb\n"})
    edits = [
        {"old_string": "a", "new_string": "b"},
        {"old_string": "b", "new_string": "c", "replace_all": True},
    ]

    assert "3 occurrences" in await said(sandbox, "MultiEdit", file_path="f", edits=edits)
    assert (folder_of(sandbox) / "f").read_bytes() == b"c\nc\n"


@on_sandbox
async def test_multi_edit_is_all_or_nothing(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"a\nb\n"})
    edits = [{"old_string": "a", "new_string": "x"}, {"old_string": "gone", "new_string": "y"}]

    seen = await said(sandbox, "MultiEdit", file_path="f", edits=edits)
    assert seen.startswith("error: edit 2 of 2: old_string does not occur in ")
    assert (folder_of(sandbox) / "f").read_bytes() == b"a\nb\n"


@on_sandbox
async def test_multi_edit_creates_and_goes_on(sandbox: Sandbox) -> None:
    edits = [{"old_string": "", "new_string": "a\n"}, {"old_string": "a", "new_string": "b"}]

    assert "created" in await said(sandbox, "MultiEdit", file_path="new", edits=edits)
    assert (folder_of(sandbox) / "new").read_bytes() == b"b\n"


TEXT = st.text(st.sampled_from("ab\n\r\t\\é\x85 "), max_size=12)
NOISE = st.binary(max_size=40) | TEXT.map(str.encode)


@given(NOISE, TEXT.filter(bool), NOISE, TEXT)
def test_all_but_the_span_is_identical(head: bytes, old: str, tail: bytes, new: str) -> None:
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
def test_several_are_one_after_the_other_or_none(
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
def test_a_file_of_crlf_lines_stays_one(lines: list[str], new: str) -> None:
    assume("\r" not in new)
    data = "".join(f"{line}\r\n" for line in [*lines, "the span", "end"]).encode()

    done = replaced(data, [Replacement("the span\n", f"{new}\n")], "f").data
    assert done.count(b"\n") == done.count(b"\r\n")
