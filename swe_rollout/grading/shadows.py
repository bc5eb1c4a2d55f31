"""Find new modules that would be imported in place of others. Used by `working_tree`.

A patch may add a hundred thousand modules, so no program is started for each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib.resources import files

from swe_rollout.errors import GraderError
from swe_rollout.grading.steering import IMPORTED, Shadow, Undone
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.sandbox.session.frames import encoded

_MAX_OUTPUT_BYTES = 16 << 20
_IN_BASE = (
    "set -e; LC_ALL=C; export LC_ALL\n"
    """sed "s/^/$BASE:/" | git cat-file --batch-check='%(objecttype)' | sed -n '/ missing$/!='"""
)
"""Prints the numbers of the lines that name what the base has."""


async def find_shadows(
    sandbox: Sandbox, base: str, candidates: Iterable[Shadow], restored: Collection[str]
) -> list[Undone]:
    """Return the modules to undo, given the changed modules and the paths already undone."""
    changed = [each for each in candidates if each.path not in restored]
    names = {name for each in changed for name in (each.path, each.module, *_folder(each))}
    there = await _in_base(sandbox, base, names) if names else set()
    listing = "".join(
        f"{each.folder}\t{each.name}"
        f"\t{int(each.name in IMPORTED or each.module in restored)}\t{int(each.is_searched)}"
        f"\t{int(each.module in there)}\t{each.path}\n"
        for each in sorted(changed, key=lambda each: each.folder)
        if each.path not in there and _is_no_package(each, there)
    )
    if not listing:
        return []
    script = (files("swe_rollout.grading") / "scripts" / "shadows.sh").read_text()
    result = await sandbox.exec(
        script,
        env={"BASE": base},
        stdin=encoded(listing),
        timeout_s=repository.STEP_S,
        max_output=_MAX_OUTPUT_BYTES,
    )
    if not result.ok:
        raise _not_compared(result)
    return [
        Undone(path, f"adds {path}, which would be imported in place of another")
        for path in result.stdout.decode(errors="surrogateescape").split("\n")[:-1]
    ]


def _folder(each: Shadow) -> tuple[str, ...]:
    return (each.folder, f"{each.folder}/__init__.py") if each.folder else ()


def _is_no_package(each: Shadow, there: Collection[str]) -> bool:
    """Return whether the base has the module's folder, and this is no package."""
    return [name in there for name in _folder(each)] in ([], [True, False])


async def _in_base(sandbox: Sandbox, base: str, names: Collection[str]) -> set[str]:
    """Return those of the paths that the base has."""
    ordered = [*sorted(names), ""]
    result = await sandbox.exec(
        _IN_BASE,
        env={"BASE": base},
        stdin=encoded("".join(f"{name}\n" for name in ordered)),
        timeout_s=repository.STEP_S,
        max_output=_MAX_OUTPUT_BYTES,
    )
    numbers = [int(line) for line in result.stdout.split()] if result.ok else []
    # The root, which stands last, is always there.
    if numbers[-1:] != [len(ordered)]:
        raise _not_compared(result)
    return {ordered[number - 1] for number in numbers}


def _not_compared(result: ExecResult) -> GraderError:
    return GraderError(
        "new modules could not be compared with what is installed",
        why=repository.failure_text(result),
    )
