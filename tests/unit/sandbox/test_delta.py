"""Deltas: whole files in git's patch form, there and back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swe_rollout.sandbox.delta import DeltaError, Entry, Kind, parse, write
from swe_rollout.sandbox.patch_text import file_diffs, touched_paths

NAMES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=12),
    st.binary(min_size=1, max_size=8)
    .map(lambda raw: raw.replace(b"\0", b"x").replace(b"/", b"y"))
    .map(lambda raw: raw.decode(errors="surrogateescape")),
    st.sampled_from(["a b", "b/x", " b", "a", "it's", 'q"', "\\", "a\nb", "a\tb", "é", "a b/a b"]),
).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
DATA = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=80).map(lambda text: text.encode(errors="replace")),
    st.sampled_from(
        [
            b"",
            b"\n",
            b"no newline",
            b"a\n\nb\n",
            b"\r\n\r",
            b"\\ No newline at end of file\n",
            b"diff --git a/x b/x\n",
            b"x\0y",
            bytes(range(256)) * 9,
        ]
    ),
)


def entries_of(found: dict[str, tuple[Kind, bytes]]) -> tuple[Entry, ...]:
    return tuple(
        Entry(path, kind, b"" if kind in (Kind.GONE, Kind.FOLDER) else data)
        for path, (kind, data) in sorted(found.items())
    )


@given(st.dictionaries(PATHS, st.tuples(st.sampled_from(Kind), DATA), max_size=5))
@example({"a b/x": (Kind.FILE, b"x")})
@example({"x b/x": (Kind.GONE, b"")})
def test_what_is_written_is_read_back(found: dict[str, tuple[Kind, bytes]]) -> None:
    entries = entries_of(found)
    text = write(entries)
    text.encode()
    assert parse(text) == entries
    assert len(file_diffs(text.encode())) == max(len(entries), 1)


@given(st.dictionaries(PATHS, st.tuples(st.sampled_from(Kind), DATA), min_size=1, max_size=5))
def test_paths_are_those_that_diffs_are_read_for(found: dict[str, tuple[Kind, bytes]]) -> None:
    assert set(touched_paths(write(entries_of(found)))) == set(found)


@given(st.text(max_size=200))
@example("diff --git a/x b/x\nnew file mode 100644\nindex 0..1\nGIT binary patch\nliteral 9\n")
@example("diff --git a/x b/y\ndeleted file mode 100644\n")
@example("diff --git a/x b/x\nnew file mode 100644\nindex 0..1\n--- \n+++ \n@@ -0,0 +1,99999 @@\n")
@example("diff --git a/x b/x\nnew file mode 777\n")
@example('diff --git "a/\\777" "b/\\777"\ndeleted file mode 100644\n')
def test_other_text_is_refused_or_is_a_delta(text: str) -> None:
    try:
        entries = parse(text)
    except DeltaError:
        return
    assert all(entry.path is not None for entry in entries)


@given(st.dictionaries(PATHS, st.tuples(st.sampled_from(Kind), DATA), min_size=1, max_size=3))
def test_a_delta_that_is_cut_is_never_another_one(
    found: dict[str, tuple[Kind, bytes]],
) -> None:
    entries = entries_of(found)
    text = write(entries)
    for end in range(1, len(text), max(1, len(text) // 8)):
        try:
            cut = parse(text[:end])
        except DeltaError:
            continue
        names = {entry.path: entry for entry in entries}
        # A file whose content is missing is known by its index line.
        for entry in cut:
            assert names[entry.path].kind is entry.kind


def test_a_bomb_is_no_larger_than_it_says() -> None:
    text = write([Entry("x", Kind.FILE, bytes(30 << 20))])
    assert len(text) < 100_000
    small = text.replace(f"literal {30 << 20}", "literal 10", 1)
    with pytest.raises(DeltaError):
        parse(small)


def test_git_applies_a_delta_to_an_empty_folder(tmp_path: Path) -> None:
    files = {
        "a b/text": (Kind.FILE, "é\nno end".encode()),
        "bin/run": (Kind.PROGRAM, b"#!/bin/sh\n"),
        "data": (Kind.FILE, bytes(range(256)) * 100),
        "empty": (Kind.FILE, b""),
        "link": (Kind.LINK, b"a b/text"),
    }
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(
        ["git", "apply", "-"], cwd=tmp_path, input=write(entries_of(files)).encode(), check=True
    )
    assert (tmp_path / "link").readlink() == Path("a b/text")
    for path, (kind, data) in files.items():
        if kind is not Kind.LINK:
            assert (tmp_path / path).read_bytes() == data
            assert bool((tmp_path / path).stat().st_mode & 0o100) == (kind is Kind.PROGRAM)
