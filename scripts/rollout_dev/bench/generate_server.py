"""A `/generate` server that costs next to nothing: every response is prepared before the request.

`loops` starts it in a process of its own. The number of tool results in a request, found by
their closing id in the raw body, is the number of the turn, and that turn's response is a constant.
The prompt's ids are counted by their commas; nothing is decoded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONTEXT: Final = 1 << 20
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_OPEN: Final = {
    b"/model_info": {"model_path": "scripted", "weight_version": "v1", "is_generation": True},
    b"/server_info": {"max_req_input_len": CONTEXT - 5, "context_length": CONTEXT},
    b"/v1/models": {"data": [{"id": "scripted", "max_model_len": CONTEXT}]},
    b"/v1/loads": {"loads": []},
    b"/ready": {},
    b"/health": {},
}


@dataclass(frozen=True, slots=True)
class Script:
    """The response to each turn; the last one repeats."""

    marker: bytes
    """The id that closes a tool result, in decimal; no id has more digits."""
    heads: Sequence[bytes]
    """Each response up to the number of prompt tokens; `tails` has the rest."""
    tails: Sequence[bytes]

    @classmethod
    def read(cls, file: Path) -> Script:
        """Read the script that `loops` has written."""
        written = json.loads(file.read_text("utf-8"))
        parts = [_response(each).split(b"PROMPT") for each in written["responses"]]
        heads, tails = [head for head, _ in parts], [tail for _, tail in parts]
        return cls(str(written["marker"]).encode(), heads, tails)

    def respond(self, body: bytearray) -> bytes:
        """Return the response to a request."""
        start = body.index(b"[", body.index(b'"input_ids"'))
        end = body.index(b"]", start)
        turn = min(body.count(self.marker, start, end), len(self.heads) - 1)
        tokens = body.count(b",", start, end) + 1
        return b"%b%d%b" % (self.heads[turn], tokens, self.tails[turn])


def _response(turn: dict[str, object]) -> bytes:
    ids = turn["ids"]
    assert isinstance(ids, list)  # noqa: S101 - our own file
    logprob = turn["logprob"]
    meta = {
        "id": "scripted",
        "finish_reason": {"type": "stop", "matched": ids[-1]},
        "prompt_tokens": "PROMPT",
        "weight_version": "v1",
        "weight_versions": [{"version": "v1", "start": 0, "end": len(ids)}],
        "num_retractions": 0,
        "input_token_logprobs": [],
        "output_token_logprobs": [[logprob, token_id, None] for token_id in ids],
        "output_token_logprobs_length": len(ids),
        "reasoning_tokens": 0,
        "completion_tokens": len(ids),
        "cached_tokens": 0,
        "e2e_latency": 0.001,
    }
    response = {"text": turn["text"], "output_ids": ids, "meta_info": meta}
    return json.dumps(response).encode().replace(b'"PROMPT"', b"PROMPT")


@dataclass(frozen=True, slots=True)
class Manner:
    """How the server samples turns."""

    pause_s: float = 0.0
    """The pause before each turn."""
    count: Path | None = None
    """A file that grows by a byte per turn."""


class _Server(asyncio.Protocol):
    """A connection that is kept open."""

    def __init__(self, script: Script, manner: Manner) -> None:
        self._script = script
        self._manner = manner
        self._data = bytearray()
        self._body_at = 0
        self._end = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Respond to every complete request."""
        self._data += data
        while self._is_complete():
            self._reply()
            del self._data[: self._end]
            self._end = 0

    def _is_complete(self) -> bool:
        if not self._end:
            at = self._data.find(_HEAD_END)
            if at < 0:
                return False
            self._body_at = at + len(_HEAD_END)
            self._end = self._body_at + _length(self._data[:at].lower())
        return len(self._data) >= self._end

    def _reply(self) -> None:
        path = bytes(self._data[: self._data.index(b"\r")]).split(b" ")[1].split(b"?")[0]
        if path == b"/generate":
            reply = _ok(self._script.respond(self._data[self._body_at : self._end]))
            if self._manner.pause_s:
                loop = asyncio.get_running_loop()
                loop.call_later(self._manner.pause_s, self._sampled, reply)
            else:
                self._sampled(reply)
            return
        known = _OPEN.get(path)
        self._send(_ok(json.dumps(known).encode()) if known is not None else _NOT_FOUND)

    def _sampled(self, reply: bytes) -> None:
        if self._manner.count is not None:
            with self._manner.count.open("ab") as file:
                file.write(b".")
        self._send(reply)

    def _send(self, reply: bytes) -> None:
        if self._transport is not None:
            self._transport.write(reply)


def _length(head: bytes | bytearray) -> int:
    at = head.find(_LENGTH)
    if at < 0:
        return 0
    return int(head[at + len(_LENGTH) :].split(b"\r", 1)[0])


def _ok(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


_NOT_FOUND: Final = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
    b'Content-Length: 22\r\n\r\n{"detail":"Not Found"}'
)


async def _serve(script: Script, manner: Manner, listen: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Server(script, manner), *listen, backlog=4096)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await server.serve_forever()


def _main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("script", type=Path)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--pause", type=float, default=0.0, help="seconds of each turn")
    options.add_argument("--count", type=Path, help="a file that grows by a byte with each turn")
    given = options.parse_args()
    manner = Manner(given.pause, given.count)
    asyncio.run(_serve(Script.read(given.script), manner, (given.host, given.port)))


if __name__ == "__main__":
    _main()
