"""Prepare the working tree of a grading sandbox: apply the patch, add the hidden tests.

Changes that keep the tests out, or steer them, are refused or undone. Used by `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from swe_rollout.errors import GraderError, SandboxError, TaskError
from swe_rollout.grading import build_files, rules, steering
from swe_rollout.grading.blind_files import TestFile, may_be_blind, other_files
from swe_rollout.grading.program import program
from swe_rollout.grading.shadows import find_shadows
from swe_rollout.sandbox import folders, repository, workspace
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.patch_text import file_diff, file_diffs, touched_paths
from swe_rollout.sandbox.repository import Patch
from swe_rollout.sandbox.session.frames import encoded
from swe_rollout.types.instance import FolderTask, Instance

_DOES_NOT_APPLY = 60
_PATCH_IN_THE_WAY = 61
_MAX_PATHS_BYTES = 8 << 20
_MOST_FILES: Final = 50
_LARGEST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """What became of a patch."""

    refusal: str | None = None
    findings: tuple[str, ...] = ()
    changed: frozenset[str] = frozenset()
    """The paths that it has changed, after the undoing."""


@dataclass(frozen=True, slots=True)
class WorkingTree:
    """The repository of an instance in a sandbox, checked out at its base commit."""

    sandbox: Sandbox
    instance: Instance
    base: str
    """The commit that is recorded as the base."""

    async def apply(self, patch: str) -> AppliedPatch:
        """Apply a patch, and undo the changes that must not take part."""
        # This takes seconds for a patch of many megabytes.
        named = await asyncio.to_thread(touched_paths, patch)
        strict = any(_is_unsafe(path) for path in named)
        result = await self.sandbox.exec(
            _script("apply.sh"),
            env={"BASE": self.base, "LOOSE": "" if strict else "yes"},
            stdin=patch.encode(errors="replace"),
            timeout_s=repository.STEP_S,
            max_output=_MAX_PATHS_BYTES,
        )
        if result.exit_code == _DOES_NOT_APPLY and not result.timed_out:
            return AppliedPatch(repository.failure_text(result))
        if not result.ok:
            raise GraderError(
                "the patch could not be applied in the sandbox", why=repository.failure_text(result)
            )
        if result.truncated:
            return AppliedPatch("it changes too many files")
        changed = {
            path.removeprefix("./")
            for path in result.stdout.decode(errors="surrogateescape").split("\0")
            if path
        }
        if odd := next((path for path in changed if _is_unsafe(path)), None):
            return AppliedPatch(f"it has a file with the name {odd!r:.200}")
        return await self._undo(changed)

    async def _undo(self, changed: set[str]) -> AppliedPatch:
        task = steering.Task(
            frozenset(touched_paths(self.instance.gold_patch)),
            frozenset((*touched_paths(self.instance.test_patch), *self.instance.test_files)),
            program(self.instance.evaluation).tests,
        )
        # Like this, a patch of many files takes seconds.
        undone = list(await asyncio.to_thread(task.undone, changed))
        restored = {each.path for each in undone}
        modules = await asyncio.to_thread(task.shadows, changed)
        undone += await find_shadows(self.sandbox, self.base, modules, restored)
        undone += await self._build_files(changed - restored - task.gold)
        if len(undone) > steering.MOST:
            return AppliedPatch(
                f"it changes more than {steering.MOST} files that steer how tests run"
            )
        if undone:
            listing = "".join(f"{each.path}\n" for each in undone)
            result = await self.sandbox.exec(
                _script("hidden_tests.sh"),
                env={"BASE": self.base, "CHECK": ""},
                stdin=encoded(f"{listing}\n"),
                timeout_s=repository.STEP_S,
            )
            if result.exit_code in (_DOES_NOT_APPLY, _PATCH_IN_THE_WAY) and not result.timed_out:
                return AppliedPatch(
                    f"it can't be undone in part: {repository.failure_text(result)}"
                )
            if not result.ok:
                raise GraderError(
                    "changes of the patch could not be undone", why=repository.failure_text(result)
                )
        kept = changed - {each.path for each in undone}
        return AppliedPatch(
            findings=rules.shown(str(each) for each in undone), changed=frozenset(kept)
        )

    async def _build_files(self, changed: Collection[str]) -> list[steering.Undone]:
        """Return the changes of build files that steer how tests run."""
        paths = sorted(path for path in changed if build_files.is_build_file(path))
        read = paths[:_MOST_FILES]
        was = await read_base(self.sandbox, self.base, read)
        found = paths[_MOST_FILES:]
        for path in read:
            is_unread = path not in was and await _is_in_base(self.sandbox, self.base, path)
            before = None if is_unread else was.get(path, "")
            after = await self._text(path)
            # Parsing what a patch has written may take seconds.
            if await asyncio.to_thread(build_files.steers, path, before, after):
                found.append(path)
        return [
            steering.Undone(path, f"edits {path}, which steers how tests run") for path in found
        ]

    async def _text(self, path: str) -> str | None:
        """Return the text of a file: empty if there is none, None if it can't be read."""
        try:
            return (await self.sandbox.read_file(path, max_bytes=_LARGEST_BYTES)).decode()
        except FileNotFoundError:
            return ""
        except (OSError, SandboxError, UnicodeDecodeError):
            return None

    async def read_tests(self) -> tuple[TestFile, ...]:
        """Add the hidden tests and read their files; return none if the patch prevents it."""
        if await self.add_hidden_tests(self.instance.test_patch, only_try=False) is not None:
            return ()
        hidden = touched_paths(self.instance.test_patch)
        others = dict.fromkeys(other_files(self.instance.expected, self.instance.digest))
        for path in touched_paths(self.instance.gold_patch):
            others.pop(path, None)  # A blind run would test the gold patch's code in it.
        paths = dict.fromkeys((*hidden, *filter(_may_be_read, others)))
        return await read_test_files(self.sandbox, self.base, tuple(paths))

    async def add_hidden_tests(self, test_patch: str, *, only_try: bool) -> str | None:
        """Restore the graded test files; return why the patch prevents it, or None.

        With `only_try`, `test_patch` is not applied: an official script does that itself.
        """
        paths = [*touched_paths(test_patch), *self.instance.test_files]
        if any(_is_unsafe(path) for path in paths):
            raise _bad_test_patch(self.instance, "it names files outside the repository")
        listing = "".join(f"{path}\n" for path in paths)
        result = await self.sandbox.exec(
            _script("hidden_tests.sh"),
            env={"BASE": self.base, "CHECK": "yes" if only_try else ""},
            stdin=encoded(f"{listing}\n{test_patch}"),
            timeout_s=repository.STEP_S,
        )
        if result.exit_code == _PATCH_IN_THE_WAY and not result.timed_out:
            why = repository.failure_text(result)
            return f"the hidden tests can't be added after the patch: {why}"
        if result.exit_code == _DOES_NOT_APPLY and not result.timed_out:
            raise _bad_test_patch(self.instance, repository.failure_text(result))
        if not result.ok:
            raise GraderError(
                "the hidden tests could not be added", why=repository.failure_text(result)
            )
        return None


