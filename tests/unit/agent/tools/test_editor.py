"""The editors on real files: byte for byte, and never as shell."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swe_rollout.agent.tools import editor, load_tool
from swe_rollout.agent.tools.state import ToolState
from swe_rollout.errors import UsageError
from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.conftest import files, folder_of, said, use, used

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def edit(sandbox: Sandbox, command: str, path: str, **arguments: object) -> str:
    return await said(sandbox, "str_replace_editor", command=command, path=path, **arguments)


class Editing:
    """The calls of one episode."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._state = ToolState()

    async def do(self, command: str, path: str, **arguments: object) -> str:
        given = {"command": command, "path": path, **arguments}
        return (await use(self._sandbox, "file_editor", given, state=self._state)).text


async def test_view_numbers_lines_and_takes_a_range(sandbox: Sandbox) -> None:
    files(sandbox, {"a b.py": b"one\n\ttwo\nthree\nfour"})

    assert await edit(sandbox, "view", "a b.py") == (
        "     1\tone\n     2\t\ttwo\n     3\tthree\n     4\tfour"
    )
    assert (
        await edit(sandbox, "view", "a b.py", view_range=[2, 3]) == "     2\t\ttwo\n     3\tthree"
    )
    assert await edit(sandbox, "view", "a b.py", view_range=[4, -1]) == "     4\tfour"


async def test_view_lists_a_directory_two_levels_deep_without_hidden_names(
    sandbox: Sandbox,
) -> None:
    for name in ("src/pkg/deep/x.py", "src/a'b.py", ".git/config", "src/.env", "new\nline"):
        (folder_of(sandbox) / name).parent.mkdir(parents=True, exist_ok=True)
        (folder_of(sandbox) / name).write_text("")

    seen = await edit(sandbox, "view", ".")

    head, *names = seen.split("\n")
    assert head.endswith("two levels deep, hidden entries left out:")
    assert names == ["new", "line", "src/", "src/a'b.py", "src/pkg/"]


RANGE = "view_range must be [first, last]: first from 1 to 3, last from first on, or -1"
LINE = "error: insert_line must be an integer from 0 to 3"


@pytest.mark.threat(point=10)
@pytest.mark.parametrize(
    ("command", "path", "arguments", "says"),
    [
        *(("view", "f", {"view_range": each}, RANGE) for each in ([0, 1], [4, 1], [9, 9], [3, 1])),
        *(("view", "f", {"view_range": each}, RANGE) for each in ([1], [1, 2, 3], [2, -2])),
        ("view", "bin", {}, "/bin is a binary file of 6 bytes"),
        ("view", "pipe", {}, "not a regular file"),
        ("view", "nothing", {}, "does not exist"),
        ("view", "big", {}, "104857600 bytes"),
        ("view", "many", {}, "over 100000; use bash"),
        ("insert", "many", {"insert_line": 1, "new_str": "x"}, "over 100000; use bash"),
        ("insert", "f", {"insert_line": -1, "new_str": "x"}, LINE),
        ("insert", "f", {"insert_line": 4, "new_str": "x"}, LINE),
        ("insert", "f", {"new_str": "x"}, LINE),
        ("insert", "f", {"insert_line": 1}, "the command insert needs new_str"),
        ("create", "f/below", {"file_text": "x"}, "error: "),
        ("create", "x", {}, "error: the command create needs file_text"),
        ("str_replace", ".", {"old_str": "a", "new_str": "b"}, "is a directory"),
        ("str_replace", "f", {"old_str": "absent"}, "does not occur"),
        ("str_replace", "f", {"old_str": "aa"}, "occurs more than once in line 1 of"),
        ("str_replace", "f", {"old_str": "\r\n"}, "at lines 1, 2, 3; add context"),
        ("str_replace", "f", {"old_str": ""}, "old_str is empty"),
        ("str_replace", "f", {"old_str": "x\ny"}, r"the file's lines end in \r\n"),
    ],
)
async def test_what_can_not_be_done_is_told_and_changes_nothing(
    sandbox: Sandbox, command: str, path: str, arguments: dict[str, object], says: str
) -> None:
    files(sandbox, {"f": b"aaa\r\nx\r\ny\r\n", "bin": b"\x7fELF\0\0", "many": b"\n" * 100_001})
    os.mkfifo(folder_of(sandbox) / "pipe")
    with (folder_of(sandbox) / "big").open("wb") as file:
        file.truncate(100 << 20)

    seen = await edit(sandbox, command, path, **arguments)
    assert seen.startswith("error: ")
    assert says in seen
    assert (folder_of(sandbox) / "f").read_bytes() == b"aaa\r\nx\r\ny\r\n"


