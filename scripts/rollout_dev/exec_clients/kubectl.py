"""`kubectl exec`: one process for each command."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence

from rollout_dev.exec_clients.base import ClientTarget, CommandResult

HOW = "install kubectl, or eval the output of scripts/dev-cluster up"


def is_installed() -> bool:
    """Whether kubectl is on PATH."""
    return shutil.which("kubectl") is not None


class Kubectl:
    """The command-line client."""

    def __init__(self, target: ClientTarget) -> None:
        self._target = target

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "--kubeconfig", self._target.kubeconfig),
            *("--context", self._target.context),
            *("--namespace", self._target.namespace, "exec", self._target.pod),
            *("--container", self._target.container, *(["--stdin"] if stdin else []), "--", *argv),
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(timeout_s):
                stdout, stderr = await process.communicate(stdin or None)
        except TimeoutError:
            return CommandResult(None, b"", timed_out=True)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        # kubectl's own line about the exit code is not the command's output.
        code_line = re.search(rb"command terminated with exit code (\d+)\n\Z", stderr)
        if code_line is None and process.returncode:
            raise KubectlError(stderr.decode(errors="replace").strip())
        if code_line is not None:
            stderr = stderr[: code_line.start()]
        return CommandResult(process.returncode, stdout, stderr)

    async def aclose(self) -> None:
        """Nothing to close."""


class KubectlError(Exception):
    """kubectl failed, not the command."""
