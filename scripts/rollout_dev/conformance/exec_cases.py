"""All cases of `conformance exec`: their names, and the environment of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

from rollout_dev.conformance import exec_commands as commands
from rollout_dev.conformance import exec_faults as faults
from rollout_dev.conformance.exec_scene import Cell, Scene


class Needs(Enum):
    """The environment of a case."""

    POD = auto()
    """A pod that other cases share."""
    PROXY = auto()
    """A proxy before the API server, which breaks connections."""
    OWN_POD = auto()
    """A pod of its own, which will not survive."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    name: str
    judge: Callable[[Scene], Awaitable[Cell]]
    needs: Needs = Needs.POD


ALL = (
    Case("binary output", commands.binary_output),
    Case("split UTF-8", commands.split_utf8),
    Case("CRLF and colours", commands.crlf),
    Case("exit codes", commands.exit_codes),
    Case("a missing program", commands.missing_program),
    Case("stderr apart", commands.stderr_apart),
    Case("20 MB of output", commands.large_output),
    Case("stdin to its end", commands.stdin_to_its_end),
    Case("stdin nobody reads", commands.stdin_nobody_reads),
    Case("background child", commands.background_child),
    Case("deadline ends the group", commands.deadline),
    Case("concurrent commands", commands.concurrent),
    Case("awkward names", commands.awkward_names),
    Case("InternalError status", faults.internal_error, Needs.PROXY),
    Case("no status", faults.no_status, Needs.PROXY),
    Case("no end", faults.no_end, Needs.PROXY),
    Case("reset in a command", faults.dropped_by_reset, Needs.PROXY),
    Case("end in a command", faults.dropped_in_order, Needs.PROXY),
    Case("reset in a response", faults.dropped_in_the_response, Needs.PROXY),
    Case("server unavailable", faults.server_unavailable, Needs.PROXY),
    Case("half-open", faults.half_open, Needs.PROXY),
    Case("corrupt frame", faults.corrupt_frame, Needs.PROXY),
    Case("split frames", faults.split_frames, Needs.PROXY),
    Case("fragmented frames", faults.fragmented_frames, Needs.PROXY),
    Case("strange channels", faults.strange_channels, Needs.PROXY),
    Case("reader that stops", faults.reader_that_stops, Needs.PROXY),
    Case("pod deleted", faults.pod_deleted, Needs.OWN_POD),
    Case("everything killed", faults.everything_killed, Needs.OWN_POD),
    Case("out of memory", faults.out_of_memory, Needs.OWN_POD),
)