async def test_create_writes_the_text_and_its_folders_and_never_over_something(
    sandbox: Sandbox,
) -> None:
    """Rows WT5 and WT7: content travels as a file, not as an argument or a here-document."""
    text = 'tab\there\\n EOF\nEOF\n$(touch pwned) `id` "quotes" ü\r\n no newline' * 5000

    assert "created" in await edit(sandbox, "create", "new/dir/f.txt", file_text=text)
    assert (folder_of(sandbox) / "new/dir/f.txt").read_bytes() == text.encode()
    assert "exists" in await edit(sandbox, "create", "new/dir/f.txt", file_text="other")
    assert "exists" in await edit(sandbox, "create", "new/dir", file_text="other")
    assert (folder_of(sandbox) / "new/dir/f.txt").read_bytes() == text.encode()


async def test_str_replace_changes_the_span_alone(sandbox: Sandbox) -> None:
    file = folder_of(sandbox) / "Makefile"
    file.write_bytes(b"all:\r\n\tx = 1\r\n\r\nna\xefve\n    keep  \n")

    seen = await edit(sandbox, "str_replace", "Makefile", old_str="\tx = 1", new_str="\t  x = 2 ")

    assert file.read_bytes() == b"all:\r\n\t  x = 2 \r\n\r\nna\xefve\n    keep  \n"
    assert seen == (
        f"edited {file}; lines 1 to 5 of 5 now:\n"
        "     1\tall:\r\n     2\t\t  x = 2 \r\n     3\t\r\n     4\tna�ve\n     5\t    keep  "
    )


@pytest.mark.parametrize(
    ("before", "line", "text", "after"),
    [
        (b"1\n2\n", 0, "new", b"new\n1\n2\n"),
        (b"1\n2\n", 1, "new\n", b"1\nnew\n2\n"),
        (b"1\n2\n", 2, "    new", b"1\n2\n    new\n"),
        (b"1\r\n2\r\n", 1, "new", b"1\r\nnew\r\n2\r\n"),
        (b"1\n2", 2, "new", b"1\n2\nnew"),
        (b"", 0, "new", b"new\n"),
        (b"form\x0cfeed\x85\n2\n", 1, "new", b"form\x0cfeed\x85\nnew\n2\n"),
    ],
)
async def test_insert_puts_lines_behind_a_line(
    sandbox: Sandbox, before: bytes, line: int, text: str, after: bytes
) -> None:
    (folder_of(sandbox) / "f").write_bytes(before)

    assert "edited" in await edit(sandbox, "insert", "f", insert_line=line, new_str=text)
    assert (folder_of(sandbox) / "f").read_bytes() == after


async def test_an_edit_keeps_the_mode_and_follows_a_link(sandbox: Sandbox) -> None:
    script = folder_of(sandbox) / "run.sh"
    script.write_text("#!/bin/sh\necho a\n")
    script.chmod(0o755)
    (folder_of(sandbox) / "link").symlink_to("run.sh")

    await edit(sandbox, "str_replace", "link", old_str="echo a", new_str="echo b")

    assert (folder_of(sandbox) / "link").is_symlink()
    assert script.read_text() == "#!/bin/sh\necho b\n"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755


@pytest.mark.parametrize("path", ["$(touch pwned)", "-rf", "a'b\"c", " lead", "naïve 🙂.py"])
async def test_a_path_is_never_read_as_shell(sandbox: Sandbox, path: str) -> None:
    assert "created" in await edit(sandbox, "create", path, file_text="x\n")
    await edit(sandbox, "str_replace", path, old_str="x", new_str="y")

    assert [entry.name for entry in folder_of(sandbox).iterdir()] == [path]
    assert (folder_of(sandbox) / path).read_text() == "y\n"


async def test_undo_restores_exact_bytes_edit_by_edit(sandbox: Sandbox) -> None:
    """Row L3: undo works in every kind of sandbox, and needs no copy of the file."""
    file = folder_of(sandbox) / "f"
    first = b"\xef\xbb\xbfa\r\n\tb\xff\r\nno end"
    file.write_bytes(first)
    file.chmod(0o755)
    editing = Editing(sandbox)

    await editing.do("str_replace", "f", old_str="\tb", new_str="")
    second = file.read_bytes()
    await editing.do("insert", "f", insert_line=1, new_str="new")

    assert "undone in" in await editing.do("undo_edit", "f")
    assert file.read_bytes() == second
    assert "undone in" in await editing.do("undo_edit", f"{sandbox.workdir}/./f")
    assert file.read_bytes() == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o755
    assert await editing.do("undo_edit", "f") == f"error: there is no edit of {file} to undo"
    await editing.do("str_replace", "f", old_str="no end", new_str="")
    assert "there is no edit" in await Editing(sandbox).do("undo_edit", "f")


