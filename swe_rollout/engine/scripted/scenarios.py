"""The text of scripted policies: named scenarios, turn by turn, with their expected outcome.

This is text only; `scripted.engine` turns it into tokens. A scenario never looks at tool results: a
turn depends only on its number, so a stateless server can play it.
"""

from __future__ import annotations

import base64
import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from swe_rollout.engine.scripted.turns import BrokenTurn, CallTurn, OwnTurn, Said, Shell
from swe_rollout.errors import TaskError, UsageError
from swe_rollout.spec.policy import ScriptedTurn
from swe_rollout.types.episode import StopReason
from swe_rollout.types.instance import FolderTask, Instance

CHUNK_BYTES = 3000
"""The part of a patch that one call writes. A token has at least one byte, so a call fits the
default maxNewTokens."""
# In the sandbox's own repository: a sandbox without namespaces shares /tmp with others.
_PATCH_FILE = ".git/fix.patch"
_MARKER = "END_OF_PATCH"
_CACHED = 64
"""The number of tasks whose turns are cached: an episode asks for one after another."""
# Text that is special to a chat template or a tool-call format.
_CONTROL = re.compile(r"<\||</?(?:tool_|think|function|parameter)|" + _MARKER)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scripted episode and its expected outcome."""

    name: str
    resolved: bool
    """Whether the tests must pass at the end."""
    stop_reason: StopReason
    """How the episode must end."""
    script: Callable[[int, Instance], Said]
    """Return what turn `index` (from 0) of an episode of `instance` says."""

    def turn(self, index: int, instance: Instance, form: str, shell: Shell | None = None) -> str:
        """Return the policy's text of turn `index` (from 0) of an episode of `instance`.

        `form` is the format of calls; with `shell`, all of them are that tool's.
        """
        said = self.script(index, instance)
        return said.text(form) if shell is None else said.through(shell).text(form)


def scenario(name: str) -> Scenario:
    """Find the scenario of that name; raises UsageError that lists the known ones."""
    try:
        return SCENARIOS[name]
    except KeyError as error:
        known = ", ".join(SCENARIOS)
        raise UsageError(f"there is no scenario {name!r}", fix=f"use one of: {known}") from error


def own_scenario(script: Sequence[ScriptedTurn]) -> Scenario:
    """Return a scenario of turns of the user's own; whether they solve a task is not known."""

    def said(index: int, _instance: Instance) -> Said:
        if index >= len(script):
            return OwnTurn("")
        turn = script[index]
        for tool, arguments in turn.call.items():
            return OwnTurn(turn.say, tool, arguments)
        return OwnTurn(turn.say)

    return Scenario("turns", resolved=False, stop_reason=StopReason.FINISHED, script=said)


def _bash(reason: str, command: str) -> CallTurn:
    return CallTurn(reason, "bash", {"command": command})


_LOOK = _bash("I look around first.", "git log --oneline | head -3; ls")
_SUBMIT = CallTurn("I am done with this task.", "submit", {})


def _turn_at(turns: Sequence[CallTurn], index: int) -> CallTurn:
    """Return turn `index`; past the end, repeat the last one."""
    return turns[min(index, len(turns) - 1)]


def _gold(index: int, instance: Instance) -> Said:
    if instance.folder is not None and instance.folder.solve:
        return _turn_at(_solution(instance.folder), index)
    return _turn_at(_fix(_gold_patch(instance)), index)


@lru_cache(maxsize=_CACHED)
def _fix(patch: bytes) -> Sequence[CallTurn]:
    """Look, write the patch in pieces, apply it, submit. Built once for all turns of a task."""
    turns = [_LOOK]
    if (path := _existing_file(patch)) is not None:
        view = {"command": "view", "path": path, "view_range": (1, 20)}
        turns.append(CallTurn("This file is where the fix belongs.", "str_replace_editor", view))
    pieces = list(_chunks(patch))
    for number, piece in enumerate(pieces, 1):
        reason = f"I write down the fix, part {number} of {len(pieces)}."
        turns.append(_bash(reason, _write_command(piece, ">" if number == 1 else ">>")))
    apply = f"git apply --whitespace=nowarn {_PATCH_FILE} && rm {_PATCH_FILE} && git diff --stat"
    return (*turns, _bash("Now I apply it and look at what changed.", apply), _SUBMIT)


