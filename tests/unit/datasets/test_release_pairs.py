"""Release pairs: the real path from an index to a task, with a small project of our own.

The index is a folder (uv reads it offline); uv, git, archives and images are the real ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.datasets import archives
from swe_rollout.datasets.package_index import Artifact, fetch
from swe_rollout.datasets.release_pair_recipes import (
    Pair,
    Recipe,
    Release,
    TestLists,
    load_pairs,
)
from swe_rollout.datasets.release_pairs import prepare_pairs
from swe_rollout.errors import DatasetError, PrerequisiteError, UnreachableError
from swe_rollout.sandbox.local.images import load_image
from swe_rollout.types.instance import Expected, Instance

OLD = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: adder\nVersion: 1.0\n",
    ".gitignore": "*.dat\n",
    "src/adder/__init__.py": "def add(a, b):\n    return a - b\n",
    "src/adder/table.dat": "ignored by git, but released\n",
    "tests/test_add.py": "import adder\n\nassert adder.add(1, 0) == 1\n",
}
NEW = OLD | {
    "PKG-INFO": "Metadata-Version: 2.1\nName: adder\nVersion: 1.1\n",
    "CHANGES.txt": "1.1: adds\n",
    "src/adder/__init__.py": "def add(a, b):\n    return a + b\n",
    "src/adder/extra.py": "MORE = 1\n",
    "tests/test_add.py": "import adder\n\nassert adder.add(1, 1) == 2\nprint('PASSED')\n",
}


def write_sdist(folder: Path, version: str, files: dict[str, str]) -> Release:
    name = f"adder-{version}.tar.gz"
    with tarfile.open(folder / name, "w:gz") as tar:
        for path, text in files.items():
            info = tarfile.TarInfo(f"adder-{version}/{path}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    # The metadata of the wheel is why uv never builds the source distribution.
    with zipfile.ZipFile(folder / f"adder-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"adder-{version}.dist-info/METADATA", files["PKG-INFO"])
        wheel.writestr(
            f"adder-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        )
        wheel.writestr(f"adder-{version}.dist-info/RECORD", "")
    return Release(version, name, hashlib.sha256((folder / name).read_bytes()).hexdigest())


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def pair(index: Path) -> Pair:
    recipe = Recipe(
        old=write_sdist(index, "1.0", OLD),
        new=write_sdist(index, "1.1", NEW),
        source="src/adder",
        run=("tests/test_add.py",),
        dependencies=(),
        problem_statement="add() subtracts",
    )
    return Pair("adder", recipe, (), Expected(("tests/test_add.py::test",), ()))


async def prepared(pair: Pair) -> Instance:
    [instance] = await prepare_pairs([pair], on_progress=lambda _: None)
    return instance


def git(folder: Path, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, input=stdin, capture_output=True, text=True, check=True
    )
    return done.stdout


async def test_the_agent_starts_from_the_old_release_and_nothing_of_the_new_one(
    pair: Pair,
) -> None:
    instance = await prepared(pair)
    image, folder = load_image(instance.image)
    testbed = folder / "testbed"
    found = {
        str(path.relative_to(testbed)): path.read_text()
        for path in testbed.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(testbed).parts
    }
    assert found == OLD
    assert git(testbed, "rev-list", "--all").split() == [instance.base_commit]
    assert git(testbed, "branch", "--show-current").strip() == "main"
    assert not git(testbed, "status", "--porcelain")
    assert not git(testbed, "remote")
    objects = git(testbed, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    assert len(objects) == len(set(OLD.values())) + 5, "five trees and commits, no other blob"
    assert image.env["PYTHONPATH"] == "/testbed/src:/opt/testbed/site"


async def test_gold_and_hidden_tests_apply_apart_and_together_they_solve_the_task(
    pair: Pair, tmp_path: Path
) -> None:
    instance = await prepared(pair)
    assert instance.instance_id == "adder-1.1"
    assert instance.source == "release_pair"
    assert "tests/" not in instance.gold_patch
    assert "src/" not in instance.test_patch
    assert "CHANGES" not in instance.gold_patch + instance.test_patch
    testbed = tmp_path / "testbed"
    shutil.copytree(load_image(instance.image)[1] / "testbed", testbed)
    git(testbed, "apply", "-", stdin=instance.test_patch)
    assert not _runs(testbed)
    git(testbed, "apply", "-", stdin=instance.gold_patch)
    assert _runs(testbed)
    assert (testbed / "src/adder/extra.py").read_text() == "MORE = 1\n"


def _runs(testbed: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "tests/test_add.py"],
        cwd=testbed,
        env=os.environ | {"PYTHONPATH": str(testbed / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


async def test_the_base_commit_is_the_same_whatever_the_machine_is_set_to(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await prepared(pair)
    (tmp_path / "gitconfig").write_text(
        "[user]\nname = other\n[core]\nautocrlf = true\n[commit]\ngpgsign = true\n"
        "[init]\ndefaultBranch = trunk\n[diff]\nnoprefix = true\nalgorithm = patience\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2020-02-02T02:02:02")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another cache"))
    assert await prepared(pair) == first


async def test_a_prepared_image_needs_neither_index_nor_uv_again(
    pair: Pair, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await prepared(pair)
    shutil.rmtree(index)
    monkeypatch.setenv("PATH", "")
    said: list[str] = []
    assert await prepare_pairs([pair], on_progress=said.append) == (first,)
    assert not said


async def test_two_builders_at_once_leave_one_complete_image(pair: Pair) -> None:
    first, second = await asyncio.gather(prepared(pair), prepared(pair))
    assert first == second
    _, folder = load_image(first.image)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


async def test_an_image_whose_building_was_interrupted_is_built_again(pair: Pair) -> None:
    first = await prepared(pair)
    _, folder = load_image(first.image)
    (folder / "image.json").unlink()
    shutil.rmtree(folder / "testbed")
    assert await prepared(pair) == first
    assert (load_image(first.image)[1] / "testbed/src").is_dir()


async def test_a_file_with_other_bytes_than_recorded_is_refused(pair: Pair) -> None:
    wrong = replace(pair.recipe.new, sha256="0" * 64)
    with pytest.raises(DatasetError) as caught:
        await prepared(replace(pair, recipe=replace(pair.recipe, new=wrong)))
    assert caught.value.problems[0].message.startswith(f"expected {'0' * 64}, found ")
    assert not wrong_path(pair, wrong).exists()


def wrong_path(pair: Pair, release: Release) -> Path:
    return Artifact(pair.project, release.version, release.filename, release.sha256).path


@pytest.mark.usefixtures("index")
async def test_a_version_the_index_does_not_have_is_said_with_uvs_own_words() -> None:
    absent = Artifact("adder", "9.9", "adder-9.9.tar.gz", "0" * 64)
    with pytest.raises(UnreachableError) as caught:
        await fetch([absent], on_progress=lambda _: None)
    assert "adder==9.9" in caught.value.what
    assert "adder" in caught.value.why
    assert "UV_DEFAULT_INDEX" in caught.value.fix


async def test_a_file_the_version_does_not_have_is_named(pair: Pair) -> None:
    absent = replace(pair.old, filename="adder-1.0.zip", sha256="1" * 64)
    with pytest.raises(UnreachableError, match=r"does not have adder-1\.0\.zip"):
        await fetch([absent], on_progress=lambda _: None)


async def test_without_uv_the_error_says_which_extra_has_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PrerequisiteError) as caught:
        await prepared(pair)
    assert caught.value.fix == "pip install 'swe-rollout[release-pairs]'"


async def test_without_git_the_error_says_what_to_install(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PrerequisiteError, match="git was not found"):
        await prepared(pair)


@pytest.mark.parametrize("member", ["../evil.py", "/evil.py", "a/../../evil.py", "..\\evil.py"])
def test_a_wheel_with_a_member_outside_is_refused(tmp_path: Path, member: str) -> None:
    with zipfile.ZipFile(tmp_path / "evil.whl", "w") as wheel:
        wheel.writestr("fine.py", "")
        wheel.writestr(member, "")
    with pytest.raises(DatasetError, match="can't be unpacked"):
        archives.unpack_wheel(tmp_path / "evil.whl", tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("member", ["../evil.py", "/evil.py", "adder-1.0/../../evil.py"])
def test_a_source_distribution_with_a_member_outside_is_refused(
    tmp_path: Path, member: str
) -> None:
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(member))
        link = tarfile.TarInfo("adder-1.0/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../etc/passwd"
        tar.addfile(link)
    with pytest.raises(DatasetError, match="can't be unpacked"):
        archives.unpack_sdist(tmp_path / "evil.tar.gz", tmp_path / "in/tree")
    assert [path.name for path in tmp_path.rglob("evil.py")] == []


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    for name in ("broken.tar.gz", "broken.whl"):
        (tmp_path / name).write_bytes(b"not an archive")
        with pytest.raises(DatasetError, match="can't be unpacked"):
            archives.unpack_dependency(tmp_path / name, tmp_path / "site", folder="src")


def test_the_digest_changes_with_everything_that_goes_into_the_image(pair: Pair) -> None:
    other = replace(pair.recipe, source="src/other")
    newer = replace(pair.recipe, new=replace(pair.recipe.new, sha256="2" * 64))
    worded = replace(pair.recipe, problem_statement="in other words")
    assert replace(pair, recipe=other).digest != pair.digest
    assert replace(pair, recipe=newer).digest != pair.digest
    assert replace(pair, recipe=worded).digest == pair.digest


def test_grouped_test_lists_read_back_as_the_same_ids() -> None:
    expected = Expected(("a.py::T::test_x", "b.py::test[::]"), ("a.py::test_y",))
    assert TestLists.of(expected).expected() == expected


@pytest.mark.parametrize("pair", load_pairs().values(), ids=lambda pair: pair.project)
def test_every_packaged_pair_is_complete(pair: Pair) -> None:
    expected = pair.expected
    assert expected.fail_to_pass
    assert expected.pass_to_pass
    assert not set(expected.fail_to_pass) & set(expected.pass_to_pass)
    ids = expected.fail_to_pass + expected.pass_to_pass
    assert len(set(ids)) == len(ids)
    assert {test.partition("::")[0] for test in ids} <= set(pair.recipe.run)
    assert not any(re.search(r"\s", test) for test in ids), "log parsers cut ids at a blank"
    assert all(re.fullmatch(r"[0-9a-f]{64}", file.sha256) for file in pair.artifacts)
    assert all(file.version in file.filename for file in pair.artifacts)
    assert not any(
        re.search(rf"\b{re.escape(test.rpartition('::')[2])}\b", pair.recipe.problem_statement)
        for test in expected.fail_to_pass
    ), "the task must not name the hidden tests"
