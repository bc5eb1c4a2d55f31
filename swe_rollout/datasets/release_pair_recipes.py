"""Load the recipes of release pairs: the pinned files, and the tests that decide.

`release_pairs.yaml` is written by hand, `release_pairs_tests.yaml` by
`scripts/record-release-pairs`. Used by `release_pairs` and that script.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath

import msgspec
import yaml

from swe_rollout.datasets.package_index import Artifact
from swe_rollout.types.instance import Expected

WORKDIR = "/testbed"
SITE = "/opt/testbed/site"
_BUILD = 2
"""The version of the build procedure for images; part of every digest."""


@dataclass(frozen=True, slots=True)
class Release:
    """One source distribution."""

    version: str
    filename: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Dependency(Release):
    """A wheel, or a source distribution whose `folder` can be imported as it is."""

    folder: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A pair as the file describes it."""

    old: Release
    new: Release
    source: str
    """The package's folder, such as `src/click`; the gold patch changes nothing else."""
    run: tuple[str, ...]
    """Test files that decide."""
    dependencies: tuple[str, ...]
    problem_statement: str
    tests: str = "tests"
    """The tests' folder; the test patch changes nothing else."""
    options: tuple[str, ...] = ()
    """Further options for pytest."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair with its artifacts and expected tests."""

    project: str
    recipe: Recipe
    site: tuple[tuple[Artifact, str], ...]
    """The dependencies, each with the folder to import from."""
    expected: Expected

    @property
    def instance_id(self) -> str:
        """The id of the task, such as `sqlparse-0.5.2`."""
        return f"{self.project}-{self.recipe.new.version}"

    @property
    def old(self) -> Artifact:
        """The release the agent works on."""
        return _artifact(self.project, self.recipe.old)

    @property
    def new(self) -> Artifact:
        """The release with the fix and its tests."""
        return _artifact(self.project, self.recipe.new)

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """All files that the pair is made from."""
        return (self.old, self.new, *(artifact for artifact, _ in self.site))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every command in the image."""
        package_root = (PurePosixPath(WORKDIR) / self.recipe.source).parent
        return {
            "PYTHONPATH": f"{package_root}:{SITE}",
            "PYTHONDONTWRITEBYTECODE": "1",
            # The interpreter may have pytest plugins of its own.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            # A sandbox may run as a different user from the one who built the image.
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }

    @property
    def test_command(self) -> str:
        """The command that runs the deciding tests in `WORKDIR`."""
        options = " ".join(("-rA", "-p no:cacheprovider", "-o addopts=", *self.recipe.options))
        return f"python3 -m pytest {options} {' '.join(self.recipe.run)}"

    @property
    def digest(self) -> str:
        """A hash, 8 hex characters, of everything that determines the image and the patches."""
        content = (
            _BUILD,
            self.project,
            self.recipe.source,
            self.recipe.tests,
            [(a.filename, a.sha256) for a in self.artifacts],
            [folder for _, folder in self.site],
            self.environment,
        )
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:8]

    @property
    def image(self) -> str:
        """The name of the image."""
        return f"swe-rollout/release-pairs/{self.project}:{self.recipe.old.version}-{self.digest}"


@dataclass(frozen=True, slots=True)
class _Recipes:
    dependencies: dict[str, Dependency]
    pairs: dict[str, Recipe]


@dataclass(frozen=True, slots=True)
class TestLists:
    """The expected tests of a pair as stored in the file: grouped by test file."""

    __test__ = False  # pytest would take the class for a test

    fail_to_pass: dict[str, tuple[str, ...]]
    pass_to_pass: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, expected: Expected) -> TestLists:
        """Group test ids by file."""
        return cls(_by_file(expected.fail_to_pass), _by_file(expected.pass_to_pass))

    def expected(self) -> Expected:
        """Return the lists as test ids."""
        return Expected(_test_ids(self.fail_to_pass), _test_ids(self.pass_to_pass))


def load_pairs() -> dict[str, Pair]:
    """Load all pairs by project, in file order."""
    recipes = msgspec.convert(_yaml("release_pairs.yaml"), _Recipes)
    lists = msgspec.convert(_yaml("release_pairs_tests.yaml"), dict[str, TestLists])
    return {
        project: Pair(
            project,
            recipe,
            tuple(
                (_artifact(name, recipes.dependencies[name]), recipes.dependencies[name].folder)
                for name in recipe.dependencies
            ),
            lists[project].expected() if project in lists else Expected(),
        )
        for project, recipe in recipes.pairs.items()
    }


def _by_file(test_ids: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, list[str]] = {}
    for test_id in test_ids:
        file, _, name = test_id.partition("::")
        grouped.setdefault(file, []).append(name)
    return {file: tuple(names) for file, names in grouped.items()}


def _test_ids(grouped: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(f"{file}::{name}" for file, names in grouped.items() for name in names)


def _artifact(project: str, file: Release) -> Artifact:
    return Artifact(project, file.version, file.filename, file.sha256)


def _yaml(name: str) -> object:
    text = resources.files("swe_rollout.datasets").joinpath(name).read_text(encoding="utf-8")
    return yaml.safe_load(text)
