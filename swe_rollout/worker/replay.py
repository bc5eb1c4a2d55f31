"""Replay episodes: repeat the recorded calls in a fresh sandbox and compare the results.

No model is needed. Observations, and the patch at the end, must match the record except for noise
such as times. Used by `swe-rollout replay`.
"""

from __future__ import annotations

import difflib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from swe_rollout.agent.tools.base import Toolbox, ToolContext, cut_middle
from swe_rollout.agent.tools.state import ToolState
from swe_rollout.errors import EpisodeError, SandboxError, boundary
from swe_rollout.sandbox import workspace
from swe_rollout.sandbox.base import Role, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.sandbox.workspace import Base
from swe_rollout.spec.limits import Limits
from swe_rollout.text.redaction import redact
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Observation, ToolCall


@dataclass(frozen=True, slots=True)
class Noise:
    """Output that differs between two runs of a command although nothing changed."""

    name: str
    """The name shown to people."""
    pattern: re.Pattern[str]
    placeholder: str


def _noise(name: str, pattern: str, placeholder: str) -> Noise:
    return Noise(name, re.compile(pattern), placeholder)


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"[0-2]\d:[0-5]\d(?::[0-6]\d(?:[.,]\d{1,9})?)?"

NOISE = (
    _noise(
        "folders of sandboxes without isolation",
        r"/sandboxes/\d{1,10}-\d{1,20}-[0-9a-f]{8}/[0-9a-f]{8}(?:/mount-\d{1,4})?",
        "/<sandbox>",
    ),
    _noise(
        "dates and times",
        rf"\b(?:\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?"
        rf"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?"
        rf"(?:{_MONTH} {{1,2}}\d{{1,2}}(?: {{1,2}}(?:{_CLOCK}|\d{{4}})\b)?"
        rf"|\d{{1,2}} {_MONTH} \d{{4}}(?: {_CLOCK})?)"
        rf"(?: (?:UTC|GMT|[A-Z]{{2,3}}T)\b)?(?: \d{{4}}\b)?(?: [+-]\d{{4}}\b)?"
        rf"|{_CLOCK})",
        "<time>",
    ),
    _noise(
        "durations",
        r"\b\d{1,9}m\d{1,2}(?:\.\d{1,9})?s\b"
        r"|\b\d{1,9}(?:\.\d{1,9})? ?(?:seconds?|secs?|milliseconds?|microseconds?|ms|[uµ]s|ns|s)\b"
        r"|\b0\.\d{1,9} (?=real|user|sys)",
        "<duration>",
    ),
    _noise(
        "process ids",
        r"(?<![\w])(?:(?i:pid|process)[ =:#]{1,3}\d{1,10}|/proc/\d{1,10}|\[\d{1,4}\] \d{1,10})\b",
        "<pid>",
    ),
    _noise(
        "temporary paths",
        r"/(?:tmp|var/tmp|dev/shm)/[\w.+@-]{1,255}(?:/pytest-\d{1,10})?",
        "<tmp>",
    ),
    _noise("addresses in memory", r"\b0x[0-9a-fA-F]{6,16}\b", "<address>"),
    _noise(
        "hashes",
        r"\b(?=[0-9a-f]{0,63}\d)(?=[0-9a-f]{0,63}[a-f])[0-9a-f]{7,64}\b",
        "<hash>",
    ),
)
"""Applied in this order: a time may contain what looks like a duration. docs/how-to/replay.md lists
them. Every pattern runs in linear time, because a policy wrote the text."""


def without_noise(text: str) -> str:
    """Return the text with its noise replaced by placeholders."""
    for each in NOISE:
        text = each.pattern.sub(each.placeholder, text)
    return text


MARGIN_S = 3600.0
"""Time added to the episode's own for the sandbox's deadline."""
_LEAST_S = 0.1
"""The shortest time limit for a command that was killed."""
_DIFF_LINES = 80
_CONTEXT_LINES = 3
_LINE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a replay differs from the record."""

    turn: int
    """Index of the turn; for the patch, of the last turn."""
    call: int | None
    """Index of the call in its turn, from 0; None for the patch."""
    what: str
    """What differs, such as `observation` or `exit code`."""
    diff: str
    """Unified diff from the recorded to the new text, with noise replaced; cut if long."""

    def __str__(self) -> str:
        place = "the patch" if self.call is None else f"turn {self.turn}, call {self.call}"
        return f"{place}: the {self.what} differs" if self.call is not None else f"{place} differs"


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of replaying one episode."""

    episode: EpisodeId
    calls: int
    """Calls that were repeated, up to the first difference."""
    difference: Difference | None = None
    failure: str = ""
    """Why the episode could not be replayed; empty if it was."""

    @property
    def same(self) -> bool:
        """Whether everything matched the record."""
        return self.difference is None and not self.failure


