"""Instance: one task of a dataset, normalised so that nothing downstream depends on its source.

Dataset sources create instances (`swe_rollout.datasets`). The agent sees only `problem_statement`;
the gold patch, the test patch and the expected tests are for the grader.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final, TypeAlias

from swe_rollout.types.verdict import TestStatus

LOG_PARSER_FAMILIES: Final = {
    "python_log": "pytest pytest_options pytest_v2 django sympy seaborn matplotlib swesmith "
    "unittest r2e",
    "reports": "junit_xml json_results",
    "native_log": "gotest gotest_json cargo ctest googletest doctest automake redis micropython",
    "jvm_log": "maven surefire gradle ant",
    "node_log": "jest jest_json jest_files vitest mocha mocha_json karma tap",
    "script_log": "phpunit minitest ruby_unit rspec rspec_lines cucumber",
    "browser_log": "bpmn_js calypso chart_js eslint fusion_next highlightjs lighthouse_mocha "
    "marked openlayers p5js",
}
"""The names of the built-in log parsers, by the module of `grading.parsers` that holds them."""
BUILTIN_LOG_PARSERS: Final = tuple(" ".join(LOG_PARSER_FAMILIES.values()).split())


class Rule(StrEnum):
    """How test statuses become a verdict."""

    F2P_P2P = "f2p_p2p"
    """Resolved when every FAIL_TO_PASS and every PASS_TO_PASS test passes."""
    FAIL_ONLY = "fail_only"
    """Resolved when no expected test is reported as failed (suites that print failures only)."""
    EXACT_MATCH = "exact_match"
    """Resolved when the log reports exactly the expected tests, each with its expected status."""
    PASS_SET_EQUAL = "pass_set_equal"  # noqa: S105 - a rule
    """Resolved when exactly the expected tests pass."""
    PASS_SUPERSET = "pass_superset"  # noqa: S105 - a rule
    """Resolved when every expected test passes; a skip or an expected failure is not a pass."""
    NO_NEW_FAILURES = "no_new_failures"
    """Resolved when every FAIL_TO_PASS test passes and no PASS_TO_PASS test is reported as failed;
    a test that the log does not name has not failed."""
    REWARD_FILE = "reward_file"
    """Resolved when the reward that the tests write to a file is at least 1 (Harbor)."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How to run the tests: SWE-bench's script, or commands."""

    script: str | None = None
    """A bash script that applies the test patch and prints the log; replaces `commands`."""
    commands: tuple[str, ...] = ()
    """Shell commands that print the test log, run in `workdir` after the test patch is applied."""
    timeout_s: float = 1800.0
    """Time limit in seconds for the whole run."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Ids of the tests that must pass: those that the fix repairs, and those it must not break."""

    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    others: dict[str, TestStatus] = field(default_factory=dict)
    """Tests with another status even with the fix, by that status. Only EXACT_MATCH uses them."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file that a task brings along."""

    path: str
    """Absolute path in the sandbox."""
    content: str
    """The content in base64."""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class FolderTask:
    """The parts of a task whose work is in folders, not in a git repository (Harbor)."""

    kept: tuple[str, ...]
    """Absolute paths of files and folders whose changes are graded; all other changes are lost."""
    start: tuple[TaskFile, ...] = ()
    """Files to write in every sandbox before any work starts."""
    tests: tuple[TaskFile, ...] = ()
    """Files to write in grading sandboxes only, before `Evaluation.commands` run."""
    solution: tuple[TaskFile, ...] = ()
    """The reference solution. Never enters an agent's sandbox."""
    solve: str = ""
    """The shell command that carries out the solution; empty if there is none."""
    solve_timeout_s: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One task: an environment, a problem, and the tests that decide."""

    instance_id: str
    """The id, also a folder name in the store: letters, digits and `._+-`."""
    problem_statement: str
    image: str
    """The image whose file system the sandbox starts from."""
    repo: str = ""
    """The project, such as `django/django`."""
    source: str = ""
    """The format of its source row, such as `swebench_v5`; for people."""
    base_commit: str | None = None
    """The commit to work on; None for the image's HEAD."""
    workdir: str = "/testbed"
    gold_patch: str = field(default="", repr=False)
    """The reference fix. Never enters an agent's sandbox."""
    test_patch: str = field(default="", repr=False)
    """The hidden tests. Applied in grading sandboxes only."""
    evaluation: Evaluation = field(default_factory=Evaluation, repr=False)
    log_parser: str = "pytest"
    """The parser of the test log: a built-in or registered name, or `module:attr`."""
    rule: Rule = Rule.F2P_P2P
    expected: Expected = field(default_factory=Expected, repr=False)
    base_patch: str = field(default="", repr=False)
    """A diff from the image's files to the base, which injects a bug. The base then has no git
    history, because that would contain the files without the bug."""
    hidden_paths: tuple[str, ...] = field(default=(), repr=False)
    """Files and folders of the image to hide from an agent's sandbox, such as its tests: absolute
    paths, or paths below `workdir`."""
    test_files: tuple[str, ...] = field(default=(), repr=False)
    """Files of the base to restore before the tests run, in addition to those of `test_patch`."""
    extra: dict[str, object] = field(default_factory=dict, repr=False)
    """Other fields of its row, such as `difficulty`, for rewards and people."""
    wants_network: bool | None = None
    """Whether its author says that it needs a network; None if unknown. The job decides."""
    folder: FolderTask | None = field(default=None, repr=False)
    """Set for tasks without a git repository, which have no patches and no expected tests."""

    @property
    def digest(self) -> str:
        """A digest of 12 hex characters over the task itself, regardless of its source."""
        # Fields with their default value do not count, so that new fields can be added later.
        kept = {
            name: value
            for name, value in _fields_of(self).items()
            if name not in _ORIGIN and value != getattr(_BLANK, name)
        }
        text = json.dumps(kept, sort_keys=True, default=_fields_of)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __repr__(self) -> str:
        return f"<Instance {self.instance_id}: {_first_words(self.problem_statement)!r}>"


_BLANK: Final = Instance(instance_id="", problem_statement="", image="")
_ORIGIN: Final = ("source", "extra")
_Part: TypeAlias = Instance | Evaluation | Expected | FolderTask | TaskFile


def _fields_of(value: _Part) -> dict[str, object]:
    """Return the fields with their values uncopied: copies of all test ids take long."""
    told = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Expected) and not value.others:
        del told["others"]
    return told


def _first_words(text: str) -> str:
    """Return the start of a text of any length, on one line."""
    return textwrap.shorten(text[:200], 60, placeholder="…")
