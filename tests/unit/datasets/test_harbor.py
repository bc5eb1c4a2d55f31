"""Harbor's task folders: read whole, or refused with the place; never what lies outside of them."""

from __future__ import annotations

import base64
import io
import shutil
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from harbor_parts import TASKS
from ratios import growth
from swe_rollout.datasets import harbor_files
from swe_rollout.datasets.harbor_files import PlainFile, TaskFolder
from swe_rollout.datasets.harbor_task import instance_of, load, workdir_of
from swe_rollout.datasets.source import NamedSource
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.types.instance import Instance, Rule

DATASET = NamedSource("harbor", partial(load, "tasks.tar"))
MINIMAL = '[environment]\ndocker_image = "i:1"\n'


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TASKS / "stock-report", tmp_path / "tasks" / "stock-report"))


def folder(
    config: str = MINIMAL, name: str = "one", files: Mapping[str, bytes] | None = None
) -> TaskFolder:
    plain = {
        "task.toml": config.encode(),
        "instruction.md": b"Do it.",
        "tests/test.sh": b"#!/bin/sh\n",
        **(files or {}),
    }
    return TaskFolder(name, {path: PlainFile(data, False) for path, data in plain.items()})  # noqa: FBT003


def made(task: TaskFolder, **options: str) -> Instance:
    found = instance_of(task, image=options.get("image", ""), keep=())
    assert isinstance(found, Instance), found
    return found


async def test_a_whole_task(task: Path) -> None:
    (found,) = await load(str(task), base_dir=task)
    assert isinstance(found, Instance)
    assert (found.instance_id, found.image) == ("stock-report", "swe-rollout/stock-report:1")
    assert found.rule is Rule.REWARD_FILE
    assert found.workdir == "/app"
    assert found.problem_statement.startswith("`/app/stock.csv` lists")
    assert found.evaluation.commands == ("export LEAST_ITEMS=3", "/tests/test.sh")
    assert found.evaluation.timeout_s == 120.0
    parts = found.folder
    assert parts is not None
    assert parts.kept == ("/app", "/srv/report.json")
    assert [(each.path, each.executable) for each in parts.tests] == [
        ("/tests/judge.py", False),
        ("/tests/test.sh", True),
    ]
    assert [each.path for each in parts.solution] == ["/solution/report.py", "/solution/solve.sh"]
    assert [each.path for each in parts.start] == ["/app/stock.csv"]
    assert base64.b64decode(parts.start[0].content).startswith(b"name,count\n")
    assert (parts.solve, parts.solve_timeout_s) == ("/solution/solve.sh", 600.0)


async def test_folders_and_archives_hold_the_same_tasks(task: Path) -> None:
    for name in ("b", "a"):
        shutil.copytree(task, task.parent / name)
    archive = task.parent.parent / "tasks.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(task.parent, arcname=".")
    folders = await load("tasks", base_dir=task.parent.parent)
    assert [each.instance_id for each in folders if isinstance(each, Instance)] == [
        "a",
        "b",
        "stock-report",
    ]
    assert await load("tasks.tar.gz", base_dir=archive.parent) == folders
    assert await load(f"file://{archive}", base_dir=task) == folders


async def test_a_broken_task_leaves_the_others(task: Path) -> None:
    bad = Path(shutil.copytree(task, task.parent / "bad"))
    (bad / "task.toml").write_text("no toml")
    first, second = await load(str(task.parent), base_dir=task)
    assert isinstance(first, Problem)
    assert first.place == "bad"
    assert isinstance(second, Instance)


async def test_nothing_outside_of_a_task_is_read(task: Path) -> None:
    (task / "tests" / "secret").symlink_to("/etc/passwd")
    (found,) = await load(str(task), base_dir=task)
    assert isinstance(found, Problem)
    assert "links" in found.message
    (task / "tests" / "secret").unlink()
    (task / "solution" / "root").symlink_to("/etc")
    (found,) = await load(str(task), base_dir=task)
    assert isinstance(found, Problem)


async def test_tasks_of_one_name_and_files_of_tests_are_told_apart(task: Path) -> None:
    (task / "tests" / "task.toml").write_text("# for the tests\n")
    archive = task.parent.parent / "tasks.tar"
    with tarfile.open(archive, "w") as tar:
        for folder in ("one", "two"):
            tar.add(task, arcname=f"{folder}/{task.name}")
    first, second = await DATASET.read(base_dir=archive.parent, on_progress=print)
    assert isinstance(first, Instance)
    assert first.folder is not None
    assert "/tests/task.toml" in [each.path for each in first.folder.tests]
    assert isinstance(second, Problem)
    assert second.message == "stock-report is also harbor: task 1"


