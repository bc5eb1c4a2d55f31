"""The fields of requests: each is read, refused, left out for a reason, or named in the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from swe_rollout.gateway.dialects import (
    anthropic_messages,
    google_generate,
    openai_chat,
    openai_responses,
)
from swe_rollout.gateway.dialects.base import Dialect
from swe_rollout.gateway.dialects.fields import rules
from swe_rollout.gateway.values import BadRequestError, Finish, Request
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from unit.agent.agent_parts import assert_hold, bash, player
from unit.gateway.gateway_parts import close_session, open_session, serving
from unit.gateway.test_conversations import ASKED, conversations, going_on, told
from unit.worker.work_parts import job

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}]}
INPUT: dict[str, Any] = {"input": "a"}
CONTENTS: dict[str, Any] = {"contents": [{"parts": [{"text": "a"}]}]}
SCHEMA = {"type": "object", "properties": {"a_b": {"type": "string"}}}
APIS: dict[str, tuple[Dialect, dict[str, Any], Any]] = {
    "chat": (openai_chat.OpenaiChat(), CHAT, openai_chat),
    "responses": (openai_responses.OpenaiResponses(), INPUT, openai_responses),
    "messages": (anthropic_messages.AnthropicMessages(), CHAT, anthropic_messages),
    "google": (google_generate.GoogleGenerate(), CONTENTS, google_generate),
}
TOOLS = {
    "chat": [{"type": "function", "function": {"name": "f"}}],
    "responses": [{"type": "function", "name": "f"}],
    "messages": [{"name": "f", "input_schema": {}}],
    "google": [{"functionDeclarations": [{"name": "f"}]}],
}


def read(api: str, **more: Any) -> Request:
    dialect, body, _ = APIS[api]
    return dialect.read(msgspec.json.encode(body | more)).request


def at(name: str, value: object) -> dict[str, Any]:
    """Return a field of a request, which may be one of an object."""
    key, _, rest = name.partition(".")
    return {key: at(rest, value) if rest else value}


NAMES = [(api, name) for api, found in rules().items() for rule in found for name in rule.fields]


@pytest.mark.parametrize("api", APIS)
def test_what_is_read_is_what_the_dialect_reads(api: str) -> None:
    said = [name.partition(".")[0] for rule in rules()[api] for name in rule.read]
    assert {*said} == {*APIS[api][2]._Body.__struct_fields__}
    assert len(NAMES) == len({*NAMES})


@pytest.mark.parametrize(("api", "name"), NAMES)
def test_a_field_is_refused_or_changes_nothing(api: str, name: str) -> None:
    (rule,) = (each for each in rules()[api] if name in each.fields)
    assert bool(rule.refused) != bool(rule.left_out)
    empty: tuple[object, ...] = (None, "", [], {})
    for value in empty:
        assert read(api, **at(name, value)) == read(api)
    for value in rule.unless if rule.refused else ("odd", 3, False):
        assert read(api, **at(name, value)) == read(api)
    if rule.refused:
        for value in rule.when or ("odd", 3, {"type": "odd"}):
            with pytest.raises(BadRequestError, match=rf"`{name}` is refused: \w") as caught:
                read(api, **at(name, value))
            assert (caught.value.code, caught.value.status) == ("unsupported_value", 400)


@pytest.mark.parametrize(
    ("api", "more"),
    [
        ("responses", {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "a"}}),
        ("responses", {"text": {"verbosity": "low", "format": {"type": "text"}}}),
        ("messages", {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}),
        ("messages", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("google", {"generationConfig": {"thinkingConfig": {"a": 1}, "topK": 64, "seed": 0}}),
        ("chat", {"modalities": ["text"], "logprobs": False, "top_logprobs": 0, "n": 1}),
    ],
)
def test_what_harnesses_send_is_taken(api: str, more: dict[str, Any]) -> None:
    assert read(api, **more) == read(api)


@pytest.mark.parametrize(
    ("api", "more"),
    [
        ("responses", {"include": ["a", "message.output_text.logprobs"]}),
        ("messages", {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
        ("chat", {"modalities": ["text", "audio"]}),
        ("chat", {"response_format": {"type": "json_schema", "json_schema": {}}}),
        ("chat", {"max_tokens": 0}),
        ("google", {"generationConfig": {"maxOutputTokens": -1}}),
        ("google", {"generation_config": {"response_mime_type": "application/json"}}),
        ("chat", {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}),
        ("chat", {"a": "b", **{f"x{at}": 1 for at in range(99)}, "n": 2}),
    ],
)
def test_a_part_of_a_field_that_changes_the_answer_is_refused(
    api: str, more: dict[str, Any]
) -> None:
    with pytest.raises(BadRequestError):
        read(api, **more)


def test_fields_that_nobody_knows_are_named_and_not_all_of_a_flood() -> None:
    assert read("chat", top_speed=1).ignored == ("the field top_speed",)
    found = read("google", generationConfig={"topSpeed": 1}, safety={"a": 1}).ignored
    assert found == ("the field generationConfig.topSpeed", "the field safety")
    flood = read("messages", **{f"{at}" * 100: 1 for at in range(100)}).ignored
    assert (len(flood), max(map(len, flood))) == (16, len("the field ") + 60)


async def test_the_record_names_once_what_is_left_out(tmp_path: Path) -> None:
    async with serving(player("One.", "Two."), tmp_path) as client:
        headers = {"Authorization": f"Bearer {await open_session(client)}"}
        for text in ("a", "b"):
            body = {"messages": [{"role": "user", "content": text}], "top_speed": 1}
            body["tools"] = [{"type": "web_search"}]
            await client.post("/v1/chat/completions", headers=headers, json=body)
        await close_session(client)
    record = await Store.open(f"file://{tmp_path}").read(EpisodeId(job().metadata.name, "task", 0))
    found = [(note.turn, note.reason) for note in record.differences]
    assert found == [
        (0, "left out: the field top_speed"),
        (0, "left out: the tool web_search"),
        (1, "another prompt, or other tools"),
    ]


async def test_the_record_names_no_flood_of_fields() -> None:
    engine = player(*["One."] * 8)
    played = conversations(engine)
    for at_ in range(8):
        more = {f"x{at_}{each}": 1 for each in range(16)}
        messages = [{"role": "user", "content": f"{at_}"}]
        await played.answer(read("chat", messages=messages, **more))
    left_out = [e for e in played.state.differences if e.reason.startswith("left out")]
    assert len(left_out) == 64


NONE: dict[str, dict[str, Any]] = {
    "chat": {"tool_choice": "none"},
    "responses": {"tool_choice": "none"},
    "messages": {"tool_choice": {"type": "none"}},
    "google": {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
}
ONE: dict[str, dict[str, Any]] = {
    "chat": {"parallel_tool_calls": False},
    "responses": {"parallel_tool_calls": False, "tool_choice": "auto"},
    "messages": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
}


@pytest.mark.parametrize("api", APIS)
def test_the_choice_of_tools_counts_calls_and_leaves_the_prompt(api: str) -> None:
    anyhow = read(api, tools=TOOLS[api])
    assert anyhow.most_calls is None
    for more, most in ((NONE[api], 0), (ONE.get(api, {}), 1 if api in ONE else None)):
        found = read(api, tools=TOOLS[api], **more)
        assert (found.most_calls, found.tools, found.first) == (most, anyhow.tools, anyhow.first)
    # Codex says so where it sends no tools.
    assert read(api, **ONE.get(api, {})).most_calls is None


@pytest.mark.parametrize(
    ("api", "choice"),
    [
        *(("chat", {"tool_choice": each}) for each in ("required", {"type": "function"})),
        ("chat", {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}),
        *(("responses", {"tool_choice": each}) for each in ("required", {"type": "function"})),
        *(("messages", {"tool_choice": {"type": each}}) for each in ("any", "tool")),
        *(
            ("google", {"tool_config": {"function_calling_config": each}})
            for each in ({"mode": "ANY"}, {"mode": "VALIDATED"}, {"allowed_function_names": ["f"]})
        ),
    ],
)
def test_no_call_is_forced(api: str, choice: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError, match="nothing forces") as caught:
        read(api, tools=TOOLS[api], **choice)
    assert caught.value.code == "unsupported_value"


@pytest.mark.parametrize("most", [0, 1])
async def test_calls_that_nobody_wants_are_text_and_go_on_in_the_same_branch(most: int) -> None:
    engine = player(f"Hm.\n{bash('ls')}\n{bash('pwd')}", "Done.")
    played = conversations(engine)
    found = await played.answer(replace(ASKED, most_calls=most))
    assert len(found.calls) == most
    assert found.finish is (Finish.CALLS if most else Finish.STOP)
    assert found.text.count("pwd") == 1
    assert found.text.count("ls") == 1 - most
    await played.answer(going_on(ASKED, told(found, *["a.py"] * most, message="Go on.")))
    assert len(played.branches()) == 1
    assert_hold(played, engine)


async def test_who_wants_no_calls_after_all_gets_another_answer() -> None:
    played = conversations(player(bash("ls"), "Done."))
    first, second = await played.answer(ASKED), await played.answer(replace(ASKED, most_calls=0))
    assert (len(first.calls), second.text) == (1, "Done.")


def test_google_has_the_names_of_its_protocol_buffers_too() -> None:
    call = {"name": "f", "args": {"function_call": 1}}
    body = {
        "system_instruction": {"parts": [{"text": "s"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"function_call": call}]},
            {
                "role": "user",
                "parts": [{"function_response": {"name": "f", "response": {"a_b": 1}}}],
            },
        ],
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": SCHEMA}]}],
        "generation_config": {"max_output_tokens": 7, "stop_sequences": ["x"]},
    }
    found = APIS["google"][0].read(msgspec.json.encode(body)).request
    assert [message.content for message in found.first] == ["s", "a"]
    assert (found.limits, found.ignored) == ((7, ("x",), None), ())
    (turn,) = found.turns
    assert turn.calls[0].values == {"function_call": 1}
    assert turn.results[0].text == '{"a_b":1}'
    assert found.tools[0].arguments.schema == SCHEMA


@pytest.mark.parametrize("api", APIS)
def test_what_is_nested_too_deeply_is_refused_wherever_it_stands(api: str) -> None:
    dialect, body, _ = APIS[api]
    deep = b"[" * 100_000 + b"]" * 100_000
    start = msgspec.json.encode(body)[:-1]
    with pytest.raises(BadRequestError, match="can't be read"):
        dialect.read(start + b',"system_instruction":{},"odd":' + deep + b"}")
