"""Records every call and its response as the client sends and receives them."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from swe_rollout.engine.errors import EngineLostError
from swe_rollout.engine.sglang import protocol
from swe_rollout.engine.sglang.connection import OK, EngineConnection, EngineResponse


@dataclass
class Call:
    """One `/generate` call."""

    episode: str
    rid: str
    ids: list[int]
    budget: int
    """Tokens it may sample."""
    response: dict[str, Any] | None = None
    """None while it runs, and when it was lost or rejected."""
    error_status: int | None = None
    """The HTTP status of an error response."""
    lost: bool = False

    @property
    def is_running(self) -> bool:
        """Whether there is no response yet."""
        return self.response is None and self.error_status is None and not self.lost

    @property
    def is_aborted(self) -> bool:
        """Whether somebody aborted it."""
        finish = self.response and self.response["meta_info"]["finish_reason"]["type"]
        return finish == "abort"

    @property
    def sampled(self) -> list[int]:
        """The sampled ids."""
        return [entry[1] for entry in self._rows]

    @property
    def logprobs(self) -> list[float]:
        """One for each sampled id."""
        return [entry[0] for entry in self._rows]

    @property
    def _rows(self) -> list[Any]:
        rows = self.response["meta_info"]["output_token_logprobs"] if self.response else []
        assert isinstance(rows, list)
        return rows


@dataclass
class WireTap:
    """Records the calls on all connections of this process."""

    calls: list[Call] = field(default_factory=list)

    @property
    def running(self) -> list[Call]:
        """Calls without a response yet, oldest first."""
        return [call for call in self.calls if call.is_running]

    def by_episode(self) -> dict[str, list[Call]]:
        """Group the calls by episode, in order."""
        calls: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            calls[call.episode].append(call)
        return calls

    @contextmanager
    def listening(self) -> Iterator[WireTap]:
        """Record the calls made inside the block."""
        post = EngineConnection.post

        async def recorded(
            connection: EngineConnection,
            path: str,
            body: bytes = b"{}",
            *,
            headers: Mapping[str, str] | None = None,
            **options: Any,
        ) -> EngineResponse:
            if path != "/generate" or headers is None:
                return await post(connection, path, body, headers=headers, **options)
            sent = json.loads(body)
            call = Call(
                headers[protocol.ROUTING_HEADER], sent["rid"], sent["input_ids"], _budget(sent)
            )
            self.calls.append(call)
            try:
                response = await post(connection, path, body, headers=headers, **options)
            except (EngineLostError, asyncio.CancelledError):
                call.lost = True
                raise
            if response.status == OK:
                call.response = json.loads(response.body)
            else:
                call.error_status = response.status
            return response

        with patch.object(EngineConnection, "post", recorded):
            yield self


def _budget(sent: Mapping[str, Any]) -> int:
    return int(sent["sampling_params"]["max_new_tokens"])
