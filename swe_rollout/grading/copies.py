"""Look for copies of a task's fix in its image that an agent could use.

A newer release of the package may be installed beside the working tree, lie in a cache, or be part
of another tool. Copies are found by path and compared with the fix line by line, because version
numbers are kept in too many places. Used by `validate`; works in a sandbox of any kind.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import structlog

from swe_rollout.grading import leftovers
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.instance import Instance

log = structlog.get_logger()
_NOT_FOUND = 127
_SEARCH_S = 300.0
_MOST_FILES = 500
"""The most files that are compared with one file of the fix."""
_ALIKE = 0.3
"""The least share of the base's lines that a copy has."""
_MUCH = 0.5
"""The least share of the lines added by the fix that a copy has."""
_KERNEL = ("/proc", "/sys", "/dev")
_ARCHIVES = ("whl", "egg", "tar.gz", "tgz", "zip", "conda", "tar.bz2")
_NOT_PROJECTS = frozenset({"", "src", "lib", "libs", "tests", "test", "python", "docs", "packages"})
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(slots=True)
class _Change:
    """The changes of the fix to one file."""

    path: str
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)


async def find_copies(
    sandbox: Sandbox, instance: Instance, base_commit: str = "HEAD"
) -> tuple[str, ...]:
    """Return the paths of files, beside the fixed ones themselves, that may hold the fix.

    The files of the commit `base_commit` belong to the task.
    """
    if sandbox.workdir != instance.workdir:
        return ()  # In a plain directory on this machine, everything is within reach anyway.
    found: set[str] = set()
    changes = list(_changes(instance.gold_patch))
    added, known = set[str](), set[str]()
    for change in changes:
        own = posixpath.join(sandbox.workdir, change.path)
        base = await _lines(sandbox, own)
        added |= change.added
        known |= base
        words = leftovers.new_words(change.added, "\n".join(base))
        candidates = await _search(sandbox, _same_names(change.path))
        for path in candidates[:_MOST_FILES]:
            if path.endswith(".pyc"):
                is_copy = _source(path) not in {*candidates, own} or (
                    leftovers.is_compiled_from_fix(await leftovers.read(sandbox, path), words)
                )
            else:
                is_copy = path != own and _holds(await _lines(sandbox, path), change, base)
            if is_copy:
                found.add(path)
    found.update(await _search(sandbox, _archives(instance, changes)))
    lines = leftovers.distinctive(added, known)
    extensions = {posixpath.splitext(change.path)[1].lstrip(".") for change in changes}
    found.update(await leftovers.find_lines(sandbox, base_commit, lines, _plain(extensions)))
    found.update(await leftovers.find_history(sandbox, base_commit, lines))
    named = leftovers.metadata_patterns(_spelled(instance, changes))
    installed = await _search(sandbox, list(named), test="-ipath")
    found.update(await leftovers.newer_versions(sandbox, installed[:_MOST_FILES]))
    return tuple(sorted(found))


def _plain(extensions: set[str]) -> set[str]:
    """Return the extensions that are safe in a shell command."""
    return {each for each in extensions if re.fullmatch(r"[A-Za-z0-9_+-]+", each)}


def _changes(patch: str) -> Iterator[_Change]:
    """Read what a patch adds and removes; the line counts of hunks say where they end."""
    change, old, new = _Change(""), 0, 0
    for line in patch.splitlines():
        if old > 0 or new > 0:
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
            if line[:1] in ("+", "-"):
                lines = change.added if line[0] == "+" else change.removed
                lines.add(line[1:].strip())
        elif hunk := _HUNK.match(line):
            old, new = (int(count) if count else 1 for count in hunk.groups())
        elif line.startswith("+++ b/"):
            yield from _if_any(change)
            change = _Change(line.removeprefix("+++ b/").rstrip())
    yield from _if_any(change)


def _if_any(change: _Change) -> Iterator[_Change]:
    moved = change.added & change.removed | {""}
    change.added -= moved
    change.removed -= moved
    if change.path and (change.added or change.removed):
        yield change


def _holds(lines: set[str], change: _Change, base: set[str]) -> bool:
    """Return whether a file with these lines is a copy of the fixed file."""
    if len(base & lines) < _ALIKE * len(base):
        return False
    if added := change.added - base:
        return len(added & lines) >= _MUCH * len(added)
    # The fix only removes lines.
    return bool(base) and not change.removed & lines


def _same_names(path: str) -> list[str]:
    """Return patterns for paths that end like this one, in whatever package folder."""
    folder, name = posixpath.split(path)
    near = posixpath.basename(folder)
    patterns = [f"*/{near}/{name}" if near else f"*/{name}"]
    stem, extension = posixpath.splitext(name)
    if extension == ".py":
        compiled = (f"__pycache__/{stem}.*.pyc", f"{stem}.pyc")
        patterns += [f"*/{near}/{each}" if near else f"*/{each}" for each in compiled]
    return [re.sub(r"([\\\[?])", r"\\\1", pattern) for pattern in patterns]


def _source(compiled: str) -> str:
    folder, name = posixpath.split(compiled)
    return posixpath.join(folder.removesuffix("/__pycache__"), f"{name.split('.')[0]}.py")


def _archives(instance: Instance, changes: list[_Change]) -> list[str]:
    """Return patterns for archives of the project in any version."""
    spelled = _spelled(instance, changes)
    return [f"*/{name}-[0-9]*.{ending}" for name in sorted(spelled) for ending in _ARCHIVES]


def _spelled(instance: Instance, changes: list[_Change]) -> set[str]:
    """Return patterns for the names that the project's packages may have."""
    names = {posixpath.basename(instance.repo or "")}
    for change in changes:
        names |= {part for part in change.path.split("/")[:2] if "." not in part}
    return {re.sub(r"[-_.]+", "[-_.]", name) for name in names - _NOT_PROJECTS}


async def _search(sandbox: Sandbox, patterns: list[str], *, test: str = "-path") -> list[str]:
    """Find files whose whole paths match the patterns."""
    if not patterns:
        return []
    command = ["find", "/", "(", *_either(_KERNEL), ")", "-prune", "-o", "-type", "f"]
    done = await sandbox.exec(
        [*command, "(", *_either(patterns, test), ")", "-print"], cwd="/", timeout_s=_SEARCH_S
    )
    if done.exit_code == _NOT_FOUND:
        log.warning("image_not_searched", why="it has no find")
    return [path for path in done.stdout.decode("utf-8", "replace").splitlines() if path]


def _either(patterns: Iterable[str], test: str = "-path") -> list[str]:
    words = [word for pattern in patterns for word in ("-o", test, pattern)]
    return words[1:]


async def _lines(sandbox: Sandbox, path: str) -> set[str]:
    """Read a file's lines without indentation; return none when it can't be read."""
    data = await leftovers.read(sandbox, path)
    return {line.strip() for line in data.decode("utf-8", "replace").splitlines()} - {""}
