"""A whole job over each chat API, spoken by a server of this process, and over a function.

Aspects: calls run in sandboxes and results go back, episodes are graded, records have messages and
no tokens, no key is stored, exports refuse them, and the viewer shows them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from e2e.command import Job, printed_json, swe_rollout
from e2e.records import check, committed, read
from pages import contents
from unit.engine.chat.chat_parts import ANTHROPIC_BODY, OPENAI_BODY, api, sends

KEY = "test-key-abcdefghij0123456789"
FUNCTION = """
from swe_rollout.engine.chat.base import AssistantMessage, ChatCall, ChatRequest, ChatResponse
from swe_rollout.types.turn import FinishReason


async def two_turns(request: ChatRequest) -> ChatResponse:
    name, text = ("bash", '{"command": "echo 4\\u0031"}') if request.turn == 0 else ("submit", "{}")
    call = ChatCall(str(request.turn), name, text)
    return ChatResponse(AssistantMessage("So.", (call,)), FinishReason.STOP, model="two-turns")
"""


async def openai(call: web.Request) -> web.StreamResponse:
    """Run a command, then submit."""
    is_first = len((await call.json())["messages"]) == 2
    name, arguments = ("bash", '{"command": "echo 41"}') if is_first else ("submit", "{}")
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    ]
    message = {"role": "assistant", "content": "So.", "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return await sends({**OPENAI_BODY, "choices": [choice]})(call)


async def anthropic(call: web.Request) -> web.StreamResponse:
    """Run a command, then submit."""
    is_first = call.method == "GET" or len((await call.json())["messages"]) == 1
    name, arguments = ("bash", {"command": "echo 41"}) if is_first else ("submit", {})
    use = {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
    content = [{"type": "text", "text": "So."}, use]
    return await sends({**ANTHROPIC_BODY, "content": content})(call)


def answers(
    post: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Answer the probe too."""

    async def respond(call: web.Request) -> web.StreamResponse:
        return await (sends({"data": []})(call) if call.method == "GET" else post(call))

    return respond


def check_chat(record: dict[str, Any], *, policy: str, model: str) -> None:
    check({**record, "turns": []})
    assert record["policy"] == policy
    assert (record["token_ids"], record["token_path"], record["stop_reason"]) == (
        [],
        None,
        "submitted",
    )
    assert record["reward"] is not None
    assert record["chat"]["models"] == [model]
    texts = [(line["role"], line["turn"]) for line in record["chat"]["messages"]]
    assert texts[-3:] == [("assistant", 0), ("tool", None), ("assistant", 1)]
    (first,) = record["turns"][0]["observations"]
    assert "41" in first["text"]


@pytest.mark.parametrize(
    ("kind", "path", "respond", "model"),
    [
        ("openai", "/v1", openai, "gpt-4o-2024-08-06"),
        ("anthropic", "", anthropic, "claude-sonnet-4-5-20250929"),
    ],
)
async def test_a_job_over_an_api(  # noqa: PLR0917
    kind: str,
    path: str,
    respond: Callable[[web.Request], Awaitable[web.StreamResponse]],
    model: str,
    job_file: Callable[..., Job],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHAT_KEY", KEY)
    async with api(answers(respond)) as (url, served):
        policy = {kind: {"model": "m", "url": url + path, "apiKeyEnv": "CHAT_KEY"}}
        job = job_file(scenarios=["unused", "unused"], policy=policy)
        done = await asyncio.to_thread(swe_rollout, "run", str(job.path), "-o", "json")
    state = printed_json(done)
    assert (state["committed"], state["masked"], state["failures"]) == (2, 0, {})
    for record in map(read, committed(job.folder)):
        check_chat(record, policy=f"{kind}:m", model=model)
    assert KEY in json.dumps([headers for _, headers, _ in served.requests])
    assert KEY not in str([read(path) for path in committed(job.folder)])

    out = tmp_path / "out.parquet"
    refused = swe_rollout("export", job.uri, "-O", str(out), check=False)
    assert refused.returncode == 2
    assert "it has no tokens" in refused.stderr
    assert not out.exists()
    page, episode = tmp_path / "page.html", committed(job.folder)[0].parent
    swe_rollout("view", f"{job.uri}/{episode.parent.name}/{episode.name}", "-O", str(page))
    _, shown = contents(page.read_text())
    assert shown["tokens"]["ids"] == []
    assert shown["chat"]["models"] == [model]


def test_a_job_over_a_function_of_ones_own(job_file: Callable[..., Job], tmp_path: Path) -> None:
    file = tmp_path / "my_answers.py"
    file.write_text(FUNCTION)
    policy = {"chat": {"use": "my_answers:two_turns"}}
    job = job_file(scenarios=["unused"], policy=policy)
    done = swe_rollout("run", str(job.path), "--with", str(file), "-o", "json")
    assert printed_json(done)["committed"] == 1
    (record,) = map(read, committed(job.folder))
    check_chat(record, policy="chat:my_answers:two_turns", model="two-turns")

    out = tmp_path / "chats.jsonl"
    swe_rollout("export", job.uri, "--to", "messages", "-O", str(out))
    said = [each for each in json.loads(out.read_text())["messages"] if each["role"] != "user"]
    calls = [call["function"] for each in said for call in each.get("tool_calls", ())]
    assert [(each["name"], each["arguments"]) for each in calls] == [
        ("bash", {"command": "echo 41"}),
        ("submit", {}),
    ]
    assert [each["content"] for each in said if each["role"] == "assistant"] == ["So.", "So."]
