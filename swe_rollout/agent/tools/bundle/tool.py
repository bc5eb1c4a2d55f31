"""Call the programs of a bundle: `{use: bundle, with: {path: tools/}}`.

The bundle is installed in the sandbox before the first call, outside of the repository. A program
gets its arguments as one JSON object on stdin, so no value can be taken for shell syntax or a flag.
Its result has the same form as for `bash`: exit code, stdout, stderr. A policy with a shell can
change the bundle in its own sandbox, which affects only what that policy reads.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from functools import partial

from swe_rollout.agent.tools.base import ToolContext, ToolError, Toolset
from swe_rollout.agent.tools.bundle.archive import Bundle, registered
from swe_rollout.agent.tools.face import Call, Face
from swe_rollout.agent.tools.shell import program_observation
from swe_rollout.agent.tools.state import PerSandbox
from swe_rollout.errors import ExtensionFailedError
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

# In some images, programs can't be run from everywhere. A repository may be anywhere, even at /, so
# git is told to ignore the folder, which keeps it out of the diff.
_NEW_FOLDER = """
umask 077
for parent in "${TMPDIR:-/tmp}" /var/tmp /run /dev/shm; do
  folder=$(mktemp -d "$parent/swe-rollout-tools-XXXXXX" 2>/dev/null) || continue
  if printf '#!/bin/sh\\nexit 0\\n' >"$folder/trial" && chmod 700 "$folder/trial" &&
    "$folder/trial" && rm "$folder/trial" && echo '*' >"$folder/.gitignore"
  then printf '%s\\n' "$folder"; exit 0
  fi 2>/dev/null
  rm -rf "$folder"
done
exit 1
"""

_INTERPRETER = re.compile(rb"#![ \t]*(?:/usr/bin/env[ \t]+(?:-S[ \t]+)?)?([^ \t\r\n]{1,255})")
_LACKING = 'for name; do command -v "$name" >/dev/null 2>&1 || printf "%s\\n" "$name"; done'
TRIAL_S = 60.0


def bundle(*, path: str, sha256: str = "") -> Toolset:
    """Return the tools of the bundle in the folder `path`, which was packed when the job started.

    Raises ExtensionError if it did not travel with the job.
    """
    found = registered(sha256)
    if found is None:
        raise ExtensionError(
            f"the bundle {path} did not travel with the job",
            why="its folder is packed where the job is started from",
            fix="start the job with `swe-rollout run` or `launch`, or by RolloutJob.from_yaml",
        )
    return Toolset(bundle_tools(found))


def bundle_tools(found: Bundle) -> tuple[Face, ...]:
    """Return the tools of a bundle, in the order of its manifest."""
    installation = _Installation(found)
    return tuple(
        Face(
            tool.spec(),
            partial(_call_program, installation, tool.program),
            try_start=installation.try_start,
        )
        for tool in found.manifest.tools
    )


@dataclass(slots=True)
class _Place:
    """The place of a bundle in one sandbox."""

    folder: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Installation:
    """Puts a bundle into each sandbox once."""

    def __init__(self, found: Bundle) -> None:
        self._bundle = found
        self._places = PerSandbox(_Place)

    async def folder(self, sandbox: Sandbox, context: ToolContext) -> str:
        """Return the bundle's folder. Raises ToolError if the sandbox has no place for it."""
        place = self._places.of(sandbox)
        async with place.lock:
            if not place.folder:
                place.folder = await self._install(sandbox, context)
        return place.folder

    async def try_start(self, sandbox: Sandbox) -> None:
        """Look for the interpreters that the programs name: running them could do anything."""
        named = [
            found[1].decode(errors="replace")
            for file in self._bundle.files
            if file.executable and (found := _INTERPRETER.match(file.content))
        ]
        lacking = await sandbox.exec(
            ["/bin/sh", "-c", _LACKING, "sh", *dict.fromkeys(named)], timeout_s=TRIAL_S
        )
        if lacking.ok and (names := lacking.stdout.decode(errors="replace").split("\n")[0]):
            raise ExtensionFailedError(
                "programs of a tool bundle can't be started in the sandbox",
                why=f"it has no {names}, which a program of the bundle names",
                fix="use an image that has it, or correct the first line of the programs",
            )

    async def _install(self, sandbox: Sandbox, context: ToolContext) -> str:
        made = await sandbox.exec(["/bin/sh", "-c", _NEW_FOLDER], timeout_s=context.timeout_s)
        folder = made.stdout.decode(errors="replace").removesuffix("\n")
        if not made.ok or not folder.startswith("/") or "\n" in folder:
            raise ToolError("the sandbox has no folder left in which tools can be run")
        for file in self._bundle.files:
            mode = 0o755 if file.executable else 0o644
            await sandbox.write_file(f"{folder}/{file.path}", file.content, mode=mode)
        return folder


async def _call_program(installation: _Installation, program: str, call: Call) -> Observation:
    try:
        folder = await installation.folder(call.sandbox, call.context)
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        # The disk is full, or something is in the way of the folder.
        raise ToolError(f"the tool can't be installed: {error.strerror}") from error
    # JSON can contain a lone surrogate, which can't be encoded.
    given = json.dumps(dict(call.arguments), ensure_ascii=False).encode(errors="replace")
    result = await call.sandbox.exec(
        [f"{folder}/{program}"], stdin=given + b"\n", timeout_s=call.context.timeout_s
    )
    return program_observation(result, call.context)
