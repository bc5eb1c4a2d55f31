"""The exit codes of a worker's process, by which the worker Job decides what follows.

A worker that decides how it ends uses codes of `sysexits.h`. An interpreter that can't start, a
shell or the kernel ends with others, which say nothing about the job: Kubernetes tries again.
"""

from __future__ import annotations

from enum import IntEnum


class WorkerExitCode(IntEnum):
    """How a worker's process ends, other than with 0 when its shard is committed."""

    WRONG_USAGE = 64
    """Its image does not know the options that the operator passes."""
    KILLED_TOO_OFTEN = 71
    """It was killed repeatedly in its pod without progress."""
    TRY_AGAIN = 75
    """Something failed that may pass, such as the cluster: the same command may continue later."""
    JOB_FAILED = 78
    """The job can't be carried out, by this worker or any other."""
    DRAINED = 143
    """It was stopped, and episodes remain; so ends a process that does not handle SIGTERM yet."""


FATAL = (WorkerExitCode.WRONG_USAGE, WorkerExitCode.JOB_FAILED)
"""These fail the whole job; others are retried."""