async def test_undo_of_a_creation_removes_the_file(sandbox: Sandbox) -> None:
    editing = Editing(sandbox)
    (folder_of(sandbox) / "real").mkdir()
    (folder_of(sandbox) / "link").symlink_to("real")

    await editing.do("create", "link/-f", file_text="")
    assert "is removed" in await editing.do("undo_edit", "real/-f")
    assert list((folder_of(sandbox) / "real").iterdir()) == []


async def test_undo_refuses_where_something_else_changed_the_file(sandbox: Sandbox) -> None:
    editing, file = Editing(sandbox), folder_of(sandbox) / "f"
    file.write_text("one\n")
    await editing.do("str_replace", "f", old_str="one", new_str="two")
    await sandbox.exec("echo three >>f")

    assert "has changed since its last edit" in await editing.do("undo_edit", "f")
    assert file.read_text() == "two\nthree\n"
    file.write_text("two\n")
    assert "undone" in await editing.do("undo_edit", "f")
    file.unlink()
    assert "error: " in await editing.do("undo_edit", "f")


@pytest.mark.threat(point=10)
async def test_what_can_be_undone_is_bounded(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editor, "MAX_EDITS", 3)
    editing = Editing(sandbox)
    files(sandbox, {"f": b"0", "other": b"0"})
    for number in range(4):
        change = {"old_str": str(number), "new_str": str(number + 1)}
        await editing.do("str_replace", "f", **change)
    await editing.do("str_replace", "other", old_str="0", new_str="1")
    for _ in range(3):
        await editing.do("undo_edit", "f")

    assert (folder_of(sandbox) / "f").read_text() == "1"
    assert "there is no edit" in await editing.do("undo_edit", "f")
    assert "undone" in await editing.do("undo_edit", "other")


FILES = st.one_of(
    st.binary(max_size=200).filter(lambda data: b"\0" not in data),
    st.text(alphabet="ab\t \r\n\ufeffé\x0c\x85", max_size=200).map(str.encode),
)
TEXTS = st.text(alphabet="ab\t \r\né\ufeff", max_size=12)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=FILES, text=TEXTS, new=TEXTS, line=st.integers(0, 8))
async def test_all_but_the_edit_survives_and_undo_restores_it(
    shared: Sandbox, data: bytes, text: str, new: str, line: int
) -> None:
    """Row WT2: tabs, line ends, marks and bytes that are no text stay as they are."""
    file, editing = folder_of(shared) / "any", Editing(shared)
    file.write_bytes(data)

    replaced = await editing.do("str_replace", "any", old_str=text, new_str=new)
    old = text.encode()
    if replaced.startswith("error"):
        assert file.read_bytes() == data
        assert (
            not old
            or data.count(old) != 1
            or old == new.encode()
            or data.find(old) != data.rfind(old)
        )
    else:
        at = data.find(old)
        assert file.read_bytes() == data[:at] + new.encode() + data[at + len(old) :]
        await editing.do("undo_edit", "any")
        assert file.read_bytes() == data

    inserted = await editing.do("insert", "any", insert_line=line, new_str=new)
    after = file.read_bytes()
    if inserted.startswith("error"):
        assert after == data
        return
    at = sum(len(each) + 1 for each in data.split(b"\n")[:line])
    at = min(at, len(data))
    assert after.startswith(data[:at])
    assert after.endswith(data[at:])
    assert new.encode() in after[at : len(after) - len(data[at:])]
    await editing.do("undo_edit", "any")
    assert file.read_bytes() == data