def _may_be_read(path: str) -> bool:
    return may_be_blind(path) and not _is_unsafe(path)


def _is_unsafe(path: str) -> bool:
    """Return whether a path leaves the repository or enters its git directory."""
    parts = path.split("/")
    return path.startswith("/") or ".." in parts or ".git" in parts or "\n" in path


def _bad_test_patch(instance: Instance, why: str) -> TaskError:
    return TaskError(
        f"the test patch of {instance.instance_id} does not apply to its own base",
        why=why,
        fix="use the image that belongs to the instance, or leave it out",
        retryable=False,
    )


def _script(name: str) -> str:
    return (files("swe_rollout.grading") / "scripts" / name).read_text()


async def solve(sandbox: Sandbox, task: FolderTask) -> Patch:
    """Run the task's solution in a fresh sandbox and return its changes; empty without a solution.

    The changes of a solution that fails count as they are; the tests judge them. Raises TaskError
    when the solution exceeds its time limit.
    """
    base = await folders.prepare(sandbox, task)
    if not task.solve:
        return Patch()
    await folders.lay_out(sandbox, task.solution)
    result = await sandbox.exec(task.solve, timeout_s=task.solve_timeout_s)
    if result.timed_out:
        raise TaskError(
            "the task's solution does not end",
            why=f"it was ended after {task.solve_timeout_s:g} s",
            fix="give it more time ([solution] timeout_sec), or leave the task out",
            retryable=False,
        )
    await folders.remove(sandbox, folders.SOLUTION)
    return await workspace.diff(sandbox, base)


async def read_test_files(
    sandbox: Sandbox, base: str, paths: Sequence[str]
) -> tuple[TestFile, ...]:
    """Read these files, those with tests first, and their text in `base`; leave out large ones."""
    found = []
    chosen = sorted(paths, key=lambda path: not may_be_blind(path))[:_MOST_FILES]
    was = await read_base(sandbox, base, chosen)
    for path in chosen:
        if path not in was and await _is_in_base(sandbox, base, path):
            continue
        try:
            data = await sandbox.read_file(path, max_bytes=_LARGEST_BYTES)
            found.append(TestFile(path, data.decode(), was.get(path)))
        except (OSError, SandboxError, UnicodeDecodeError):
            continue
    return tuple(found)


async def read_base(sandbox: Sandbox, base: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the text of files in the commit `base`, except large and binary ones."""
    found: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        result = await sandbox.exec(
            ["git", "cat-file", "blob", f"{base}:{path}"], max_output=_LARGEST_BYTES
        )
        whole = result.ok and result.stdout_bytes == len(result.stdout)
        with suppress(UnicodeDecodeError):
            if whole and "\0" not in (text := result.stdout.decode()):
                found[path] = text
    return found


async def _is_in_base(sandbox: Sandbox, base: str, path: str) -> bool:
    return (await sandbox.exec(["git", "cat-file", "-e", f"{base}:{path}"])).ok


def replaced_files(
    test_patch: str, files: Mapping[str, str], bases: Mapping[str, str | None]
) -> str:
    """Return the test patch with these texts of files, whose texts in the base are `bases`."""
    parts = []
    todo = dict(files)
    for part in file_diffs(test_patch.encode()):
        path = next((path for path in part.paths if path in files), None)
        if path is None:
            parts.append(part.data.decode())
        elif path in todo:
            parts.append(file_diff(path, bases.get(path), todo.pop(path)))
    parts += [file_diff(path, bases.get(path), text) for path, text in todo.items()]
    return "".join(parts)
