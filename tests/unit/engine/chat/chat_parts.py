"""Conversations for the tests of chat engines, and a server that responds as it is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from swe_rollout.engine.chat.base import (
    AssistantMessage,
    ChatCall,
    ChatRequest,
    ChatTool,
    ToolResult,
    ToolResults,
    UserMessage,
)
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.episode import EpisodeId
from unit.engine.engine_parts import serving

BASH = ChatTool(
    "bash",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
CONVERSATION = (
    UserMessage("Fix it."),
    AssistantMessage(
        "I look.", (ChatCall("c1", "bash", '{"command": "ls"}'), ChatCall("c2", "b:d", "{}"))
    ),
    ToolResults((ToolResult("c1", "README.md"), ToolResult("c2", "no such tool", is_error=True))),
)


def request(
    *,
    messages: tuple[UserMessage | AssistantMessage | ToolResults, ...] = CONVERSATION,
    sampling: Sampling | None = None,
    max_new_tokens: int = 100,
    clock: Deadline | None = None,
    instance: str = "task",
) -> ChatRequest:
    return ChatRequest(
        episode=EpisodeId("job", instance, 0),
        turn=1,
        system="Be brief.",
        messages=messages,
        tools=(BASH,),
        max_new_tokens=max_new_tokens,
        sampling=sampling or Sampling(),
        clock=clock,
    )


OPENAI_BODY = {
    "id": "chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG",
    "object": "chat.completion",
    "created": 1741570283,
    "model": "gpt-4o-2024-08-06",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "I look around.",
                "refusal": None,
                "annotations": [],
                "tool_calls": [
                    {
                        "id": "call_DdmO9pD3xa9XTPNJ32zg2hcA",
                        "type": "function",
                        "function": {"name": "bash", "arguments": '{"command":"ls"}'},
                    }
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {
        "prompt_tokens": 1117,
        "completion_tokens": 46,
        "total_tokens": 1163,
        "prompt_tokens_details": {"cached_tokens": 1024, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    },
    "service_tier": "default",
    "system_fingerprint": "fp_fc9f1d7035",
}
ANTHROPIC_BODY = {
    "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5-20250929",
    "content": [
        {"type": "thinking", "thinking": "A listing first.", "signature": "EqQBCgIYAhIM1gbc"},
        {"type": "text", "text": "I look around."},
        {"type": "tool_use", "id": "toolu_01A09q90", "name": "bash", "input": {"command": "ls"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 93,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 1024,
        "output_tokens": 46,
    },
}


@dataclass
class Api:
    """Sends the prepared responses one after the other, the last one for ever."""

    responses: list[Callable[[web.Request], Awaitable[web.StreamResponse]]]
    requests: list[tuple[str, dict[str, str], object]] = field(default_factory=list)
    """Path, headers and decoded body of each call."""

    async def handle(self, call: web.Request) -> web.StreamResponse:
        body = await call.read()
        self.requests.append((call.path, dict(call.headers), json.loads(body or b"null")))
        respond = self.responses[0] if len(self.responses) == 1 else self.responses.pop(0)
        return await respond(call)


def sends(
    body: object, *, status: int = 200, **headers: str
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Make a response of a body, JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def respond(call: web.Request) -> web.StreamResponse:
        del call
        return web.Response(
            body=data, status=status, headers={"Content-Type": "application/json", **named}
        )

    return respond


@asynccontextmanager
async def api(
    *responses: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[tuple[str, Api]]:
    """Serve the responses at an address of this machine."""
    served = Api(list(responses))
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", served.handle)
    async with serving(app) as url:
        yield url, served
