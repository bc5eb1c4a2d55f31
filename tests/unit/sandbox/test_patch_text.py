"""Reading a diff without applying it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.sandbox.patch_text import binary_attributes, touched_paths


@pytest.mark.parametrize(
    ("patch", "paths"),
    [
        ("", ()),
        ("nonsense\n", ()),
        ("--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n", ("x.py",)),
        ("--- a/x.py\t2026-01-01\n+++ /dev/null\t2026\n@@ -1 +0,0 @@\n-a\n", ("x.py",)),
        ("diff --git a/bin b/bin\nindex 1..2 100644\nGIT binary patch\nliteral 1\n", ("bin",)),
        ("diff --git a/a b b/a b\nold mode 100644\nnew mode 100755\n", ("a b",)),
        (
            "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n",
            ("new", "old"),
        ),
        ('diff --git "a/\\303\\274\\t" "b/\\303\\274\\t"\nnew file mode 100644\n', ("ü\t",)),
        ('diff --git a/q b/q\n--- /dev/null\n+++ "b/q\\"\\\\"\n@@ -0,0 +1 @@\n+x\n', ('q"\\',)),
        (f"--- a/x\n+++ b/x\n@@ -1,{'9' * 5000} +1 @@\n-a\n+b\n", ("x",)),
        ("diff --git a/x b/x\r\n--- a/x\r\n+++ b/x\r\n@@ -1 +1 @@\r\n-a\r\n+b\r\n", ("x",)),
    ],
)
def test_every_form_of_a_file_section_names_its_paths(patch: str, paths: tuple[str, ...]) -> None:
    assert touched_paths(patch) == paths


def test_what_stands_in_hunks_is_content_and_never_a_header() -> None:
    patch = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n"
        "--- a/conftest.py\n+++ b/conftest.py\n diff --git a/y b/y\n+z\n"
        "diff --git a/w b/w\n--- a/w\n+++ b/w\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert touched_paths(patch) == ("w", "x")


def test_only_files_that_are_not_utf8_lose_their_text_diff() -> None:
    patch = (
        b"diff --git a/good b/good\n--- a/good\n+++ b/good\n@@ -1 +1 @@\n-\xc3\xa9\n+x\n"
        b'diff --git "a/b[*]\\"" "b/b[*]\\""\n--- "a/b[*]\\""\n+++ "b/b[*]\\""\n'
        b"@@ -1 +1 @@\n-\xe9\n+x\n"
    )
    assert binary_attributes(patch) == b'"/b\\134[\\134*]\\042" -diff\n'


@settings(deadline=None)
@given(st.text(alphabet=' +-@ab/\n\t"\\0123,dif-gtnul', max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    touched_paths(text)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    binary_attributes(b"diff --git a/x b/x\n" + data)
