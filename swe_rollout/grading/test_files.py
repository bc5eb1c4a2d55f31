"""The files of the hidden tests: read them in a sandbox, and write a patch that has a twin's."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from swe_rollout.errors import SandboxError
from swe_rollout.grading.twins import TestFile, Twin
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.patch_text import file_diffs

_MOST_FILES: Final = 50
_LARGEST_BYTES: Final = 1 << 20


async def read_test_files(
    sandbox: Sandbox, base: str, paths: Sequence[str]
) -> tuple[TestFile, ...]:
    """Read the Python files among `paths`, and what `base` has there; large ones are left out."""
    found = []
    for path in [path for path in paths if path.endswith(".py")][:_MOST_FILES]:
        was = await sandbox.exec(
            ["git", "cat-file", "blob", f"{base}:{path}"], max_output=_LARGEST_BYTES
        )
        try:
            data = await sandbox.read_file(path, max_bytes=_LARGEST_BYTES)
            found.append(TestFile(path, data.decode(), was.stdout.decode() if was.ok else ""))
        except (OSError, SandboxError, UnicodeDecodeError):
            continue
    return tuple(found)


def mutated_patch(test_patch: str, twin: Twin) -> str:
    """Return the test patch with the twin's files in place of its own."""
    parts = []
    todo = dict(twin.files)
    for part in file_diffs(test_patch.encode()):
        path = next((path for path in part.paths if path in twin.files), None)
        if path is None:
            parts.append(part.data.decode())
        else:
            parts.append(_diff(path, twin.bases.get(path, ""), todo.pop(path)))
    parts += [_diff(path, twin.bases.get(path, ""), text) for path, text in todo.items()]
    return "".join(parts)


def _diff(path: str, old: str, new: str) -> str:
    """Return the diff of one file, in git's form."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"a/{path}" if old else "/dev/null",
        f"b/{path}",
    )
    body = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    head = f"diff --git a/{path} b/{path}\n" + ("" if old else "new file mode 100644\n")
    return head + body
