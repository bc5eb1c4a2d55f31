"""The shell program that runs the tests, and safe rewrites of the official scripts. Pure.

The log is all that one command writes to its stdout; no text in it marks where it begins or ends.
What an official script does before its tests goes to stderr: it installs the package again, checks
out files of the base commit by its id, and names the folder of the image it was written for. A
sandbox may be another place. The test patch in a script is never touched. Used by `run`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from swe_rollout.errors import TaskError
from swe_rollout.types.instance import Evaluation

_INSTALL: Final = re.compile(r"^(?:python[\d.]* -m )?pip3? install\b.*$", re.MULTILINE)
_EDITABLE: Final = re.compile(r"\s(?:-e|--editable)[\s=]+['\"]?\.(?:['\"\[\s]|$)")
_OFFLINE: Final = "--no-index --no-deps --no-build-isolation"
_ACTIVATE: Final = "/opt/miniconda3/bin/activate"
_BUILD_FILES: Final = (
    *("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in", "meson.build", "meson_options.txt"),
    *("CMakeLists.txt", "Makefile", "requirements*.txt", "hatch_build.py", "_build.py", "*.cmake"),
    *("*.c", "*.cc", "*.cpp", "*.cxx", "*.h", "*.hpp", "*.pyx", "*.pxd", "*.pxi", "*.pyf"),
    *("*.f", "*.f90", "*.f95", "*.for", "*.rs", "Cargo.*", "*.in", "*.src", "*.template"),
)
_BEGIN: Final = re.compile(r"^\s*(?::|echo) '>>>>> Start Test Output'\s*$", re.MULTILINE)
_END: Final = re.compile(r"^\s*(?::|echo) '>>>>> End Test Output'\s*$", re.MULTILINE)
_NO_INPUT: Final = "exec </dev/null\n"
# A higher exit code than 128 then says that this shell was killed, not a test command.
_TESTS: Final = """\
exec 2>&1
(
{}
)
swe_rollout_code=$?
[ "$swe_rollout_code" -le 128 ] || swe_rollout_code=128
exit "$swe_rollout_code"
"""


@dataclass(frozen=True, slots=True)
class Program:
    """The shell program that runs the tests, in two parts."""

    setup: str
    """What an official script does before its tests; its output belongs to no log."""
    tests: str
    """The test commands; all they write is the log."""

    @property
    def text(self) -> str:
        """The whole program. Its exit code is that of the last test command, at most 128."""
        setup = f"{{\n:\n{self.setup}\n}} >&2\n" if self.setup else ""
        return _NO_INPUT + setup + _TESTS.format(self.tests)


def program(evaluation: Evaluation) -> Program:
    """Return the program that runs the tests. Raises TaskError when there is none."""
    if evaluation.script is None and evaluation.commands:
        return Program("", "\n".join(evaluation.commands))
    script = evaluation.script or ""
    begin = _BEGIN.search(script)
    end = _END.search(script, begin.end()) if begin else None
    if begin is None or end is None:
        raise TaskError(
            "the instance does not say how its tests are run",
            why="its script does not mark where the test output starts and ends"
            if script
            else "it has neither a script nor commands",
            fix="give it commands (`test_cmd` in rows) or a script of SWE-bench's form",
            retryable=False,
        )
    # What follows the tests only tidies up a sandbox that is thrown away.
    return Program(script[: begin.start()], script[begin.end() : end.start()])


@dataclass(frozen=True, slots=True)
class Place:
    """How a sandbox differs from the image that a script was written for."""

    workdir: str
    """The folder that the script names."""
    own_workdir: str
    """The folder in the sandbox."""
    commit: str = ""
    """The base commit that the script names, where the sandbox has none of this id; or empty."""
    own_commit: str = ""
    """The commit that stands for it."""

    def adapt(self, commands: str) -> str:
        """Return commands with the sandbox's own folder and commit."""
        if self.commit:
            commands = commands.replace(self.commit, self.own_commit)
        if self.own_workdir != self.workdir:
            name = rf"(?<![\w./-]){re.escape(self.workdir)}(?![\w.-])"
            commands = re.sub(name, lambda _: self.own_workdir, commands)
            commands = commands.replace(_ACTIVATE, f'"${{SWE_ROLLOUT_ACTIVATE:-{_ACTIVATE}}}"')
        return commands


@dataclass(frozen=True, slots=True)
class Setup:
    """The steps before the tests."""

    text: str
    findings: tuple[str, ...] = ()
    installs: bool = False
    """Whether it installs the package again, and writes how that ended to the path it was given."""


def rewrite(setup: str, *, patch: str, place: Place, changed: Collection[str], path: str) -> Setup:
    """Return the steps before the tests, which hold the test patch `patch`.

    Where no file of `changed` is one that a build reads, an editable install is as good as a new
    one. Otherwise the package is installed again, at last without a network; the exit code goes to
    the file `path`.
    """
    before, found, after = setup.partition(patch) if patch.strip() else (setup, "", "")
    findings: list[str] = []
    builds = sorted(name for name in changed if is_build_file(name))
    installs = False

    def install(match: re.Match[str]) -> str:
        nonlocal installs
        line = match[0]
        if _EDITABLE.search(line) and not builds:
            findings.append(
                "the package is not installed again: the patch changes no file that a build reads"
            )
            return ":"
        installs = True
        return f"{{ {line} || {line} {_OFFLINE}; }}; echo $? >{path}"

    parts = [_INSTALL.sub(install, place.adapt(part)) for part in (before, after)]
    if place.commit:
        findings.append(
            f"the repository has no commit {place.commit[:12]}; its only one stands for it"
        )
    return Setup(found.join(parts) if found else parts[0], tuple(findings), installs)


def is_build_file(path: str) -> bool:
    """Whether a build of a package may read this file, other than to copy it."""
    name = posixpath.basename(path)
    return any(fnmatchcase(name, pattern) for pattern in _BUILD_FILES)


def of_install(code: bytes) -> tuple[str, ...]:
    """Find that the package could not be installed again, from what was written about it."""
    if code.strip() == b"0":
        return ()
    found = (
        "the package could not be installed again, so the patch's changes of its build have no "
        "effect: the environment may lack its build tools, and there may be no network"
    )
    return (found,)
