"""The outcome of a program as the policy reads it: exit code, stdout and stderr, each bounded."""

from __future__ import annotations

from typing import Final

from swe_rollout.agent.tools.base import ToolContext, cut_middle, readable
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.types.turn import Observation

_FRAME_BYTES: Final = 160
"""Room for the lines around the output."""


def program_observation(
    result: ExecResult,
    context: ToolContext,
    *,
    titles: tuple[str, str] = ("stdout:", "stderr:"),
    note: str = "",
) -> Observation:
    """Return the outcome of a program.

    `titles` stand before the two streams, `note` behind the exit code.
    """
    stdout = _stream(result.stdout, result.stdout_bytes)
    stderr = _stream(result.stderr, result.stderr_bytes)
    room = max(0, context.output_bytes - _FRAME_BYTES - len(note.encode()))
    # Each stream gets half, and what the other leaves.
    shown_stdout = cut_middle(stdout, max(room // 2, room - len(stderr.encode())))
    shown_stderr = cut_middle(stderr, max(room // 2, room - len(stdout.encode())))
    lines = [_outcome(result, context), note]
    lines += [f"{titles[0]}\n{shown_stdout}"] if stdout else []
    lines += [f"{titles[1]}\n{shown_stderr}"] if stderr else []
    return Observation(
        cut_middle("\n".join(filter(None, lines)), context.output_bytes),
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        truncated=result.truncated or shown_stdout != stdout or shown_stderr != stderr,
    )


def _outcome(result: ExecResult, context: ToolContext) -> str:
    if result.timed_out:
        return f"killed after {round(context.timeout_s, 1):g} s: the time for one command was over"
    silent = "" if result.stdout or result.stderr else " (no output)"
    return f"exit code: {result.exit_code}{silent}"


def _stream(kept: bytes, written: int) -> str:
    lost = written - len(kept)
    rest = f"\n[... {lost} more bytes were not kept ...]" if lost > 0 else ""
    return readable(kept).removesuffix("\n") + rest