async def test_links_and_paths_of_an_archive_lead_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        for name, data in (
            ("one/task.toml", MINIMAL.encode()),
            ("one/instruction.md", b"x"),
            ("one/tests/test.sh", b"x"),
            ("one/tests/../../../etc/x", b"x"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("one/tests/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    (found,) = await load(str(path), base_dir=tmp_path)
    assert isinstance(found, Instance)
    assert found.folder is not None
    assert [each.path for each in found.folder.tests] == ["/tests/test.sh"]


async def test_a_task_that_is_too_large_is_refused(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harbor_files, "MAX_TASK_BYTES", 100)
    (found,) = await load(str(task), base_dir=task)
    assert isinstance(found, Problem)
    assert "more than" in found.message


@pytest.mark.parametrize("uri", ["none", ".", "s3://bucket/folder", "broken.tar"])
async def test_where_there_are_no_tasks(uri: str, tmp_path: Path) -> None:
    (tmp_path / "broken.tar").write_bytes(b"no archive")
    with pytest.raises(DatasetError, match="no tasks"):
        await load(uri, base_dir=tmp_path)


async def test_further_paths_are_absolute(task: Path) -> None:
    with pytest.raises(DatasetError, match="absolute"):
        await load(str(task), base_dir=task, keep=["etc"])
    (found,) = await load(str(task), base_dir=task, keep=["/etc/nginx", "/app/x"])
    assert isinstance(found, Instance)
    assert found.folder is not None
    assert found.folder.kept == ("/app", "/etc/nginx", "/srv/report.json")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ("", "environment.docker_image"),
        ("[environment]\ndocker_image = 3\n", "environment.docker_image"),
        (MINIMAL + 'workdir = "app"\n', "environment.workdir"),
        (MINIMAL + 'workdir = "/"\n', "environment.workdir"),
        (MINIMAL + 'os = "windows"\n', "environment.os"),
        (MINIMAL + "gpus = 1\n", "environment.gpus"),
        (MINIMAL + 'allow_internet = "yes please"\n', "environment.allow_internet"),
        (MINIMAL + '[environment.env]\nA = "1"\n', "environment.env"),
        (MINIMAL + "[verifier]\ntimeout_sec = -1\n", "verifier.timeout_sec"),
        (MINIMAL + "[verifier]\ntimeout_sec = inf\n", "verifier.timeout_sec"),
        (MINIMAL + '[verifier.env]\nA = "${HOME}"\n', "verifier.env"),
        (MINIMAL + '[verifier.env]\n"A;x" = "1"\n', "verifier.env"),
        (MINIMAL + '[solution.env]\nA = "${HOME}"\n', "solution.env"),
        (MINIMAL + '[verifier.environment]\ndocker_image = "x"\n', "verifier.environment"),
        ("steps = [{name = 'a'}]\n" + MINIMAL, "steps"),
        ("[" * 9999, "task.toml"),
    ],
)
def test_what_can_not_be_honoured_is_refused_with_its_place(config: str, field: str) -> None:
    has_solution = {"solution/solve.sh": b"true"}
    found = instance_of(folder(config, files=has_solution), image="", keep=())
    assert isinstance(found, Problem)
    assert (found.place, found.field) == ("one", field)


def test_missing_and_unreadable_files_are_refused() -> None:
    task = folder()
    for name in ("instruction.md", "tests/test.sh", "task.toml"):
        files = {path: file for path, file in task.files.items() if path != name}
        found = instance_of(TaskFolder("one", files), image="", keep=())
        assert isinstance(found, Problem)
        assert found.field == name
    found = instance_of(folder(files={"instruction.md": b"\xff"}), image="", keep=())
    assert isinstance(found, Problem)
    assert isinstance(instance_of(folder(name="a b"), image="", keep=()), Problem)


def test_images_may_be_named_for_all_tasks() -> None:
    task = folder("", "Some-Task", {"environment/Dockerfile": b"FROM x\nWORKDIR /srv/app\n"})
    found = made(task, image="registry/tb/{name}:1")
    assert (found.image, found.workdir) == ("registry/tb/some-task:1", "/srv/app")
    assert found.folder is not None
    assert found.folder.start == ()  # the image holds it


def test_a_task_without_a_solution_has_none() -> None:
    parts = made(folder()).folder
    assert parts is not None
    assert (parts.solve, parts.solution) == ("", ())


@pytest.mark.parametrize(
    ("dockerfile", "workdir"),
    [
        ("", ""),
        ("FROM x\nWORKDIR /app\n", "/app"),
        ("FROM x\n  workdir  '/a b'\nRUN x\n", "/a b"),
        ("FROM x\nWORKDIR /a\nWORKDIR b\n", "/a/b"),
        ("FROM x AS one\nWORKDIR /one\nFROM y\n", ""),
        ("FROM x\nWORKDIR \\\n  /app\n", "/app"),
        ("FROM x\nWORKDIR $HOME\n", ""),
        ("FROM x\n# WORKDIR /no\n", ""),
    ],
)
def test_the_workdir_of_a_dockerfile(dockerfile: str, workdir: str) -> None:
    assert workdir_of(dockerfile) == workdir


@pytest.mark.parametrize("piece", ["\n", "WORKDIR a\n", " "])
def test_a_dockerfile_is_read_in_linear_time(piece: str) -> None:
    assert growth(lambda n: workdir_of(f"WORKDIR a{piece * n}b"), 4_000, 16_000) < 3


@pytest.mark.parametrize(
    ("line", "wanted"),
    [("", None), ("allow_internet = true\n", True), ("allow_internet = false\n", False)],
)
def test_whether_a_task_asks_for_a_network(line: str, *, wanted: bool | None) -> None:
    assert made(folder(MINIMAL + line)).wants_network is wanted