async def test_a_path_outside_the_repository_is_not_rewritten(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Row WT4."""
    await edit(sandbox, "create", f"{tmp_path}/outside.py", file_text="x\n")

    assert (tmp_path / "outside.py").read_text() == "x\n"
    assert list(folder_of(sandbox).iterdir()) == []


async def test_a_skeleton_leaves_out_bodies_with_their_lines(sandbox: Sandbox) -> None:
    """Row L6."""
    source = "import a\n\n\ndef f(\n    x,\n):\n    1\n    2\n    3\n    4\n\n\nY = 1\n"
    (folder_of(sandbox) / "m.py").write_text(source)
    (folder_of(sandbox) / "m.txt").write_text(source)
    editing = Editing(sandbox)

    assert await editing.do("view", "m.py", concise=True) == (
        "     1\timport a\n     2\t\n     3\t\n     4\tdef f(\n     5\t    x,\n     6\t):\n"
        "      \t[... lines 7 to 10 left out ...]\n    11\t\n    12\t\n    13\tY = 1"
    )
    assert "concise is for" in await editing.do("view", "m.txt", concise=True)
    assert "concise is for" in await editing.do("view", "m.py", concise=True, view_range=[1, 2])


async def test_a_listing_that_is_not_whole_says_so(sandbox: Sandbox) -> None:
    await sandbox.exec("mkdir d; cd d; seq -f %0100g 1 4000 | xargs touch")

    seen = await Editing(sandbox).do("view", "d")
    count = int(re.search(r"entries of some (\d+) \.\.\.\]", seen)[1])  # type: ignore[index]
    assert 3900 < count < 4100


@pytest.mark.skipif(shutil.which("python3") is None, reason="needs python3")
@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("a.py", "def f(:\n", "warning: the file does not parse: line 1 - "),
        ("a.py", "x = 1\n", "created"),
        ("a.txt", "def f(:\n", "created"),
    ],
)
async def test_an_editor_can_tell_of_broken_syntax(
    sandbox: Sandbox, name: str, text: str, shown: str
) -> None:
    """Row L6: linting, where the job asks for it."""
    checking = used("file_editor", check_syntax=True)
    seen = await said(sandbox, checking, command="create", path=name, file_text=text)
    assert shown in seen
    assert ("warning" in seen) == ("warning" in shown)
    assert "warning" not in await edit(sandbox, "create", "b.py", file_text="def f(:\n")


async def test_an_editor_can_be_made_to_read_alone() -> None:
    """Row L7."""
    reader = load_tool(used("file_editor", commands=["view"], concise=False)).spec

    assert reader.description == (
        "View files.\n* view: a file with line numbers (all, or the lines of view_range), or a "
        "directory two levels deep."
    )
    assert list(reader.arguments.properties) == ["command", "path", "view_range"]
    assert reader.problems({"command": "create", "path": "f"}) == ["'command' must be one of view"]


async def test_each_editor_offers_what_it_can_do() -> None:
    """Row WT8: nothing is offered that does not work here."""
    plain, full = load_tool("str_replace_editor").spec, load_tool("file_editor").spec

    assert (plain.name, full.name) == ("str_replace_editor", "file_editor")
    assert "undo" not in str(plain.function())
    assert "concise" not in str(plain.function())
    assert full.problems({"command": "undo_edit", "path": "f"}) == []


@pytest.mark.parametrize("commands", [[], ["delete"], "view"])
async def test_commands_that_do_not_exist_are_refused(commands: object) -> None:
    with pytest.raises(UsageError, match="str_replace_editor can't be made"):
        load_tool(used("str_replace_editor", commands=commands))


# --- the editor of VERL's agents: L21


async def test_a_file_is_made_seen_and_edited_l21(sandbox: Sandbox) -> None:
    file, path = folder_of(sandbox) / "d/f.py", {"file_path": "d/f.py"}

    await said(sandbox, "create_file", **path, content="a\nb\na\n")
    assert "exists" in await said(sandbox, "create_file", **path, content="")
    assert await said(sandbox, "view_file", **path, start_line=2) == "     2\tb\n     3\ta"
    assert await said(sandbox, "view_file", **path, end_line=1) == "     1\ta"
    once = {**path, "old_content": "a", "new_content": "c"}
    assert "more than once" in await said(sandbox, "edit_file", **once)
    await said(sandbox, "edit_file", **once, line_number=3)
    assert file.read_text() == "a\nb\nc\n"
    await said(sandbox, "edit_file", **path, new_content="top", line_number=0)
    await said(sandbox, "edit_file", **path, old_content="b\n")
    assert file.read_text() == "top\na\nc\n"


@pytest.mark.parametrize(
    ("old", "line", "why"),
    [
        ("a", 2, "does not occur in line 2"),
        ("a", 3, "more than once in line 3"),
        ("a", 9, "no line 9"),
        ("a", 0, "no line 0"),
        ("a", -1, "no line -1"),
        ("", 1, "old_str is empty"),
        (None, None, "give old_content"),
    ],
)
async def test_the_line_of_an_edit_must_hold_it(
    sandbox: Sandbox, old: str | None, line: int | None, why: str
) -> None:
    files(sandbox, {"f": b"a\nb\naa\n"})
    given = {"file_path": "f", "new_content": "x", "old_content": old, "line_number": line}

    call = {name: each for name, each in given.items() if each is not None}
    seen = await said(sandbox, "edit_file", **call)
    assert seen.startswith("error: ")
    assert why in seen
