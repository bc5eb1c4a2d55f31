"""kodo's Kubernetes backend: one exec for each command, merged text and an exit code as text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from kodo.core import KubernetesManager  # type: ignore[import-not-found]

from rollout_dev.exec_clients.base import ClientTarget, CommandResult, in_thread


class Kodo:
    """`KubernetesManager.execute_command`. It always uses the current context."""

    def __init__(self, target: ClientTarget) -> None:
        self._target = target
        self._manager = KubernetesManager(target.namespace, target.kubeconfig)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        if stdin:
            raise NotImplementedError("kodo has no stdin")
        text, verdict = await in_thread(
            lambda: self._manager.execute_command(
                self._target.pod, shlex.join(argv), timeout=round(timeout_s)
            )
        )
        if verdict == "-1":
            raise KodoError(text)
        code = re.search(r"\d+", verdict)
        return CommandResult(int(code.group()) if code else None, text.encode())

    async def aclose(self) -> None:
        """Nothing to close."""


class KodoError(Exception):
    """A failure of kodo itself, which it reports as text."""
