"""rLLM's `Sandbox` (`rllm/sandbox/protocol.py`), which is synchronous.

rLLM need not be installed: its protocol is structural. Commands of all sandboxes run on one event
loop in a thread of its own, so any number of rLLM's threads may use them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TypeVar

from swe_rollout.integrations.sandboxes.box import Box
from swe_rollout.integrations.sandboxes.transfer import upload_file, upload_folder
from swe_rollout.launcher.sync import LoopThread
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.worker.standalone import LIFETIME_S

_Result = TypeVar("_Result")
_SHOWN = 600
_LOCK = Lock()


class Sandbox:
    """A sandbox that starts when the object is created."""

    def __init__(
        self,
        name: str,
        image: str = "python:3.11-slim",
        *,
        spec: SandboxSpec | Mapping[str, object] | None = None,
        workdir: str = "/",
        lifetime_s: float = LIFETIME_S,
    ) -> None:
        """Start a sandbox of `image`; `spec` is the `sandbox` of a job file, by default pods.

        Raises SandboxError, PrerequisiteError or UnreachableError.
        """
        self.name = name
        self.image = image
        self._box = Box(image, spec, workdir=workdir, lifetime_s=lifetime_s)
        _wait(self._box.start())

    def exec(self, command: str, timeout: float | None = None, user: str | None = None) -> str:
        """Run a script and return its stdout.

        Raises RuntimeError if the command fails or runs out of time, which is rLLM's convention,
        and SandboxError, which is not a RuntimeError, if the sandbox is lost.
        """
        result = _wait(self._box.run(command, timeout_s=timeout, user=user))
        if result.exit_code:
            raise RuntimeError(
                f"exit code {result.exit_code} in {self.name}: {command}\n"
                f"stderr (tail):\n{result.stderr[-_SHOWN:]}"
            )
        return result.stdout

    def upload_file(self, local_path: str, remote_path: str) -> None:
        """Copy a file of any size into the sandbox."""
        _wait(upload_file(self._box.sandbox, Path(local_path), remote_path))

    def upload_dir(self, local_path: str, remote_path: str) -> None:
        """Copy the content of a folder into a folder of the sandbox."""
        _wait(upload_folder(self._box.sandbox, Path(local_path), remote_path))

    def is_alive(self) -> bool:
        """Whether commands can run in it; never raises."""
        return _wait(self._box.is_alive())

    def close(self) -> None:
        """End the sandbox. Idempotent."""
        _wait(self._box.close())


def create_sandbox(
    name: str,
    image: str = "python:3.11-slim",
    *,
    spec: SandboxSpec | Mapping[str, object] | None = None,
    workdir: str = "/",
) -> Sandbox:
    """Start a sandbox: the factory for `rllm.sandbox.sandboxed_flow.create_sandbox`."""
    return Sandbox(name, image, spec=spec, workdir=workdir)


def _wait(work: Coroutine[object, object, _Result]) -> _Result:
    """Run on the loop of all sandboxes; interrupting the wait cancels the work."""
    with _LOCK:
        thread = _sandboxes()
    return thread.run(work)


@cache
def _sandboxes() -> LoopThread[None]:
    """Return the event loop of all sandboxes of this process."""
    return LoopThread(nullcontext(), name="sandboxes")
