"""The `Grep` tool on real trees, with this machine's programs and with busybox."""

from __future__ import annotations

import os

import pytest

from swe_rollout.sandbox.base import Sandbox
from unit.agent.tools.conftest import EACH, files, folder_of, said, use, used

pytestmark = [pytest.mark.asyncio(loop_scope="module"), EACH]

TREE = {
    "a.py": b"import os\nx = 1\n",
    "src/b.py": b"# one\nimport sys\nimport os\n# end",
    "src/c.txt": b"import nothing\r\n",
    ".hidden/d.py": b"import hidden\n",
    ".git/e.py": b"import git\n",
    "bin.py": b"import \0 binary\n",
    "latin.py": b"import na\xefve\n",
    "-v": b"import dash\n",
    "sp ace:1:x.py": b"import colon\n",
}
MATCHING = ["-v", ".hidden/d.py", "a.py", "latin.py", "sp ace:1:x.py", "src/b.py", "src/c.txt"]
BINARY = "[binary files that match, not shown: 1]"


async def test_files_that_match_are_listed(sandbox: Sandbox) -> None:
    files(sandbox, TREE)

    seen = await said(sandbox, "Grep", pattern=r"^import \w")
    assert seen.split("\n") == MATCHING
    assert (await said(sandbox, "Grep", pattern=r"^import ")).split("\n") == [*MATCHING, BINARY]


async def test_lines_with_numbers_and_context(sandbox: Sandbox) -> None:
    files(sandbox, TREE)

    async def content(**more: object) -> list[str]:
        arguments = {"pattern": "import os", "output_mode": "content", **more}
        return (await use(sandbox, "Grep", arguments)).text.split("\n")

    assert await content() == ["a.py:1:import os", "src/b.py:3:import os"]
    assert await content(**{"-n": False}) == ["a.py:import os", "src/b.py:import os"]
    assert await content(**{"-C": 1}) == [
        *("a.py:1:import os", "a.py-2-x = 1", "--"),
        *("src/b.py-2-import sys", "src/b.py:3:import os", "src/b.py-4-# end"),
    ]
    assert await content(**{"-B": 5, "-A": 0, "path": "src"}) == [
        *("src/b.py-1-# one", "src/b.py-2-import sys", "src/b.py:3:import os"),
    ]
    assert await content(path="src/b.py") == ["src/b.py:3:import os"]
    assert await content(path="sp ace:1:x.py", pattern="colon") == ["sp ace:1:x.py:1:import colon"]


async def test_options_have_plain_names_where_a_job_wants_them(sandbox: Sandbox) -> None:
    files(sandbox, TREE)
    arguments: dict[str, object] = {"pattern": "IMPORT OS", "path": "a.py"}
    arguments |= {"output_mode": "content", "ignore_case": True, "after": 1, "line_numbers": False}
    seen = await use(sandbox, used("Grep", plain_names=True), arguments)
    assert seen.text == "a.py:import os\na.py-x = 1"


async def test_counts(sandbox: Sandbox) -> None:
    files(sandbox, TREE)

    seen = await said(sandbox, "Grep", pattern="import", output_mode="count", glob="*.{py,txt}")
    assert seen.split("\n") == [
        *(".hidden/d.py:1", "a.py:1", "latin.py:1", "sp ace:1:x.py:1", "src/b.py:2"),
        *("src/c.txt:1", BINARY, "[matching lines in all: 7]"),
    ]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"glob": "*.txt"}, ["src/c.txt"]),
        ({"glob": "src/*.py"}, ["src/b.py"]),
        ({"glob": "/src/**"}, ["src/b.py", "src/c.txt"]),
        ({"glob": "!*.py"}, ["-v", "src/c.txt"]),
        ({"type": "txt"}, ["src/c.txt"]),
        ({"type": "txt", "glob": "*.py"}, ["nothing matches"]),
        ({"path": "src"}, ["src/b.py", "src/c.txt"]),
        ({"pattern": "IMPORT D", "-i": True}, ["-v"]),
        ({"pattern": "(?i)IMPORT D"}, ["-v"]),
        ({"pattern": "IMPORT D"}, ["nothing matches"]),
        ({"path": "bin.py"}, ["nothing matches", BINARY]),
        ({"head_limit": 2}, ["-v", ".hidden/d.py", "[2 of 7 files shown]", BINARY]),
        ({"head_limit": 0, "path": "src"}, ["src/b.py", "src/c.txt"]),
    ],
)
async def test_where_and_how_much_is_searched(
    sandbox: Sandbox, more: dict[str, object], found: list[str]
) -> None:
    files(sandbox, TREE)

    seen = (await use(sandbox, "Grep", {"pattern": "import", **more})).text
    assert seen.split("\n") in (found, [*found, BINARY])


