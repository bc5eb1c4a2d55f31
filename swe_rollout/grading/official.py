"""Safe rewrites of an official script, for sandboxes that are not the image it was written for.

Its steps before the tests install the package again, check out files of the base commit by its id,
and name the folder of the image. The test patch among them is never touched. Pure.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

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


@dataclass(frozen=True, slots=True)
class Place:
    """What a sandbox has otherwise than the image that a script was written for."""

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
