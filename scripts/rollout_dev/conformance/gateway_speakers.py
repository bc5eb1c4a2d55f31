"""The vendors' own clients, each made to ask, to answer calls and to leave a stream in one way.

What a client read is sent back in its own types, as its documentation shows. None is a dependency:
they are imported by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Final

_SYSTEM: Final = "You fix."
_SCHEMA: Final = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}
_FUNCTION: Final = {"name": "bash", "description": "Run it.", "parameters": _SCHEMA, "strict": True}
_NAMED: Final = {"type": "function", "function": {"name": "bash"}}


@dataclass(frozen=True, slots=True)
class Called:
    """A call as a client read it."""

    id: str
    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as a client read it."""

    text: str
    calls: tuple[Called, ...]
    items: tuple[object, ...] = field(compare=False)
    """The same, in the client's own types."""


class Speaker:
    """A client and the API that it speaks, with `create` and `stream`, as two vendors have it."""

    name: ClassVar[str]
    package: ClassVar[str]
    bad: ClassVar[Sequence[Mapping[str, object]]]
    """Arguments that the client takes and the gateway refuses, in turn."""
    calls_none: ClassVar[Mapping[str, object]]
    """Arguments by which an answer has no calls."""
    heeds_retry_after: ClassVar[bool] = True
    counts: ClassVar[Mapping[str, object] | None] = None
    """What a request may have, so that the client can count it; None if the API has no count."""
    _final: ClassVar[str]
    """What a stream has of all that it brought."""

    def __init__(self, url: str, key: str, *, retries: int = 0) -> None:
        self._sdk = import_module(self.package)
        self._client = self._opened(url, key, retries)

    def error(self, status: int) -> type[Exception]:
        """Return the error that the client has for a status."""
        names = {400: "BadRequest", 401: "Authentication", 403: "PermissionDenied"}
        found: type[Exception] = getattr(self._sdk, f"{names.get(status, 'InternalServer')}Error")
        return found

    def late(self) -> type[Exception]:
        """Return the error that the client has where a stream fails."""
        found: type[Exception] = self._sdk.APIError
        return found

    def user(self, text: str) -> object:
        """Return a message of the user."""
        return {"role": "user", "content": text}

    def results(self, calls: Sequence[Called], texts: Sequence[str]) -> list[object]:
        """Return the results of calls."""
        raise NotImplementedError

    async def ask(self, talk: Sequence[object], *, streams: bool, **more: object) -> Said:
        """Ask for the next turn, and read it whole."""
        asked = self._asked(talk) | more
        if not streams:
            return self._read(await self._api().create(**asked))
        async with self._api().stream(**asked) as stream:
            async for _ in stream:
                pass
            return self._read(await getattr(stream, self._final)())

    async def leave(self, talk: Sequence[object]) -> None:
        """Ask for the next turn as a stream, and leave with its first event."""
        async with self._api().stream(**self._asked(talk)) as stream:
            async for _ in stream:
                return

    async def models(self) -> list[str]:
        """Return the names of the models."""
        return [model.id async for model in self._client.models.list()]

    async def count(self, talk: Sequence[object]) -> int:
        """Return the tokens of a conversation, if `counts`."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.close()

    def _opened(self, url: str, key: str, retries: int) -> Any:
        return self._sdk.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=retries)

    def _api(self) -> Any:
        raise NotImplementedError

    def _asked(self, talk: Sequence[object]) -> dict[str, Any]:
        raise NotImplementedError

    def _read(self, found: Any) -> Said:
        raise NotImplementedError


class Chat(Speaker):
    name, package = "openai, chat completions", "openai"
    bad = ({"n": 3}, {"tool_choice": "required"}, {"tool_choice": _NAMED}, {"logprobs": True})
    calls_none: ClassVar[Mapping[str, object]] = {"tool_choice": "none"}
    _final = "get_final_completion"

    def results(self, calls: Sequence[Called], texts: Sequence[str]) -> list[object]:
        return [
            {"role": "tool", "tool_call_id": call.id, "content": text}
            for call, text in zip(calls, texts, strict=True)
        ]

    def _api(self) -> Any:
        return self._client.chat.completions

    def _asked(self, talk: Sequence[object]) -> dict[str, Any]:
        messages = [{"role": "system", "content": _SYSTEM}, *talk]
        tools = [{"type": "function", "function": _FUNCTION}]
        return {"model": "policy", "messages": messages, "tools": tools}

    def _read(self, found: Any) -> Said:
        message = found.choices[0].message
        calls = tuple(
            Called(call.id, call.function.name, json.loads(call.function.arguments))
            for call in message.tool_calls or ()
        )
        return Said(message.content or "", calls, (message,))


class Responses(Speaker):
    name, package = "openai, responses", "openai"
    bad = (
        {"previous_response_id": "resp_1"},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "name": "bash"}},
        {"include": ["message.output_text.logprobs"]},
    )
    calls_none: ClassVar[Mapping[str, object]] = {"tool_choice": "none"}
    _final = "get_final_response"

    def late(self) -> type[Exception]:
        return RuntimeError  # Its helper knows no failed response, whoever sent it.

    def results(self, calls: Sequence[Called], texts: Sequence[str]) -> list[object]:
        return [
            {"type": "function_call_output", "call_id": call.id, "output": text}
            for call, text in zip(calls, texts, strict=True)
        ]

    def _api(self) -> Any:
        return self._client.responses

    def _asked(self, talk: Sequence[object]) -> dict[str, Any]:
        tools = [{"type": "function", **_FUNCTION}]
        return {"model": "policy", "instructions": _SYSTEM, "input": list(talk), "tools": tools}

    def _read(self, found: Any) -> Said:
        calls = tuple(
            Called(item.call_id, item.name, json.loads(item.arguments))
            for item in found.output
            if item.type == "function_call"
        )
        return Said(found.output_text, calls, tuple(found.output))


class Messages(Speaker):
    name, package = "anthropic, messages", "anthropic"
    bad = (
        {"messages": [{"role": "user", "content": ""}]},
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "tool", "name": "bash"}},
    )
    calls_none: ClassVar[Mapping[str, object]] = {"tool_choice": {"type": "none"}}
    counts: ClassVar[Mapping[str, object] | None] = {}
    _final = "get_final_message"

    def results(self, calls: Sequence[Called], texts: Sequence[str]) -> list[object]:
        blocks = [
            {"type": "tool_result", "tool_use_id": call.id, "content": text}
            for call, text in zip(calls, texts, strict=True)
        ]
        return [{"role": "user", "content": blocks}]

    async def count(self, talk: Sequence[object]) -> int:
        asked = self._asked(talk)
        del asked["max_tokens"]
        return int((await self._api().count_tokens(**asked)).input_tokens)

    def _opened(self, url: str, key: str, retries: int) -> Any:
        return self._sdk.AsyncAnthropic(base_url=url, api_key=key, max_retries=retries)

    def _api(self) -> Any:
        return self._client.messages

    def _asked(self, talk: Sequence[object]) -> dict[str, Any]:
        tool = {"name": "bash", "description": "Run it.", "input_schema": _SCHEMA}
        asked = {"model": "policy", "messages": list(talk), "max_tokens": 512}
        return {**asked, "system": _SYSTEM, "tools": [tool]}

    def _read(self, found: Any) -> Said:
        calls = tuple(
            Called(block.id, block.name, block.input)
            for block in found.content
            if block.type == "tool_use"
        )
        text = "".join(block.text for block in found.content if block.type == "text")
        return Said(text, calls, ({"role": "assistant", "content": found.content},))


class Google(Speaker):
    name, package = "google-genai, generate content", "google.genai"
    bad = (
        {"candidate_count": 3},
        {"tool_config": {"function_calling_config": {"mode": "ANY"}}},
        {"response_mime_type": "application/json"},
    )
    calls_none: ClassVar[Mapping[str, object]] = {
        "tool_config": {"function_calling_config": {"mode": "NONE"}}
    }
    counts: ClassVar[Mapping[str, object] | None] = {"system_instruction": None, "tools": None}
    heeds_retry_after = False

    def error(self, status: int) -> type[Exception]:
        errors = self._sdk.errors
        found: type[Exception] = errors.ClientError if status < _SERVER else errors.ServerError
        return found

    def late(self) -> type[Exception]:
        return self.error(_SERVER)

    async def aclose(self) -> None:
        await self._client.aio.aclose()
        self._client.close()

    def user(self, text: str) -> object:
        types = self._sdk.types
        return types.Content(role="user", parts=[types.Part(text=text)])

    def results(self, calls: Sequence[Called], texts: Sequence[str]) -> list[object]:
        types = self._sdk.types
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"output": text}
                )
            )
            for call, text in zip(calls, texts, strict=True)
        ]
        return [types.Content(role="user", parts=parts)]

    async def ask(self, talk: Sequence[object], *, streams: bool, **more: object) -> Said:
        asked = self._asked(talk)
        asked["config"] |= more
        if not streams:
            found = [await self._api().generate_content(**asked)]
        else:
            found = [each async for each in await self._api().generate_content_stream(**asked)]
        parts = [part for each in found for part in each.candidates[0].content.parts]
        calls = tuple(
            Called(part.function_call.id, part.function_call.name, part.function_call.args)
            for part in parts
            if part.function_call
        )
        text = "".join(part.text for part in parts if part.text and not part.thought)
        return Said(text, calls, (self._sdk.types.Content(role="model", parts=parts),))

    async def leave(self, talk: Sequence[object]) -> None:
        stream = await self._api().generate_content_stream(**self._asked(talk))
        await anext(stream)
        await stream.aclose()

    async def models(self) -> list[str]:
        return [model.name async for model in await self._api().list()]

    async def count(self, talk: Sequence[object]) -> int:
        found: int = (
            await self._api().count_tokens(model="policy", contents=list(talk))
        ).total_tokens
        return found

    def _opened(self, url: str, key: str, retries: int) -> Any:
        # It reads no Retry-After, and has to be told to try again at all.
        again = {"attempts": retries + 1, "initial_delay": 0.1, "jitter": 0.0}
        options = {"base_url": url, "retry_options": again}
        return self._sdk.Client(api_key=key, http_options=options)

    def _api(self) -> Any:
        return self._client.aio.models

    def _asked(self, talk: Sequence[object]) -> dict[str, Any]:
        function = {"name": "bash", "description": "Run it.", "parameters_json_schema": _SCHEMA}
        config = {
            "system_instruction": _SYSTEM,
            "tools": [{"function_declarations": [function]}],
            "automatic_function_calling": {"disable": True},
        }
        return {"model": "policy", "contents": list(talk), "config": config}


_SERVER: Final = 500
SPEAKERS: Final[tuple[type[Speaker], ...]] = (Chat, Responses, Messages, Google)