SPANS = {
    "m.py": b"one\ndef f(\n  a,\n  b):\n  x\ndef g(): pass\nend",
    "n.py": b"def f(a, b): x\r\nend\r\n",
    "o.py": "onédef".encode(),
}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"def \w+\([^)]*\n[^)]*\)", ["m.py"]),
        (r"def \w+\([^)]*\)", ["m.py", "n.py"]),
        (r"one\ndef", ["m.py"]),
        (r"one[^x]def", ["m.py"]),
        (r"one\sdef", ["m.py"]),
        (r"one[^\n]def", ["nothing matches"]),
        (r"on[^\n]+def", ["o.py"]),
        (r"one.*?pass", ["m.py"]),
        (r"^def.*end$", ["m.py"]),
        (r"^def", ["m.py", "n.py"]),
        (r"pass$", ["m.py"]),
        (r"^  b", ["m.py"]),
        ("\\bx\n", ["m.py"]),
    ],
)
async def test_a_pattern_may_span_lines(sandbox: Sandbox, pattern: str, found: list[str]) -> None:
    files(sandbox, SPANS)

    seen = await said(sandbox, "Grep", pattern=pattern, multiline=True)
    assert seen.split("\n") == found


@pytest.mark.parametrize(
    ("pattern", "more", "found"),
    [
        (r"def f\([^)]*\)", {}, ["m.py:2:def f(", "m.py:3:  a,", "m.py:4:  b):"]),
        (r"one\ndef", {"-A": 1}, ["m.py:1:one", "m.py:2:def f(", "m.py-3-  a,"]),
        (r"^\w", {"-n": False}, ["m.py:one", "m.py:def f(", "m.py:def g(): pass", "m.py:end"]),
        (
            r"(f\(\n|pass)",
            {"-C": 1},
            [
                *("m.py-1-one", "m.py:2:def f(", "m.py-3-  a,", "--"),
                *("m.py-5-  x", "m.py:6:def g(): pass", "m.py-7-end"),
            ],
        ),
        (r"e", {}, ["m.py:1:one", "m.py:2:def f(", "m.py:6:def g(): pass", "m.py:7:end"]),
        (r"absent", {}, ["nothing matches"]),
    ],
)
async def test_the_lines_that_matches_span_are_shown(
    sandbox: Sandbox, pattern: str, more: dict[str, object], found: list[str]
) -> None:
    files(sandbox, {"m.py": SPANS["m.py"]})

    arguments = {"pattern": pattern, "multiline": True, "output_mode": "content", **more}
    assert (await use(sandbox, "Grep", arguments)).text.split("\n") == found


async def test_what_can_not_be_shown_of_spans_is_said(sandbox: Sandbox) -> None:
    files(sandbox, {"large": b"a\nb\n" * (3 << 19), "wide": b"a\nb" + b"c" * (5 << 19)})
    content = {"pattern": r"a\nb", "multiline": True, "output_mode": "content"}

    seen = (await use(sandbox, "Grep", content)).text
    assert "[files that match, not shown as they are over 4 MiB or gone: 1]" in seen
    assert f"wide:2:b{'c' * 1999} [... line cut after 2000 bytes]" in seen
    lazy = (await use(sandbox, "Grep", {**content, "pattern": "a.*?b"})).text
    assert "lazy quantifier" in lazy
    count = (await use(sandbox, "Grep", {**content, "output_mode": "count"})).text
    assert count.startswith("error: count is of lines")
    files(sandbox, {f"many{n}": b"a\nb\n" for n in range(80)})
    many = (await use(sandbox, "Grep", {**content, "glob": "many*"}, output_bytes=1 << 20)).text
    assert many.endswith("[100 of at least 100 lines shown]\n[more files that match: 30]")


@pytest.mark.threat(point=10)
async def test_many_spans_are_bounded(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"a\n" * (2 << 20)})
    content = {"pattern": r"a\n?", "multiline": True, "output_mode": "content"}

    seen = (await use(sandbox, "Grep", content)).text
    assert len(seen) <= 16384
    assert "of at least" in seen


