"""Make the shell program that runs the tests, and safe rewrites of the official scripts. Pure.

The log is everything that one command writes to stdout; no text in it marks its start or end. The
output of an official script's steps before the tests goes to stderr. These steps reinstall the
package, check out files of the base commit by id and name the folder of the original image, from
which a sandbox may differ. The test patch in a script is never changed. Used by `run`.
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
_BEGIN: Final = re.compile(r"^[ \t]*(?::|echo) '>>>>> Start Test Output'\s*?$", re.MULTILINE)
_END: Final = re.compile(r"^[ \t]*(?::|echo) '>>>>> End Test Output'\s*?$", re.MULTILINE)
_NO_INPUT: Final = "exec </dev/null\n"
# An exit code above 128 then means that this shell was killed, not a test command.
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
    """The steps of an official script before its tests; their output is in no log."""
    tests: str
    """The test commands; all of their output is the log."""

    @property
    def text(self) -> str:
        """The whole program. Its exit code is that of the last test command, but at most 128."""
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
    # Commands after the tests only tidy up a sandbox that is thrown away.
    return Program(script[: begin.start()], script[begin.end() : end.start()])


@dataclass(frozen=True, slots=True)
class Place:
    """The differences between a sandbox and the image that a script was written for."""

    workdir: str
    """The folder that the script names."""
    own_workdir: str
    """The folder in the sandbox."""
    commit: str = ""
    """The base commit that the script names, if the sandbox lacks it; else empty."""
    own_commit: str = ""
    """The sandbox's commit that stands for it."""

    def adapt(self, commands: str) -> str:
        """Return the commands with the sandbox's own folder and commit."""
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
    """Whether they reinstall the package and write the exit code to the given path."""


def rewrite(setup: str, *, patch: str, place: Place, changed: Collection[str], path: str) -> Setup:
    """Rewrite the steps before the tests, which contain the test patch `patch`.

    If a build reads no file in `changed`, the present editable install is as good as a new one.
    Otherwise the package is reinstalled, as a last resort without a network, and the exit code goes
    to the file `path`.
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
    """Return whether a package's build may read this file rather than just copy it."""
    name = posixpath.basename(path)
    return any(fnmatchcase(name, pattern) for pattern in _BUILD_FILES)


def of_install(code: bytes) -> tuple[str, ...]:
    """Describe a failed reinstallation, given the exit code that was written about it."""
    if code.strip() == b"0":
        return ()
    found = (
        "the package could not be installed again, so the patch's changes of its build have no "
        "effect: the environment may lack its build tools, and there may be no network"
    )
    return (found,)
