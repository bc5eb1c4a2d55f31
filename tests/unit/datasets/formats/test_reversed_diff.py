"""A diff turned around undoes what it did, as git sees it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.datasets.formats.swe_smith import reversed_diff

ENVIRONMENT = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *arguments],
        cwd=folder, env=ENVIRONMENT, input=stdin.encode(), check=True, capture_output=True,
    )  # fmt: skip
    return done.stdout.decode()


def undone(folder: Path, before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Apply the reversed diff of two trees to the second one; return its files."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    write(folder, before)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=x")
    for name in before:
        (folder / name).unlink()
    write(folder, after)
    git(folder, "add", "--all")
    diff = git(folder, "diff", "--cached", "--find-renames=40%", "HEAD")
    turned = reversed_diff(diff)
    assert turned is not None
    if turned:
        git(folder, "apply", "--index", "--whitespace=nowarn", "-", stdin=turned)
    return {p.name: p.read_bytes().decode() for p in folder.iterdir() if p.is_file()}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())


MANY = "".join(f"line {n}\n" for n in range(30))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": "1\n2\n3\n"}, {"a": "1\nx\ny\n3\n"}),
        ({"a": "1\n"}, {"a": "1\n", "new": "x\n"}),
        ({"a": "1\n", "old": "x\ny\n"}, {"a": "1\n"}),
        ({"a": MANY}, {"b": MANY.replace("line 7\n", "seven\n")}),
        ({"a": MANY}, {"b": MANY}),
        ({"a": "no newline"}, {"a": "no newline here"}),
        ({"a": "x\n"}, {"a": "x"}),
        ({"a": "-- x\n++ y\n"}, {"a": "++ y\n-- z\n"}),
        ({"a": MANY}, {"a": MANY.replace("line 2\n", "").replace("line 25\n", "x\x0cy\u2028z\n")}),
        ({"a": "1\r\n2\r\n"}, {"a": "1\r\n3\r\n"}),
        ({"a": "1\n"}, {"a": "1\n", "empty": ""}),
    ],
    ids=str,
)
def test_every_kind_of_change_is_undone(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    assert undone(tmp_path / "repo", before, after) == before


TEXT = st.lists(st.sampled_from(["a", "b", "- c", "+ d", "@@ -1 +1 @@", "", "\\ x"])).map("\n".join)


@settings(max_examples=15, deadline=None)
@given(before=TEXT, after=TEXT)
def test_any_change_of_a_text_is_undone(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    folder = tmp_path_factory.mktemp("diff") / "repo"
    assert undone(folder, {"a": before}, {"a": after}) == {"a": before}


@pytest.mark.parametrize(
    "diff", ["GIT binary patch\nliteral 3\n", "Binary files a/x and b/x differ\n", "copy from a\n"]
)
def test_what_can_not_be_turned_around_is_none(diff: str) -> None:
    assert reversed_diff(diff) is None


@given(st.text(st.sampled_from("+-@ \\/ab1,\n")))
def test_no_text_breaks_it(text: str) -> None:
    reversed_diff(text)
