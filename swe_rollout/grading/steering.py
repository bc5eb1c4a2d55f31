"""Decide which changes of a patch are undone before it is graded. Pure.

Files that steer how tests run, the graded tests' folders, modules that would be imported in place
of others, and compiled code are reset to the base, unless the gold patch changes them. A patch
that solves its task does not need such changes: the gold patch passes the tests without them.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cached_property
from typing import Final

RUNNER_FILES: Final[Mapping[str, str]] = {
    "python_log": "conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml .coveragerc tox.ini "
    "tox.toml setup.cfg setup.py pyproject.toml noxfile.py runtests.py .noserc nose.cfg nose2.cfg "
    "unittest.cfg sitecustomize.* usercustomize.* *.pth *.egg-link entry_points.txt",
    "native_log": "Makefile makefile GNUmakefile CTestTestfile.cmake CTestCustom.cmake "
    "CTestConfig.cmake nextest.toml rust-toolchain rust-toolchain.toml go.work",
    "jvm_log": "junit-platform.properties testng.xml build.xml *.gradle *.gradle.kts "
    "gradle.properties gradle-wrapper.properties",
    "node_log": "jest.config.* jest.setup.* jest-preset.* vitest.config.* vitest.setup.* "
    "vitest.workspace.* vite.config.* .mocharc .mocharc.* mocha.opts karma.conf.* ava.config.* "
    "jasmine.json jasmine.mjs .taprc .nycrc .nycrc.* nyc.config.* .c8rc .c8rc.* babel.config.* "
    ".babelrc .babelrc.* .swcrc .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnp.cjs "
    ".pnp.loader.mjs bunfig.toml",
    "script_log": ".rspec .rspec-local spec_helper.rb rails_helper.rb test_helper.rb .simplecov "
    "Rakefile Rakefile.rb rakefile rakefile.rb *.rake Gemfile Gemfile.lock gems.rb gems.locked "
    "*.gemspec cucumber.yml cucumber.yaml .test-unit.yml test-unit.yml phpunit.xml "
    "phpunit.xml.dist phpunit.dist.xml Pest.php",
    "browser_log": "playwright.config.* cypress.config.* testem.* web-test-runner.config.* "
    "gulpfile.* Gruntfile.* Jakefile Jakefile.*",
    "reports": ".env .envrc .gitattributes",
}
"""Names of the files that steer how tests run, by the family of parsers that reads their logs;
those of the last can steer any runner."""
_STEERING: Final = re.compile("|".join(map(translate, " ".join(RUNNER_FILES.values()).split())))
_STEERING_PATHS: Final = re.compile(
    r"(?:.*/)?(?:\.cargo/config(?:\.toml)?|(?:\.mvn|\.bundle|buildSrc)/.*"
    r"|META-INF/services/org\.(?:junit|testng)\..*|minitest/[^/]*_plugin\.rb)"
    r"|(?:(?!src/)[^/]+/)*build\.rs"
)
_COMPILED: Final = ("*.pyc", "*.pyo", "*.so", "*.so.*", "*.pyd", "*.dylib", "*.dll", "*.egg")
_TESTS: Final = re.compile(r"tests?(?:[_-].*)?|__tests__")
_TESTING: Final = re.compile(r"(?:.*/)?(?:testing|specs?)|features")
"""Folders of tests if none below them is one; elsewhere, a folder of sources has such names."""
_TEST_FILE: Final = re.compile(r".*(?:_test\.go|\.(?:test|spec)\.[cm]?[jt]sx?)")
"""Test files that lie among sources. Go builds those of a folder into one program, in which each
may run before the others; and where two define one test, none runs."""
_MODULE: Final = re.compile(r"\.(?:py|[\w-]*\.?so|pyd)$")
_RUNNERS: Final = frozenset(
    """pytest _pytest py pluggy iniconfig packaging exceptiongroup tomli colorama attr attrs xdist
    pytest_asyncio pytest_cov coverage hypothesis nose nose2 tox setuptools pkg_resources pip
    sitecustomize usercustomize mock six""".split()
)
IMPORTED: Final = _RUNNERS | sys.stdlib_module_names
"""Modules that tests import from outside the repository; an image may have more of them."""
_LONGEST: Final = 4096
"""No file has a longer path; datasets may name one."""
MOST: Final = 5000
"""The most changes that are undone; a patch with more can't be graded."""


@dataclass(frozen=True, slots=True)
class Undone:
    """A change that is undone."""

    path: str
    """The file or whole folder that is reset to the base."""
    why: str

    def __str__(self) -> str:
        return f"{self.why}; undone"


@dataclass(frozen=True, slots=True)
class Shadow:
    """A module outside any package, which may be imported in place of another."""

    folder: str
    """The folder that holds it; empty for the root of the repository."""
    name: str
    path: str
    """The path to remove with the module: its file, or its package."""
    is_searched: bool
    """Whether modules are surely imported from the folder by their bare names."""

    @property
    def module(self) -> str:
        """The path of a plain module of this name."""
        return f"{self.folder}/{self.name}.py".removeprefix("/")