@lru_cache(maxsize=_CACHED)
def _solution(task: FolderTask) -> Sequence[CallTurn]:
    """Carry out a folder task's own solution."""
    turns = [_LOOK]
    for file in task.solution:
        pieces = list(_chunks(base64.b64decode(file.content)))
        for number, piece in enumerate(pieces):
            write = _write_command(piece, ">>" if number else ">", file.path)
            reason = f"I write {file.path}, part {number + 1} of {len(pieces)}."
            turns.append(
                _bash(reason, f"mkdir -p {shlex.quote(posixpath.dirname(file.path))} && {write}")
            )
    programs = " ".join(shlex.quote(file.path) for file in task.solution if file.executable)
    clean = "rm -rf /solution"
    turns.append(_bash("Now I run it.", f"chmod +x {programs}; ({task.solve}); {clean}"))
    return (*turns, _SUBMIT)


def _wrong(index: int, instance: Instance) -> Said:
    path = _existing_file(instance.gold_patch)
    if path is None:
        edit = _bash("A note should be enough.", "printf '# reviewed\\n' >> REVIEWED.txt")
    else:
        insert: dict[str, object] = {
            "command": "insert",
            "path": path,
            "insert_line": 0,
            "new_str": "# Reviewed: nothing to change here.",
        }
        edit = CallTurn("A note in this file should be enough.", "str_replace_editor", insert)
    return _turn_at([_LOOK, edit, _SUBMIT], index)


def _empty(index: int, _instance: Instance) -> Said:
    return _turn_at([_LOOK, _SUBMIT], index)


def _malformed(index: int, instance: Instance) -> Said:
    return BrokenTurn(index) if index == 0 else _gold(index - 1, instance)


def _garbage(index: int, _instance: Instance) -> Said:
    return BrokenTurn(index)


def _loop(_index: int, _instance: Instance) -> Said:
    return _bash("I look at the status once more.", "git status --short | head -5")


def _gold_patch(instance: Instance) -> bytes:
    if not instance.gold_patch.strip():
        raise TaskError(
            f"{instance.instance_id} has no gold patch to play",
            fix="leave the instance out, or play scenarios without a fix: wrong, empty, loop",
            retryable=False,
        )
    return instance.gold_patch.removesuffix("\n").encode() + b"\n"


def _existing_file(patch: str | bytes) -> str | None:
    """Find a file that the patch changes but does not create, preferably Python."""
    text = patch if isinstance(patch, str) else patch.decode()
    paths = re.findall(r"^--- a/(\S+)$", text, flags=re.MULTILINE)
    sources = [path for path in paths if path.endswith(".py")]
    return next(iter(sources or paths), None)


def _chunks(patch: bytes) -> Iterator[bytes]:
    """Split the patch into chunks of whole lines; a line longer than a chunk is split."""
    chunk = b""
    for line in patch.splitlines(keepends=True):
        for start in range(0, len(line), CHUNK_BYTES):
            piece = line[start : start + CHUNK_BYTES]
            if chunk and len(chunk) + len(piece) > CHUNK_BYTES:
                yield chunk
                chunk = b""
            chunk += piece
    if chunk:
        yield chunk


def _write_command(chunk: bytes, redirect: str, path: str = _PATCH_FILE) -> str:
    """Write the chunk by here-document, or as base64 if the text would not arrive unchanged."""
    text = chunk.decode(errors="replace")
    plain = (
        text.encode() == chunk
        and text.endswith("\n")
        and not _CONTROL.search(text)
        and unicodedata.is_normalized("NFC", text)
        and all(c in "\t\n" or c.isprintable() for c in text)
    )
    if plain:
        return f"cat {redirect} {shlex.quote(path)} <<'{_MARKER}'\n{text}{_MARKER}"
    encoded = base64.encodebytes(chunk).decode()
    return f"base64 -d {redirect} {shlex.quote(path)} <<'{_MARKER}'\n{encoded}{_MARKER}"


SCENARIOS: Mapping[str, Scenario] = {
    scripted.name: scripted
    for scripted in (
        Scenario("gold", resolved=True, stop_reason=StopReason.SUBMITTED, script=_gold),
        Scenario("wrong", resolved=False, stop_reason=StopReason.SUBMITTED, script=_wrong),
        Scenario("empty", resolved=False, stop_reason=StopReason.SUBMITTED, script=_empty),
        Scenario("malformed", resolved=True, stop_reason=StopReason.SUBMITTED, script=_malformed),
        Scenario("garbage", resolved=False, stop_reason=StopReason.FORMAT_ERRORS, script=_garbage),
        Scenario("loop", resolved=False, stop_reason=StopReason.TURN_LIMIT, script=_loop),
    )
}
"""All scenarios, by name."""