async def test_a_refusal_says_why_wt11(sandbox: Sandbox) -> None:
    files(sandbox, TREE)

    for arguments, why in (
        ({"pattern": "a(?=b)"}, "look-around"),
        ({"pattern": "a", "type": "cobol"}, "there is no type 'cobol'; there are c, cpp"),
        ({"pattern": "a", "path": "gone"}, "does not exist"),
        ({"pattern": "a", "-A": -1}, "-A must be from 0 to 100"),
        ({"pattern": "a", "glob": ""}, ""),
    ):
        assert why in (await use(sandbox, "Grep", arguments)).text


async def test_every_planted_term_is_found_however_deep_wt3(sandbox: Sandbox) -> None:
    files(sandbox, {f"{'d/' * (n % 12)}f{n}.txt": b"x\nneedle\n" for n in range(700)})

    whole = await use(sandbox, "Grep", {"pattern": "needle"}, output_bytes=1 << 20)
    assert len(whole.text.split("\n")) == 700
    content = {"pattern": "needle", "output_mode": "content"}
    lines = await use(sandbox, "Grep", content, output_bytes=1 << 20)
    assert lines.text.endswith("[500 of at least 500 lines shown]\n[more files that match: 200]")


async def test_what_does_not_fit_is_counted_wt9(sandbox: Sandbox) -> None:
    files(sandbox, {"f": b"".join(b"needle %d\n" % n for n in range(5000))})

    content = {"pattern": "needle", "output_mode": "content"}
    seen = (await use(sandbox, "Grep", content, output_bytes=2000)).text
    *lines, note = seen.split("\n")
    assert len(seen) <= 2000
    assert note == f"[{len(lines)} of 5000 lines shown; narrow the pattern, path or glob]"


@pytest.mark.threat(point=10)
async def test_huge_lines_and_many_of_them_are_bounded(sandbox: Sandbox) -> None:
    files(sandbox, {"wide.js": b"x" * (8 << 20) + b"needle\n", "many": b"needle\n" * (1 << 20)})

    content = {"pattern": "needle", "output_mode": "content"}
    seen = (await use(sandbox, "Grep", content)).text
    assert len(seen) <= 16384
    assert "of at least" in seen
    wide = (await use(sandbox, "Grep", {**content, "path": "wide.js"})).text
    assert wide == f"wide.js:1:{'x' * 2000} [... line cut after 2000 bytes]"
    count = {"pattern": "needle", "output_mode": "count"}
    assert f"many:{1 << 20}\n" in (await use(sandbox, "Grep", count)).text


@pytest.mark.threat(point=10)
async def test_files_with_holes_pipes_and_links_are_not_searched(sandbox: Sandbox) -> None:
    root = folder_of(sandbox)
    files(sandbox, {"f": b"needle\n", "od\nd": b"needle\n"})
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to("f")
    (root / "loop").symlink_to(".")
    with (root / "holes").open("wb") as file:
        file.truncate(1 << 40)

    assert (await said(sandbox, "Grep", pattern="needle")).split("\n") == [
        "f",
        "[files over 64 MiB, not searched: 1]",
        "[files with a line end in their name, not searched: 1]",
    ]


@pytest.mark.threat(point=10)
@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a?){200}a{200}", "((a{1,99})*){99}x"])
async def test_a_catastrophic_pattern_ends_with_its_call(sandbox: Sandbox, pattern: str) -> None:
    files(sandbox, {"f": b"a" * 5000 + b"\n"})

    seen = await use(sandbox, "Grep", {"pattern": pattern}, timeout_s=2)
    assert seen.text
    assert await said(sandbox, "Grep", pattern="aaa") == "f"


async def test_nothing_of_a_pattern_or_a_name_is_shell(sandbox: Sandbox) -> None:
    files(sandbox, {"$(touch pwned)": b"$(touch pwned2) `id`\n", "-exec": b"x", "a'b\"c": b"`id`"})

    for pattern in (r"\$\(touch pwned2\)", "`id`", "--help", "-f/etc/passwd", "'; touch pwned3"):
        for mode in ("content", "count", "files_with_matches"):
            await said(sandbox, "Grep", pattern=pattern, output_mode=mode)
    await said(sandbox, "Glob", pattern="$(touch pwned4)")
    assert {entry.name for entry in folder_of(sandbox).iterdir()} == {
        *("$(touch pwned)", "-exec", "a'b\"c"),
    }
