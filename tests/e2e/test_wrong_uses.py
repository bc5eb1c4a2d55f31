"""Ways in which people use the product wrongly: each is an error with a cure, and the cure works.

`wrong_uses/*.yaml` lists them. A case begins in a folder with a job, its rows and stored jobs; it
changes files and does something wrong: a command, or a program. The error has the exit code, the
words that say what is wrong and how to mend it, no traceback, and nothing that was there is
changed. The cure is what the error says to do; it ends in success.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from e2e import warm
from e2e.command import scripted_server
from e2e.model_hub import model_hub
from swe_rollout.agent.tools import TOOLS
from swe_rollout.cli.output import stderr_console
from swe_rollout.datasets import DATASETS
from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.errors import SweRolloutError
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.spec.load import load_job
from swe_rollout.store.store import Store
from swe_rollout.testing.tiny import tokenizer_path
from tree_images import make_tree_image
from unit.cli.cli_parts import run_cli, without_cluster
from unit.cli.store_parts import EPISODES
from unit.store.storage_server import Memory, Request, Response, error, storage
from unit.worker.work_parts import TASK

CASES = Path(__file__).parent / "wrong_uses"
JOB = """\
apiVersion: swe-rollout.dev/v1alpha1
kind: RolloutJob
metadata:
  name: demo
spec:
  dataset:
    swebench: {uri: rows.jsonl}
  samples: 2
  policy:
    scripted: {scenarios: [gold]}
  sandbox:
    local: {images: images}
  store:
    uri: file://runs
