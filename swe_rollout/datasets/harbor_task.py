"""Make an instance from a Harbor task: `task.toml`, the Dockerfile's workdir, the files.

A setting that can't be honoured is reported, never ignored: a grade would mean something else.
"""

from __future__ import annotations

import base64
import posixpath
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from swe_rollout.datasets.harbor_files import CONFIG, TaskFolder, read_tasks
from swe_rollout.datasets.row_fields import WrongRowError, wrong
from swe_rollout.datasets.source import is_instance_id, paced
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.types.instance import Evaluation, FolderTask, Instance, Rule, TaskFile

DEFAULT_WORKDIR = "/app"
_MAX_INSTRUCTION_CHARS = 1 << 20
_MAX_TIMEOUT_S = 86_400.0
_LONGEST_PATH = 4096
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FROM = re.compile(r"^[ \t]*FROM\s", re.IGNORECASE | re.MULTILINE)
_WORKDIR = re.compile(r"^[ \t]*WORKDIR[ \t]+(\S.*)$", re.IGNORECASE | re.MULTILINE)
Timeout = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Environment = dict[str, str]


class _Part(BaseModel):
    """A part of `task.toml`; fields that are not listed, such as `metadata`, are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Verifier(_Part):
    timeout_sec: Timeout = 600.0
    env: Environment = Field(default_factory=dict)
    environment: dict[str, object] | None = None
    environment_mode: str | None = None


class _Solution(_Part):
    timeout_sec: Timeout | None = None
    env: Environment = Field(default_factory=dict)


class _Agent(_Part):
    timeout_sec: Timeout | None = None


class _Environment(_Part):
    docker_image: str | None = None
    workdir: str | None = None
    os: str = "linux"
    gpus: int | None = None
    env: Environment = Field(default_factory=dict)
    allow_internet: bool | None = None


class _Artifact(_Part):
    source: str


class _Config(_Part):
    verifier: _Verifier = _Verifier()
    solution: _Solution = _Solution()
    agent: _Agent = _Agent()
    environment: _Environment = _Environment()
    steps: list[object] | None = None
    artifacts: list[str | _Artifact] = Field(default_factory=list)


def instance_of(task: TaskFolder, *, image: str, keep: Sequence[str]) -> Instance | Problem:
    """Return the task's instance, or the problem that prevents it.

    `image` is a template for tasks that name no image; `keep` lists further paths to grade.
    """
    try:
        return _instance(task, image, keep)
    except WrongRowError as error:
        [fault] = error.faults
        return Problem(task.name, fault.field, fault.message)


def _instance(task: TaskFolder, image: str, keep: Sequence[str]) -> Instance:
    if not is_instance_id(task.name):
        raise wrong("", "its folder's name can't name a task: letters, digits and ._+-")
    config = _config(task)
    _check_supported(task, config)
    named = config.environment.docker_image or image.replace("{name}", task.name.lower())
    if not named:
        raise wrong(
            "environment.docker_image",
            "is missing: build environment/Dockerfile, and name the images with `image` "
            "({name} is the task's)",
        )
    dockerfile = _text(task, "environment/Dockerfile", optional=True)
    workdir = config.environment.workdir or workdir_of(dockerfile) or DEFAULT_WORKDIR
    if not _is_path(workdir):
        raise wrong("environment.workdir", f"{workdir[:80]!r} is no absolute path below /")
    wanted = [each if isinstance(each, str) else each.source for each in config.artifacts]
    artifacts = [posixpath.normpath(path) for path in wanted if _is_path(path)]
    agent_s = config.solution.timeout_sec or config.agent.timeout_sec or 1800.0
    has_solution = "solution/solve.sh" in task.files
    return Instance(
        instance_id=task.name,
        source="harbor",
        problem_statement=_text(task, "instruction.md"),
        image=named,
        workdir=workdir,
        evaluation=Evaluation(
            commands=(*_exports("verifier.env", config.verifier.env), "/tests/test.sh"),
            timeout_s=min(config.verifier.timeout_sec, _MAX_TIMEOUT_S),
        ),
        rule=Rule.REWARD_FILE,
        wants_network=config.environment.allow_internet,
        folder=FolderTask(
            kept=_distinct([workdir, *artifacts, *map(posixpath.normpath, keep)]),
            start=() if dockerfile else _files(task, "environment/", f"{workdir}/"),
            tests=_files(task, "tests/", "/tests/", always=("test.sh",)),
            solution=_files(task, "solution/", "/solution/", always=("solve.sh",)),
            solve="\n".join((*_exports("solution.env", config.solution.env), "/solution/solve.sh"))
            if has_solution
            else "",
            solve_timeout_s=min(agent_s, _MAX_TIMEOUT_S),
        ),
    )


def _config(task: TaskFolder) -> _Config:
    try:
        return _Config.model_validate(tomllib.loads(_text(task, CONFIG)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise wrong(CONFIG, f"is no TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise wrong(".".join(map(str, first["loc"])), first["msg"]) from error


def _check_supported(task: TaskFolder, config: _Config) -> None:
    if config.steps:
        raise wrong("steps", "tasks of several steps are not supported")
    if config.environment.os.lower() != "linux":
        raise wrong("environment.os", "only linux is supported")
    if config.environment.gpus:
        raise wrong("environment.gpus", "tasks with GPUs are not supported")
    if config.environment.env:
        raise wrong("environment.env", "is not supported: set it in the image (ENV)")
    if config.verifier.environment is not None or config.verifier.environment_mode == "separate":
        raise wrong("verifier.environment", "an image for the tests alone is not supported")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if f"environment/{name}" in task.files and not config.environment.docker_image:
            raise wrong(f"environment/{name}", "tasks of several containers are not supported")
    if "tests/test.sh" not in task.files:
        raise wrong("tests/test.sh", "is missing")


def workdir_of(dockerfile: str) -> str:
    """Return the last stage's working folder; empty when it can't be determined."""
    joined = re.sub(r"\\\r?\n", " ", dockerfile)
    starts = [match.start() for match in _FROM.finditer(joined)]
    workdir = ""
    for match in _WORKDIR.finditer(joined, starts[-1] if starts else 0):
        path = match[1].strip().strip("'\"")
        if "$" in path or len(workdir) + len(path) > _LONGEST_PATH:
            return ""
        workdir = posixpath.normpath(posixpath.join(workdir or "/", path))
    return workdir


def _is_path(path: str) -> bool:
    return path.startswith("/") and posixpath.normpath(path) not in ("/", "//") and "\0" not in path


def _distinct(paths: Sequence[str]) -> tuple[str, ...]:
    """Leave out paths inside another of the paths."""
    found: list[str] = []
    for path in sorted({path.rstrip("/") for path in paths}, key=len):
        if not any(path.startswith(f"{each}/") for each in found):
            found.append(path)
    return tuple(found)


def _text(task: TaskFolder, name: str, *, optional: bool = False) -> str:
    file = task.files.get(name)
    if file is None:
        if optional:
            return ""
        raise wrong(name, "is missing")
    try:
        text = file.data.decode()
    except UnicodeDecodeError as error:
        raise wrong(name, "is no UTF-8") from error
    if len(text) > _MAX_INSTRUCTION_CHARS:
        raise wrong(name, f"has more than {_MAX_INSTRUCTION_CHARS:,} characters")
    return text


def _exports(where: str, env: Mapping[str, str]) -> list[str]:
    """Return shell commands that set variables. Variables of this machine are not expanded."""
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise wrong(where, f"{name[:80]!r} is no name of a variable")
        if "${" in value:
            raise wrong(where, f"{name} asks for a variable of this machine: not supported")
    return [f"export {name}={shlex.quote(value)}" for name, value in env.items()]


def _files(
    task: TaskFolder, folder: str, target: str, *, always: tuple[str, ...] = ()
) -> tuple[TaskFile, ...]:
    """Return the files in one of the task's folders, with their paths in the sandbox."""
    return tuple(
        TaskFile(
            posixpath.join(target, name.removeprefix(folder)),
            base64.b64encode(file.data).decode(),
            file.executable or name.removeprefix(folder) in always,
        )
        for name, file in sorted(task.files.items())
        if name.startswith(folder)
    )


def _check_kept(keep: Sequence[str]) -> None:
    refused = [path for path in keep if not path.startswith("/") or path.strip("/") == ""]
    if refused:
        problems = [Problem("dataset", "keep", f"{path!r} is no absolute path") for path in refused]
        raise DatasetError("`keep` takes absolute paths below /", problems)


async def load(
    uri: str, *, base_dir: Path, image: str = "", keep: Sequence[str] = ()
) -> tuple[Instance | Problem, ...]:
    """Return an instance for each task, with a problem in place of a bad one, sorted by name.

    `uri` is a task's folder, a folder of tasks, or a tar archive of either: a path, `file://` or
    `s3://` (archives only). `image` names the images of tasks that name none; `{name}` in it stands
    for the task's name. Of the agent's changes, those in the workdir, the task's artifacts and the
    absolute paths `keep` are graded. Raises DatasetError when there is no task at all.
    """
    _check_kept(keep)
    tasks = await read_tasks(uri, base_dir=base_dir)
    results = [
        task if isinstance(task, Problem) else instance_of(task, image=image, keep=keep)
        async for task in paced(tasks)
    ]
    return tuple(results)