@dataclass(frozen=True)
class Task:
    """The paths and commands of a task that decide which changes are undone.

    What follows from them is computed once: a patch may change hundreds of thousands of paths.
    """

    gold: frozenset[str]
    """Paths that the gold patch changes."""
    hidden: frozenset[str]
    """Paths that the test patch changes."""
    commands: str
    """The test commands."""

    def undone(self, touched: Collection[str]) -> tuple[Undone, ...]:
        """Return the changes to undo, given the paths that a patch has actually changed."""
        return tuple(undone for path in sorted(touched) if (undone := self._undone(path)))

    def _undone(self, path: str) -> Undone | None:
        if path in self.hidden:
            return Undone(path, f"edits {path}, a graded test file")
        for folder in _folders(path):
            if f"{folder}.py" in self.hidden:
                return Undone(folder, f"adds {path} beside {folder}.py, a graded test")
        return None if path in self.gold else self._unneeded(path)

    def _unneeded(self, path: str) -> Undone | None:
        name = path.rpartition("/")[2]
        steers = bool(_STEERING.match(name) or _STEERING_PATHS.fullmatch(path))
        # Plugins read them beside the tests or above; elsewhere they are a package's data.
        folder = path.rpartition("/")[0]
        steers = steers or (name.endswith(".env") and _holds(folder, self._sorted_hidden))
        if steers or path in self._words:
            return Undone(path, f"edits {path}, which steers how tests run")
        if any(fnmatchcase(name, pattern) for pattern in _COMPILED):
            return Undone(path, f"edits {path}, which is compiled")
        if _TEST_FILE.fullmatch(name) and folder in self._beside:
            return Undone(path, f"edits {path}, beside graded tests")
        if path in self._test_folders or not self._test_folders.isdisjoint(_folders(path)):
            return Undone(path, f"edits {path}, in the folder of graded tests")
        return None

    def shadows(self, touched: Collection[str]) -> tuple[Shadow, ...]:
        """Return the changed modules and packages that may shadow others, by their paths."""
        found: dict[str, Shadow] = {}
        for path in touched:
            if path in self.gold or not (path.endswith(".py") or _MODULE.search(path)):
                continue
            if "\t" in path:
                continue  # No import statement can name it.
            for shadow in self._shadows(path):
                if not _holds(shadow.path, self._sorted_gold):
                    found[shadow.path] = shadow
        return tuple(found.values())

    @cached_property
    def _words(self) -> frozenset[str]:
        """The words in the commands that may be paths, such as `bin/test`."""
        found = re.findall(r"[\w./-]+", self.commands)
        return frozenset(word.removeprefix("./") for word in found)

    @cached_property
    def _test_folders(self) -> frozenset[str]:
        """The widest folders of the hidden tests that contain no file of the gold patch."""
        found = set[str]()
        for file in self.hidden:
            is_named = any(_TESTS.fullmatch(part) for part in file.split("/")[:-1])
            for folder in _folders(file):
                part = folder.rpartition("/")[2]
                is_tests = _TESTS.fullmatch(part) if is_named else _TESTING.fullmatch(folder)
                if is_tests and not _holds(folder, self._sorted_gold):
                    found.add(folder)
                    break
        return frozenset(found)

    @cached_property
    def _sorted_gold(self) -> list[str]:
        return sorted(self.gold)

    @cached_property
    def _sorted_hidden(self) -> list[str]:
        return sorted(self.hidden)

    def _shadows(self, path: str) -> Iterator[Shadow]:
        folder, _, name = path.rpartition("/")
        module = name.partition(".")[0]
        if module in ("__init__", "__main__"):
            above, _, package = folder.rpartition("/")
            if package:
                yield Shadow(above, package, folder, self._is_searched(above))
        elif module:
            yield Shadow(folder, module, path, self._is_searched(folder))

    def _is_searched(self, folder: str) -> bool:
        return not folder or folder in self._beside or folder in self._words

    @cached_property
    def _beside(self) -> frozenset[str]:
        """The folders of the hidden tests."""
        return frozenset(file.rpartition("/")[0] for file in self.hidden)


def _folders(path: str) -> Iterator[str]:
    """Yield the folders that contain a path, the widest first, without the root."""
    end = path.find("/")
    while 0 < end < _LONGEST:
        yield path[:end]
        end = path.find("/", end + 1)


def _holds(folder: str, paths: Sequence[str]) -> bool:
    """Return whether one of these sorted paths is below a folder; the root is the empty one."""
    below = f"{folder}/"
    place = bisect_left(paths, below)
    return not folder or (place < len(paths) and paths[place].startswith(below))