"""
MARKERS = ("Traceback (most recent call last)", "this is a bug in swe-rollout")
AT_LEAST = 150
FIELDS = ("NAME", "EMAIL", "DATE")
"""Of a commit, fixed, so that the commit of the image is the same everywhere."""
SERVER = re.compile(r"\b(ENGINE|HUB|STORAGE|STRANGER)\b")
ROW = re.compile(r"ROW(?:\(([^)]*)\))?")


@dataclass(frozen=True)
class Step:
    """What somebody does: changes of files, and a command line, a shell line or a program."""

    run: str = ""
    """The words after `swe-rollout`."""
    shell: str = ""
    python: str = ""
    edit: tuple[tuple[str, str], ...] = ()
    """Parts of `job.yaml`, and what stands in their place."""
    files: MappingProxyType[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    """Files by name; null removes one."""
    encoding: str = "utf-8"
    env: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}))
    exit: int = 0
    says: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    """What must not be repeated: secrets."""


@dataclass(frozen=True)
class Case:
    """One wrong use, and its cure."""

    name: str
    wrong: Step
    cure: Step
    needs: frozenset[str]
    """The servers that it needs, as it writes their addresses: ENGINE, HUB, STORAGE, STRANGER."""


def row(changes: str) -> str:
    """A row of the dataset: `column=value` sets a column, `column=name` renames it."""
    columns = dict(to_row(TASK))
    for name, value in re.findall(r"(\w+)=(\[\]|\"[^\"]*\"|\w+)", changes):
        if value.isidentifier():
            columns[value] = columns.pop(name)
        else:
            columns[name] = json.loads(value)
    return json.dumps(columns)


def frozen(value: Any) -> Any:
    match value:
        case dict():
            return MappingProxyType(value)
        case list():
            return tuple(frozen(each) for each in value)
        case _:
            return value


def step(told: dict[str, Any]) -> Step:
    return Step(**{name: frozen(value) for name, value in told.items()})


def cases() -> Iterator[Case]:
    for path in sorted(CASES.glob("*.yaml")):
        for told in yaml.safe_load(path.read_text("utf-8")):
            name = f"{path.stem}-{told['name']}"
            wrong, cure = step(told["wrong"]), step(told["cure"])
            if not (cure.run or cure.shell or cure.python):
                cure = replace(cure, run=wrong.run, shell=wrong.shell, python=wrong.python)
            if cure.run == "run job.yaml" and not cure.says:
                # As good a proof that the file is read, and faster than to open the job.
                cure = replace(cure, run="datasets rows job.yaml", says=('"instance_id": "a"',))
            yield Case(name, wrong, cure, frozenset(SERVER.findall(str(told))))


ALL = {case.name: case for case in cases()}


def test_there_are_many_and_each_has_a_cure() -> None:
    assert len(ALL) >= AT_LEAST
    for case in ALL.values():
        assert case.wrong.says, case.name
        assert case.wrong != case.cure, case.name
        has_code = case.wrong.exit in (1, 2, 3, 4) or bool(case.wrong.shell)
        assert bool(case.wrong.python) or has_code, case.name


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a job, its rows, and stored jobs: all, some and none of them committed."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "job.yaml").write_text(JOB)
    (folder / "rows.jsonl").write_text(json.dumps(to_row(TASK)) + "\n")
    tree = make_tree_image(TASK.image, folder / "images", {"x": "1\n"})
    who = {
        f"GIT_{role}_{what}": "2026-01-01T00:00:00Z"
        for role in ("AUTHOR", "COMMITTER")
        for what in FIELDS
    }
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "1")):
        subprocess.run(["git", *words], cwd=tree, env={**os.environ, **who}, check=True)
    (folder / "bin").mkdir()
    for tool in ("rm", "git", "sh", "true", "cat", "head"):
        if found := shutil.which(tool):
            (folder / "bin" / tool).symlink_to(found)

    async def store() -> None:
        store = Store.open(f"file://{folder}/runs")
        for name, episodes in (("demo", EPISODES), ("half", EPISODES[:1]), ("fresh", ())):
            job = load_job(folder / "job.yaml", [f"metadata.name={name}"])
            await store.begin(job, {"a": TASK.digest})
            for each in episodes:
                mine = replace(each, episode=replace(each.episode, job=name), token_path=None)
                assert await store.commit(mine)

    asyncio.run(store())
    return folder


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """The address of an engine that serves the built-in model."""
    with scripted_server("--scenarios", "gold") as url:
        yield url


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    """The address of a hub with an open and a gated model."""
    with model_hub() as url:
        yield url


@pytest.fixture(scope="module")
def object_storage() -> Iterator[str]:
    """The address of object storage with one bucket, which the key `reader` may only read."""
    memory = Memory()

    def respond(request: Request) -> Response:
        if not request.path.startswith("/rollouts"):
            return error(404, "NoSuchBucket")
        if request.method == "PUT" and "Credential=reader/" in request.headers["authorization"]:
            return error(403, "AccessDenied", "Access Denied.")
        return memory(request)

    with storage(respond) as server:
        yield server.url


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    """The address of a server that answers `{}` to whatever it is asked."""
    with storage(lambda _: Response(200, b"{}")) as server:
        yield server.url


FIXTURES = {
    "ENGINE": "engine",
    "HUB": "hub",
    "STORAGE": "object_storage",
    "STRANGER": "stranger",
}


@dataclass
class Person:
    """Somebody in a folder of their own."""

    folder: Path
    addresses: dict[str, str]
    monkeypatch: pytest.MonkeyPatch
    captured: pytest.CaptureFixture[str]

    def does(self, what: Step) -> tuple[int, str]:
        """Change files, then do it; return the exit code (1 for an exception) and what it says."""
        text = JOB
        for old, new in what.edit:
            assert old in text, old
            text = text.replace(old, self.filled(new))
        (self.folder / "job.yaml").write_bytes(text.encode(what.encoding))
        for name, content in what.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_bytes(self.filled(content).encode(what.encoding))
        self.before = self.snapshot()
        with self.monkeypatch.context() as patch:
            for name, value in what.env.items():
                patch.setenv(name, self.filled(value))
            if what.python:
                return self._program(self.filled(what.python))
            if what.shell:
                return self._shell(what.shell)
            return self._command(patch, self.filled(what.run))

    def filled(self, text: str) -> str:
        text = ROW.sub(lambda found: row(found[1] or ""), text)
        text = re.sub(r"\bTOKENIZER\b", str(tokenizer_path()), text)
        text = SERVER.sub(lambda found: self.addresses.get(found[0], found[0]), text)
        return text.replace("FOLDER", str(self.folder))

    def snapshot(self) -> dict[str, bytes]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}

    def lost(self) -> list[str]:
        """The files that were there before the last step, and are not as they were."""
        now = self.snapshot()
        return [name for name, data in self.before.items() if now.get(name) != data]

    def _command(self, patch: pytest.MonkeyPatch, line: str) -> tuple[int, str]:
        for known in (stderr_console, bubblewrap.refusal):  # by an earlier command
            known.cache_clear()
        code = run_cli(patch, *shlex.split(line))
        for known in (stderr_console, bubblewrap.refusal):
            known.cache_clear()
        out, err = self.captured.readouterr()
        return code, out + err

    def _shell(self, line: str) -> tuple[int, str]:
        path = warm.programs()
        program = shutil.which("swe-rollout", path=path) or ""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line.replace("swe-rollout", program)],
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    def _program(self, code: str) -> tuple[int, str]:
        for point in (DATASETS, REWARD_TERMS, TOOLS):  # what it registers stays with it
            self.monkeypatch.setattr(point, "_registered", dict(point._registered))
        path = self.folder / "program.py"
        path.write_text(code)
        self.before = self.snapshot()
        try:
            runpy.run_path(str(path), run_name="program")
        except SystemExit as ended:
            return int(ended.code or 0), self.captured.readouterr().err
        except (SweRolloutError, TypeError, AttributeError) as error:
            shown = traceback.format_exception_only(type(error), error)
            return 1, "".join(shown) + self.captured.readouterr().err
        return 0, "".join(self.captured.readouterr())


@pytest.fixture
def person(
    world: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[dict[str, str]], Person]:
    """Make somebody in a copy of the world, on a machine without a cluster."""

    def make(addresses: dict[str, str]) -> Person:
        folder = tmp_path / "here"
        shutil.copytree(world, folder, symlinks=True)
        without_cluster(monkeypatch, tmp_path)
        for name in [name for name in os.environ if name.startswith(("AWS_", "SWE_ROLLOUT_"))]:
            monkeypatch.delenv(name)
        for name in ("HF_HOME", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        return Person(folder, addresses, monkeypatch, capsys)

    return make


@pytest.mark.parametrize("name", ALL)
def test_a_wrong_use_says_what_why_and_how_and_the_cure_works(
    name: str, person: Callable[[dict[str, str]], Person], request: pytest.FixtureRequest
) -> None:
    case = ALL[name]
    someone = person({each: request.getfixturevalue(FIXTURES[each]) for each in case.needs})

    code, said = someone.does(case.wrong)

    wanted = 1 if case.wrong.python and not case.wrong.exit else case.wrong.exit
    assert code == wanted, said
    for words in case.wrong.says:
        assert someone.filled(words) in said
    assert [words for words in (*MARKERS, *case.wrong.hides) if words in said] == []
    assert someone.lost() == []

    code, said = someone.does(case.cure)

    assert code == case.cure.exit, said
    for words in case.cure.says:
        assert someone.filled(words) in said
