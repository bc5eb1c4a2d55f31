"""lightkube's asynchronous client: one exec for each command."""

from __future__ import annotations

from collections.abc import Sequence

from lightkube import AsyncClient, KubeConfig  # type: ignore[import-not-found]

from rollout_dev.exec_clients.base import ClientTarget, CommandResult


class Light:
    """`AsyncClient.exec`, with bytes."""

    def __init__(self, target: ClientTarget) -> None:
        access = KubeConfig.from_file(target.kubeconfig).get(context_name=target.context)
        self._client = AsyncClient(config=access)
        self._target = target

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        found = await self._client.exec(
            self._target.pod,
            namespace=self._target.namespace,
            container=self._target.container,
            command=list(argv),
            stdin=stdin or None,
            stdout=True,
            stderr=True,
            decode=None,
            timeout=timeout_s,
        )
        return CommandResult(found.exit_code, found.stdout or b"", found.stderr or b"")

    async def aclose(self) -> None:
        await self._client.close()