@dataclass(frozen=True, slots=True)
class Replayer:
    """Replays episodes of one job, each in a sandbox of its own. Safe for concurrent use."""

    sandboxes: SandboxProvider
    toolbox: Toolbox
    limits: Limits
    name: str = field(default_factory=lambda: f"replay-{secrets.token_hex(3)}")
    """Replaces the job's name in sandbox names, so a running job's sandboxes are left alone."""

    async def replay(self, trajectory: Trajectory, instance: Instance) -> Replay:
        """Replay an episode. Any error goes into the result's `failure`."""
        run = _Run(self, trajectory)
        try:
            difference = await self._in_sandbox(run, instance)
        except EpisodeError as error:
            return Replay(trajectory.episode, run.calls, failure=str(error))
        return Replay(trajectory.episode, run.calls, difference)

    def _request(self, episode: EpisodeId, instance: Instance) -> SandboxRequest:
        return SandboxRequest(
            episode=EpisodeId(self.name, episode.instance, episode.sample),
            role=Role.AGENT,
            image=instance.image,
            workdir=instance.workdir,
            deadline_s=self.limits.episode_seconds + MARGIN_S,
        )

    async def _in_sandbox(self, run: _Run, instance: Instance) -> Difference | None:
        async with boundary(SandboxError, "starting the sandbox"):
            request = self._request(run.trajectory.episode, instance)
            sandbox = await self.sandboxes.start(request)
        try:
            async with boundary(SandboxError, "the replay"):
                base = await workspace.prepare(sandbox, instance)
                return await run.calls_differ(sandbox) or await run.patch_differs(sandbox, base)
        finally:
            await run.tools.aclose()
            await sandbox.close()


@dataclass(slots=True)
class _Run:
    """One replay in progress."""

    replayer: Replayer
    trajectory: Trajectory
    calls: int = 0
    tools: ToolState = field(default_factory=ToolState)
    """The state of the tools, kept for one replay as it is for one episode."""

    async def calls_differ(self, sandbox: Sandbox) -> Difference | None:
        """Repeat the calls in order, up to the first that differs."""
        for turn in self.trajectory.turns:
            # There are fewer observations than calls if the episode ended during the turn.
            pairs = zip(turn.tool_calls, turn.observations, strict=False)
            for position, (call, recorded) in enumerate(pairs):
                now = await self._observe(call, recorded, sandbox)
                self.calls += 1
                found = _difference(recorded, now)
                if found is not None:
                    return Difference(turn.index, position, *found)
        return None

    async def patch_differs(self, sandbox: Sandbox, base: Base) -> Difference | None:
        """Compare the final diff, if the episode got that far."""
        if self.trajectory.failure is not None:
            return None
        now = redact((await workspace.diff(sandbox, base)).text)
        if now == self.trajectory.patch:
            return None
        last = self.trajectory.turns[-1].index if self.trajectory.turns else 0
        return Difference(last, None, "patch", unified(self.trajectory.patch, now))

    async def _observe(
        self, call: ToolCall, recorded: Observation, sandbox: Sandbox
    ) -> Observation:
        limits = self.replayer.limits
        if call.status is not CallStatus.OK:
            return Observation(cut_middle(call.problem, limits.tool_output_bytes))
        # No command ran for a call that the agent program answered itself.
        if not recorded.duration_s:
            return recorded

        async def recorded_answer(prompt: str, *, has_tools: bool) -> str:
            del prompt, has_tools
            return recorded.text

        # Give a killed command only the time that it took: less near the episode's end.
        seconds = recorded.duration_s if recorded.timed_out else limits.tool_seconds
        bounds = ToolContext(
            timeout_s=max(_LEAST_S, min(seconds, limits.tool_seconds)),
            output_bytes=limits.tool_output_bytes,
            state=self.tools,
            delegate=recorded_answer,
        )
        return await self.replayer.toolbox.run(call, sandbox, bounds)


def _difference(recorded: Observation, now: Observation) -> tuple[str, str] | None:
    """Return what differs, and the diff."""
    # Format it as a record does: text that UTF-8 can encode, without credentials.
    text = redact(now.text.encode(errors="replace").decode())
    if recorded.text != text:
        before, after = without_noise(recorded.text), without_noise(text)
        if before != after:
            return "observation", unified(before, after)
    for name, old, new in (
        ("exit code", recorded.exit_code, now.exit_code),
        ("end by its time limit", recorded.timed_out, now.timed_out),
    ):
        if old != new:
            return name, unified(str(old), str(new))
    return None


def unified(recorded: str, now: str) -> str:
    """Return a unified diff of the first differing lines; its size and its cost are bounded."""
    old, new = recorded.splitlines(), now.splitlines()
    same = next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    start = max(0, same - _CONTEXT_LINES)
    lines = list(
        difflib.unified_diff(
            _cut(old[start : start + _DIFF_LINES]),
            _cut(new[start : start + _DIFF_LINES]),
            "recorded",
            "now",
            lineterm="",
            n=_CONTEXT_LINES,
        )
    )
    if not lines:  # the difference is in the cut part of lines, or in their endings
        at = _first_difference(recorded, now)
        window = slice(max(0, at - _LINE_CHARACTERS // 4), at + _LINE_CHARACTERS)
        lines = [f"-{recorded[window]!r}", f"+{now[window]!r}"]
    shown = [*islice(lines, _DIFF_LINES)]
    more = f"\n… and {len(lines) - len(shown)} more lines" if len(lines) > len(shown) else ""
    begins = f"from line {start + 1}:\n" if start else ""
    return begins + "\n".join(shown) + more


def _cut(lines: Sequence[str]) -> list[str]:
    return [
        line if len(line) <= _LINE_CHARACTERS else line[:_LINE_CHARACTERS] + "…" for line in lines
    ]


def _first_difference(recorded: str, now: str) -> int:
    pairs = enumerate(zip(recorded, now, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(recorded), len(now)))
