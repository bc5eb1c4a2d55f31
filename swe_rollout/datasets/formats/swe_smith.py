"""Read rows of SWE-smith: the patch adds a bug, and the reversed patch is the fix.

The images contain the project without the bug. Upstream fetches a branch with the bug and without
the tests that reveal it; here the row's patch makes the same files, so no network is needed. An
agent gets them without these tests, and the grader with them.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from swe_rollout.datasets.projects import CONDA
from swe_rollout.datasets.row_fields import (
    Columns,
    Commands,
    Diff,
    Image,
    InstanceId,
    Repo,
    RowModel,
    Seconds,
    Statement,
    TestIds,
    Text,
    checked,
    extra,
    log_parser,
    wrong,
)
from swe_rollout.types.instance import Evaluation, Expected, Instance

MIRRORS: Final = "swesmith/"
"""The prefix in `repo` that names the organisation of the projects' mirrors."""
_NAMESPACE: Final = "jyangballin"
_PYTEST: Final = "pytest --disable-warnings --color=no --tb=no --verbose"
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_INDEX = re.compile(r"index ([0-9a-f]+)\.\.([0-9a-f]+)(.*)", re.DOTALL)
_PAIRS = (
    ("new file mode ", "deleted file mode "),
    ("old mode ", "new mode "),
    ("rename from ", "rename to "),
)
_NOT_TEXT = re.compile(r"^(?:GIT binary patch$|Binary files .* differ$|copy from )", re.MULTILINE)
_HEADERS = {first: second for pair in _PAIRS for first, second in (pair, pair[::-1])}
_SIGNS = {"+": "-", "-": "+"}


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("expected the diff that puts the bug in; found nothing")
    return text


class SmithRow(RowModel):
    """A row of SWE-smith, with the columns that users' own rows may add."""

    instance_id: InstanceId
    repo: Repo
    patch: Annotated[Diff, AfterValidator(_not_empty)]
    problem_statement: Statement
    fail_to_pass: TestIds = Field(alias="FAIL_TO_PASS", min_length=1)
    pass_to_pass: TestIds = Field(alias="PASS_TO_PASS")
    image_name: Image | None = None
    log_parser: Text = "swesmith"
    test_cmd: Commands | None = None
    test_timeout_s: Seconds = 600.0


def instance(columns: Columns) -> Instance:
    """Make the instance of a row. Raises WrongRowError, which names every wrong field."""
    record = checked(SmithRow, columns)
    parser = log_parser(record.log_parser, instance_id=record.instance_id)
    gold = reversed_diff(record.patch)
    if gold is None:
        raise wrong("patch", "holds a binary file, which can't be reversed")
    hidden = _files(record.fail_to_pass)
    files = tuple(dict.fromkeys((*hidden, *_files(record.pass_to_pass))))
    return Instance(
        instance_id=record.instance_id,
        source="swesmith",
        repo=record.repo.removeprefix(MIRRORS).rpartition(".")[0].replace("__", "/", 1),
        problem_statement=record.problem_statement,
        image=_image(record),
        gold_patch=gold,
        evaluation=Evaluation(
            commands=record.test_cmd or (CONDA, f"{_PYTEST} {shlex.join(files)}"),
            timeout_s=record.test_timeout_s,
        ),
        log_parser=parser,
        expected=Expected(record.fail_to_pass, record.pass_to_pass),
        base_patch=record.patch,
        hidden_paths=hidden,
        test_files=files,
        extra=extra(columns, SmithRow),
    )


def _image(record: SmithRow) -> str:
    name = record.image_name or f"swesmith.x86_64.{record.repo.removeprefix(MIRRORS)}"
    if "/" in name:
        return name
    return f"{_NAMESPACE}/{name.replace('__', '_1776_')}".lower()


def _files(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files named before `::` in test ids; never a path outside the repository."""
    files = dict.fromkeys(test.partition("::")[0] for test in tests if "::" in test)
    return tuple(f for f in files if not f.startswith(("/", "-")) and ".." not in f.split("/"))


def reversed_diff(diff: str) -> str | None:
    """Return the diff that undoes this one; None if it has binary files or copies."""
    if _NOT_TEXT.search(diff):
        return None
    # Only newlines end lines, not all the characters that `splitlines` splits at.
    return "".join(_reversed(io.StringIO(diff, newline="\n")))


def _reversed(lines: Iterable[str]) -> Iterator[str]:
    old = new = 0
    waiting: list[str] = []
    for line in lines:
        if old > 0 or new > 0 or line.startswith("\\"):
            sign = line[:1]
            old -= sign in ("-", " ", "\n", "\r")
            new -= sign in ("+", " ", "\n", "\r")
            yield _SIGNS.get(sign, sign) + line[1:]
            continue
        if hunk := _HUNK.match(line):
            old, new = (int(hunk[n]) if hunk[n] else 1 for n in (2, 4))
            first, second = _range(hunk[3], hunk[4]), _range(hunk[1], hunk[2])
            yield f"@@ -{first} +{second} @@{line[hunk.end() :]}"
        elif line.startswith(("--- ", *(one for one, _ in _PAIRS[1:]))):
            waiting.append(line)
        elif line.startswith("+++ "):
            yield from _paths(waiting, line)
            waiting.clear()
        elif waiting and (partner := _partner(waiting[-1])) and line.startswith(partner):
            # The second line of a pair replaces the first one.
            before = waiting.pop()
            yield _swapped(line)
            yield _swapped(before)
        else:
            yield from waiting
            waiting.clear()
            yield _header(line)


def _header(line: str) -> str:
    if index := _INDEX.match(line):
        return f"index {index[2]}..{index[1]}{index[3]}"
    if line.startswith("diff --git "):
        return line
    return _swapped(line)


def _swapped(line: str) -> str:
    for name, other in _HEADERS.items():
        if line.startswith(name):
            return other + line.removeprefix(name)
    return line


def _partner(line: str) -> str:
    return next((other for name, other in _PAIRS[1:] if line.startswith(name)), "")


def _paths(waiting: list[str], new: str) -> Iterator[str]:
    """Swap the paths of `--- a/x` and `+++ b/x`, but not git's prefixes."""
    old = waiting.pop() if waiting and waiting[-1].startswith("--- ") else "--- /dev/null\n"
    yield from waiting
    yield "--- " + _prefixed(new[4:], "b/", "a/")
    yield "+++ " + _prefixed(old[4:], "a/", "b/")


def _prefixed(path: str, prefix: str, other: str) -> str:
    return other + path.removeprefix(prefix) if path.startswith(prefix) else path


def _range(start: str, count: str | None) -> str:
    return start if count is None else f"{start},{count}"
