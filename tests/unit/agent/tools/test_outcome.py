"""The outcome of a program as the policy reads it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.shell import program_observation
from swe_rollout.sandbox.base import ExecResult


def test_wa1_nothing_of_an_outcome_is_lost() -> None:
    context = ToolContext(2.0, 1024)

    silent = program_observation(ExecResult(0, b"", b""), context)
    failed = program_observation(ExecResult(2, b"a\n", b"b\n"), context)
    late = program_observation(ExecResult(137, b"", b"x", timed_out=True), context)

    assert silent.text == "exit code: 0 (no output)"
    assert failed.text == "exit code: 2\nstdout:\na\nstderr:\nb"
    assert (failed.exit_code, late.timed_out) == (2, True)
    assert late.text == "killed after 2 s: the time for one command was over\nstderr:\nx"


@given(st.binary(max_size=3000), st.binary(max_size=3000), st.integers(0, 9), st.integers(1, 2000))
def test_it_fits_whatever_the_program_wrote(out: bytes, err: bytes, lost: int, room: int) -> None:
    result = ExecResult(1, out, err, stdout_bytes=len(out) + lost, stderr_bytes=len(err))

    seen = program_observation(result, ToolContext(1.0, room))

    assert len(seen.text.encode()) <= room
    assert "\0" not in seen.text
    assert seen.truncated or not lost
