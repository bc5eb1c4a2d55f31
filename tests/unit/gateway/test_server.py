"""The gateway over HTTP: four APIs over one engine, and whatever else comes."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from swe_rollout.errors import EngineError
from swe_rollout.gateway import server
from swe_rollout.gateway.matching import Chains
from swe_rollout.spec.limits import Limits
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from unit.agent.agent_parts import Player, bash, player
from unit.gateway.gateway_parts import ADMIN, Client, close_session, open_session, serving
from unit.worker.work_parts import job

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello."}]}


@pytest.fixture
def engine() -> Player:
    return player(bash("ls"), "Done.")


@pytest.fixture
async def client(engine: Player, tmp_path: Path) -> AsyncIterator[Client]:
    async with serving(engine, tmp_path) as opened:
        yield opened


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def data_of(stream: str) -> list[Any]:
    found = [line.removeprefix("data: ") for line in stream.split("\n") if line.startswith("data")]
    return [json.loads(each) for each in found if each != "[DONE]"]


async def two_turns_of_chat(client: Client, key: str, *, streams: bool) -> str:
    tools = [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}]
    messages: list[Any] = [
        {"role": "system", "content": "You fix."},
        {"role": "user", "content": [{"type": "text", "text": "It fails."}]},
    ]
    body = {"messages": messages, "tools": [*tools, {"type": "web_search"}], "stream": streams}
    response = await client.post(CHAT, headers=bearer(key), json=body)
    if streams:
        deltas = [each["choices"][0]["delta"] for each in data_of(await response.text())]
        call = next(each["tool_calls"][0] for each in deltas if "tool_calls" in each)
        text = "".join(each.get("content") or "" for each in deltas)
    else:
        message = (await response.json())["choices"][0]["message"]
        call, text = message["tool_calls"][0], message["content"]
    call = {k: call[k] for k in ("id", "type", "function")}
    call["function"]["arguments"] = '{"command":"ls"}'
    messages += [
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "a.py"},
    ]
    response = await client.post(CHAT, headers=bearer(key), json=body | {"stream": False})
    found = await response.json()
    assert found["usage"]["total_tokens"] == sum(
        found["usage"][each] for each in ("prompt_tokens", "completion_tokens")
    )
    return str(found["choices"][0]["message"]["content"])


async def two_turns_of_messages(client: Client, key: str, *, streams: bool) -> str:
    messages: list[Any] = [{"role": "user", "content": "It fails."}]
    body: dict[str, Any] = {
        "model": "policy",
        "max_tokens": 512,
        "stream": streams,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1"},
            {"type": "text", "text": "You fix.", "cache_control": {"type": "ephemeral"}},
        ],
        "tools": [{"name": "bash", "input_schema": SCHEMA}],
        "messages": messages,
    }
    path, headers = "/v1/messages?beta=true", {"x-api-key": key}
    response = await client.post(path, headers=headers, json=body)
    if streams:
        events = data_of(await response.text())
        blocks = [e["content_block"] for e in events if e["type"] == "content_block_start"]
        for each in events:
            match each:
                case {"index": at, "delta": {"type": "text_delta", "text": text}}:
                    blocks[at]["text"] += text
                case {"index": at, "delta": {"type": "input_json_delta", "partial_json": text}}:
                    blocks[at]["input"] = json.loads(text)
                case _:
                    pass
    else:
        blocks = (await response.json())["content"]
    result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": "a.py"}
    messages += [
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [result | {"cache_control": {"type": "ephemeral"}}]},
    ]
    body["system"] = [{"type": "text", "text": "You fix."}]
    response = await client.post(path, headers=headers, json=body | {"stream": False})
    return str((await response.json())["content"][0]["text"])


async def two_turns_of_responses(client: Client, key: str, *, streams: bool) -> str:
    items: list[Any] = [
        {"type": "message", "role": "developer", "content": "You fix."},
        {"role": "user", "content": [{"type": "input_text", "text": "It fails."}]},
    ]
    tools = [
        {"type": "function", "name": "bash", "parameters": SCHEMA},
        {"type": "namespace", "name": "agents", "tools": []},
        {"type": "web_search", "external_web_access": True},
    ]
    body = {"model": "m", "input": items, "tools": tools, "stream": streams, "store": False}
    response = await client.post("/v1/responses", headers=bearer(key), json=body)
    if streams:
        events = data_of(await response.text())
        assert [each["sequence_number"] for each in events] == [*range(len(events))]
        items += [e["item"] for e in events if e["type"] == "response.output_item.done"]
        assert events[-1]["response"]["output"] == items[2:]
    else:
        items += (await response.json())["output"]
    call = items[-1]["call_id"]
    items += [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        {"type": "function_call_output", "call_id": call, "output": "a.py"},
    ]
    response = await client.post(
        "/v1/responses", headers=bearer(key), json=body | {"stream": False}
    )
    return str((await response.json())["output"][0]["content"][0]["text"])


async def two_turns_of_google(client: Client, key: str, *, streams: bool) -> str:
    contents: list[Any] = [{"role": "user", "parts": [{"text": "It fails."}]}]
    function = {"name": "bash", "parametersJsonSchema": SCHEMA}
    body = {
        "systemInstruction": {"parts": [{"text": "You fix."}]},
        "contents": contents,
        "tools": [{"functionDeclarations": [function]}, {"googleSearch": {}}],
        "generationConfig": {"temperature": 1, "maxOutputTokens": 512},
    }
    path, headers = f"/{'v1' if streams else 'v1beta'}/models/policy", {"x-goog-api-key": key}
    verb = "streamGenerateContent?alt=sse" if streams else "generateContent"
    response = await client.post(f"{path}:{verb}", headers=headers, json=body)
    found = data_of(await response.text())[0] if streams else await response.json()
    parts = found["candidates"][0]["content"]["parts"]
    parts[-1]["functionCall"]["id"] = "bash_1795783585_0"
    answer = {"name": "bash", "id": "bash_1795783585_0", "response": {"output": "a.py"}}
    contents += [
        {"role": "model", "parts": parts},
        {"role": "user", "parts": [{"functionResponse": answer}]},
    ]
    response = await client.post(f"{path}:generateContent", headers=headers, json=body)
    return str((await response.json())["candidates"][0]["content"]["parts"][0]["text"])


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    "play", [two_turns_of_chat, two_turns_of_messages, two_turns_of_responses, two_turns_of_google]
)
async def test_each_api_plays_an_episode_in_one_branch(
    client: Client, engine: Player, tmp_path: Path, play: Any, *, streams: bool
) -> None:
    assert await play(client, await open_session(client), streams=streams) == "Done."
    summary = await close_session(client, patch="the fix")
    assert (summary["branches"], summary["trained_share"]) == (1, 1.0)
    assert (summary["reward"], summary["stop_reason"]) == (1.0, "finished")
    record = await Store.open(f"file://{tmp_path}").read(EpisodeId(job().metadata.name, "task", 0))
    assert sum(record.loss_mask) == engine.sampled
    assert record.token_ids[: len(engine.requests[1].input_ids)] == tuple(
        engine.requests[1].input_ids.tolist()
    )


async def test_a_key_is_dead_with_its_session_and_good_for_its_own_alone(client: Client) -> None:
    first, second = await open_session(client), await open_session(client)
    await client.post(CHAT, headers=bearer(first), json=HELLO)
    assert (await close_session(client, 1))["turns"] == 0
    for key in (second, "", "x" * 1000, "ü"):
        response = await client.post(CHAT, params={"key": key}, json=HELLO)
        assert response.status == 401
        assert (await response.json())["error"]["code"] == "invalid_api_key"
    assert (await client.post("/sessions", headers=bearer(first), json={})).status == 401
    assert (await close_session(client, 0))["turns"] == 1


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "can't be read"),
        (b"[" * 100_000, "can't be read"),
        (b'{"messages": "a"}', "$.messages"),
        (b'{"messages": []}', "no message of the user"),
        (b'{"messages": [{"role": "tool", "content": "a"}]}', "before the first turn"),
        (b'{"messages": [{"role": "king", "content": "a"}]}', "'king'"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "'image_url'"),
        (b'{"messages": [{"role": "user", "content": "a"}], "n": 3}', "`n` is refused"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "can't be read"),
        (b'{"messages": [], "stop": [%s""]}' % (b'"a",' * 64), "length <= 64 - at `$.stop`"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_hurts_nobody(
    client: Client, body: bytes, why: str
) -> None:
    key = await open_session(client)
    response = await client.post(CHAT, headers=bearer(key), data=body)
    assert response.status == 400
    assert why in (await response.json())["error"]["message"]
    assert (await client.post(CHAT, headers=bearer(key), json=HELLO)).status == 200


async def test_a_large_body_and_a_flood_are_refused(
    client: Client, engine: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_RUNNING", 2)
    key = await open_session(client)
    body = io.BytesIO(b" " * (server.MAX_BODY_BYTES + 1))
    assert (await client.post(CHAT, headers=bearer(key), data=body)).status == 413
    goes_on = asyncio.Event()
    engine.pause_s = 0.0
    began = asyncio.Event()
    answer = engine.generate

    async def waiting(request: Any) -> Any:
        began.set()
        await goes_on.wait()
        return await answer(request)

    engine.generate = waiting  # type: ignore[method-assign]
    running = [
        asyncio.create_task(client.post(CHAT, headers=bearer(key), json=HELLO)) for _ in range(2)
    ]
    await began.wait()
    response = await client.post(CHAT, headers=bearer(key), json=HELLO)
    assert response.status == 429
    assert response.headers["Retry-After"] == "1"
    goes_on.set()
    assert {(await each).status for each in running} == {200}
    assert len(engine.requests) == 1


async def test_bodies_that_have_not_come_yet_are_a_flood_too(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_RUNNING", 1)
    key, reads, goes_on = await open_session(client), asyncio.Event(), asyncio.Event()

    async def slow(http: web.Request) -> bytes:
        reads.set()
        await goes_on.wait()
        return await http.read()

    monkeypatch.setattr(server, "_body", slow)
    first = asyncio.create_task(client.post(CHAT, headers=bearer(key), json=HELLO))
    await reads.wait()
    for path in (CHAT, "/v1/messages/count_tokens"):
        assert (await client.post(path, headers=bearer(key), json=HELLO)).status == 429
    goes_on.set()
    assert (await first).status == 200


async def test_a_body_that_is_not_encoded_as_it_says_is_refused(client: Client) -> None:
    headers = bearer(await open_session(client)) | {"Content-Encoding": "gzip"}
    response = await client.post(CHAT, headers=headers, data=b"no gzip")
    assert "encoded" in (await response.json())["error"]["message"]


async def test_closing_again_changes_no_patch(client: Client, engine: Player) -> None:
    key, began = await open_session(client), asyncio.Event()
    engine.before, engine.pause_s = lambda _: began.set(), 60.0
    asked = asyncio.create_task(client.post(CHAT, headers=bearer(key), json=HELLO))
    await began.wait()
    closed = await asyncio.gather(*(close_session(client, 0, each) for each in ("the fix", "")))
    assert [each["reward"] for each in closed] == [1.0, 1.0]
    assert (await asked).status == 403


@pytest.mark.parametrize("streams", [False, True])
async def test_messages_name_the_stop_sequence(tmp_path: Path, *, streams: bool) -> None:
    async with serving(player("One. STOP two. END"), tmp_path) as client:
        body = HELLO | {"stop_sequences": ["END", "STOP"], "stream": streams}
        headers = {"x-api-key": await open_session(client)}
        response = await client.post("/v1/messages", headers=headers, json=body)
        ended = (
            next(e["delta"] for e in data_of(await response.text()) if e["type"] == "message_delta")
            if streams
            else await response.json()
        )
        assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", "STOP")


async def test_large_bodies_of_a_session_are_read_one_at_a_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, most = 0, 0

    async def read(function: Callable[[], object]) -> object:
        nonlocal reads, most
        reads += 1
        most = max(most, reads)
        await asyncio.sleep(0)
        reads -= 1
        return function()

    monkeypatch.setattr(server, "_LARGE_BYTES", 0)
    monkeypatch.setattr(server, "off_loop", read)
    key = await open_session(client)
    asked = (client.post(CHAT, headers=bearer(key), json=HELLO) for _ in range(8))
    assert {each.status for each in await asyncio.gather(*asked)} == {200}
    assert most == 1


async def test_a_key_of_odd_bytes_is_no_key(client: Client) -> None:
    for path, header in ((CHAT, b"x-api-key: "), ("/sessions", b"Authorization: Bearer ")):
        reader, writer = await asyncio.open_connection(client.host, client.port)
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n"
        writer.write(head.encode() + header + b"\xff\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_tools_nested_too_deeply_are_refused(client: Client) -> None:
    schema = '{"type":' * 950 + '"a"' + "}" * 950
    function = f'{{"functionDeclarations": [{{"name": "a", "parameters": {schema}}}]}}'
    body = f'{{"contents": [{{"parts": [{{"text": "a"}}]}}], "tools": [{function}]}}'
    key = await open_session(client)
    for verb in ("generateContent", "streamGenerateContent"):
        path = f"/v1beta/models/policy:{verb}"
        response = await client.post(path, headers={"x-goog-api-key": key}, data=body)
        assert (await response.json())["error"]["status"] == "INVALID_ARGUMENT"


async def test_errors_have_the_form_of_their_api_and_the_end_is_told(tmp_path: Path) -> None:
    limits = Limits(turns=1, context_tokens=4096, max_new_tokens=64)
    async with serving(player("One."), tmp_path, limits=limits) as client:
        key = await open_session(client)
        long = {"messages": [{"role": "user", "content": "word " * 9000}]}
        response = await client.post(CHAT, headers=bearer(key), json=long)
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "context_length_exceeded"
        response = await client.post("/v1/messages", headers={"x-api-key": key}, json=long)
        assert (await response.json())["error"]["message"].startswith("prompt is too long")
        await client.post(CHAT, headers=bearer(key), json=HELLO)
        more = {"messages": [{"role": "user", "content": "More."}]}
        response = await client.post(CHAT, headers=bearer(key), json=more)
        assert (response.status, (await response.json())["error"]["code"]) == (403, "episode_over")
        assert (await close_session(client))["stop_reason"] == "turn_limit"


async def test_an_engine_that_fails_is_no_reward_0(client: Client, engine: Player) -> None:
    def fail(*_: object) -> None:
        raise EngineError("the engine is gone")

    engine.before = fail
    key = await open_session(client)
    response = await client.post(CHAT, headers=bearer(key), json=HELLO)
    assert (response.status, response.headers["Retry-After"]) == (503, "60")
    summary = await close_session(client, patch="the fix")
    assert (summary["reward"], summary["failure"]) == (None, "the engine is gone")


async def test_a_stream_that_waits_is_kept_alive(
    client: Client, engine: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PING_S", 0.001)
    engine.pause_s = 0.05
    key = await open_session(client)
    response = await client.post(CHAT, headers=bearer(key), json=HELLO | {"stream": True})
    assert (await response.text()).startswith(": ping")


async def test_tokens_are_counted_and_sessions_listed(client: Client, engine: Player) -> None:
    key = await open_session(client)
    response = await client.post(
        "/v1/messages/count_tokens", headers={"x-api-key": key}, json=HELLO
    )
    counted = (await response.json())["input_tokens"]
    hello = {"contents": [{"parts": [{"text": "Hello."}]}]}
    response = await client.post("/v1/models/x:countTokens", headers=bearer(key), json=hello)
    assert (await response.json()) == {"totalTokens": counted}
    assert not engine.requests
    await client.post(CHAT, headers=bearer(key), json=HELLO)
    assert counted == len(engine.requests[0].input_ids)
    listed = await (await client.get("/sessions", headers=ADMIN)).json()
    assert listed == [{"session": "task/0", "turns": 1, "branches": 1}]
    models = await (await client.get("/v1/models", headers=bearer(key))).json()
    assert (models["data"][0]["id"], models["models"][0]["name"]) == ("policy", "models/policy")


async def test_a_sample_is_played_once(client: Client, tmp_path: Path) -> None:
    await open_session(client)
    await close_session(client)
    for wanted in (
        {"task": "task", "sample": 0},
        {"task": "task", "sample": -1},
        {"task": "tusk"},
        {"task": 1},
        {},
    ):
        response = await client.post("/sessions", headers=ADMIN, json=wanted)
        assert response.status == 400
    assert (await client.post("/sessions", headers=ADMIN, json={"task": "task"})).status == 201
    async with serving(player("One."), tmp_path) as again:
        response = await again.post("/sessions", headers=ADMIN, json={"task": "task"})
        assert (await response.json())["session"] == "task/1"


async def test_a_fault_of_the_gateway_is_no_reward_0(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise KeyError("a bug")

    key = await open_session(client)
    await client.post(CHAT, headers=bearer(key), json=HELLO)
    monkeypatch.setattr(Chains, "of", broken)
    for path, form in (
        (CHAT, {"code": "internal_error", "type": "server_error"}),
        ("/v1/messages", {"type": "api_error"}),
    ):
        response = await client.post(path, headers=bearer(key), json=HELLO)
        assert response.status == 500
        assert form.items() <= (await response.json())["error"].items()
    summary = await close_session(client, patch="the fix")
    assert summary["reward"] is None
    assert "gateway failed" in str(summary["failure"])


@pytest.mark.threat(point=33)
async def test_a_harness_that_leaves_in_its_body_fails_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a policy could mask an episode that goes badly for it."""

    async def lost(_: web.Request) -> bytes:
        raise ConnectionResetError("Connection lost")

    key = await open_session(client)
    with monkeypatch.context() as patched:
        patched.setattr(web.Request, "read", lost)
        response = await client.post(CHAT, headers=bearer(key), json=HELLO)
        assert response.status == 499
    response = await client.post(CHAT, headers=bearer(key), json=HELLO)
    assert response.status == 200
    assert (await close_session(client))["failure"] is None


async def test_who_closes_a_session_that_had_ended_gets_its_record_all_the_same(
    tmp_path: Path,
) -> None:
    async with serving(player("One."), tmp_path, limits=Limits(episode_seconds=0.01)) as client:
        await open_session(client)
        while await (await client.get("/sessions", headers=ADMIN)).json():
            pass
        assert (await close_session(client))["stop_reason"] == "time_limit"
        assert (await close_session(client))["stop_reason"] == "time_limit"
        path = "/sessions/task/0/close"
        late = await client.post(path, headers=ADMIN, json={"patch": "the fix"})
        assert (late.status, "without it" in await late.text()) == (409, True)
        assert (await client.post("/sessions/task/9/close", headers=ADMIN)).status == 404
