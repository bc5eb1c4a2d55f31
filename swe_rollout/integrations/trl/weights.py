"""Send a trainer's weights to running SGLang servers: as a checkpoint that they load.

Servers are paused meanwhile. Generations in flight continue with the new weights, and every token
keeps the version that sampled it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from swe_rollout.engine.sglang.control import EngineControl, EngineControlError, PauseMode
from swe_rollout.errors import UsageError

if TYPE_CHECKING:
    import torch

_SHARD_BYTES = 4 << 30


class SglangWeights:
    """Implements TRL's `WeightTransferProtocol`; `Rollouts` calls it for `GRPOTrainer`.

    Raises EngineControlError when a server does not carry out a request.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        config: str | Path,
        folder: str | Path | None = None,
        mode: PauseMode = PauseMode.RETRACT,
        api_key_env: str | None = None,
    ) -> None:
        """`urls` are the servers' own addresses: routers do not forward such requests.

        `config` is a checkpoint of the model, whose JSON files are copied. `folder` must be visible
        to the servers under the same path; the default is a temporary one, for servers on this
        machine. `mode` says what happens to generations in flight.
        """
        if not urls:
            raise UsageError("there is no server to send weights to", fix="name their addresses")
        self.version = 0
        """The version of the servers' weights; 0 for the initial weights."""
        self._urls = tuple(urls)
        self._paused = False
        self._config = Path(config)
        self._mode = mode
        self._api_key_env = api_key_env
        self._own = None if folder else tempfile.mkdtemp(prefix="swe-rollout-weights-")
        self._folder = Path(folder or self._own or "")

    def init_weight_transfer(self) -> None:
        """Do nothing: a server needs no preparation."""

    def pause(self) -> None:
        """Stop sampling on all servers."""
        self._paused = True
        self._each(lambda engine: engine.pause(self._mode))

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Write the named tensors as a checkpoint, and have all paused servers load it."""
        version = self.version + 1
        folder = self._write(iterator, self._folder / f"version-{version}")
        # Frozen generations need the cache: it can't be flushed under them.
        flush = self._mode is not PauseMode.IN_PLACE
        self._each(
            lambda engine: engine.load_weights(str(folder), version=str(version), flush_cache=flush)
        )
        self.version = version
        shutil.rmtree(self._folder / f"version-{version - 1}", ignore_errors=True)

    def resume(self) -> None:
        """Continue sampling with the weights that were sent."""
        self._each(lambda engine: engine.resume())
        self._paused = False

    def publish(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Pause, send, resume; also resumes after an error, which it then raises."""
        try:
            self.pause()
            self.send_weights(iter(weights))
        finally:
            self.resume()

    def destroy(self) -> None:
        """Remove the sent checkpoints; leave no server paused."""
        if self._paused:
            with suppress(EngineControlError):
                self.resume()
        shutil.rmtree(self._folder / f"version-{self.version}", ignore_errors=True)
        if self._own:
            shutil.rmtree(self._own, ignore_errors=True)

    def _each(self, order: Callable[[EngineControl], Awaitable[None]]) -> None:
        asyncio.run(self._all(order))

    async def _all(self, order: Callable[[EngineControl], Awaitable[None]]) -> None:
        async def one(url: str) -> None:
            async with EngineControl(url, api_key_env=self._api_key_env) as engine:
                await order(engine)

        # A lost server must not delay the others.
        for result in await asyncio.gather(*map(one, self._urls), return_exceptions=True):
            if result is not None:
                raise result

    def _write(self, weights: Iterable[tuple[str, torch.Tensor]], folder: Path) -> Path:
        from safetensors.torch import save_file

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in self._config.glob("*.json"):
            if not file.name.endswith(".index.json"):
                shutil.copy(file, folder)
        shard: dict[str, torch.Tensor] = {}
        shards = 0
        for name, tensor in weights:
            # Copy it: several names may share one tensor.
            shard[name] = tensor.detach().to("cpu", copy=True).contiguous()
            if sum(each.nbytes for each in shard.values()) > _SHARD_BYTES:
                save_file(shard, folder / f"model-{shards:05}.safetensors", {"format": "pt"})
                shard, shards = {}, shards + 1
        save_file(shard, folder / f"model-{shards:05}.safetensors", {"format": "pt"})
        return folder
