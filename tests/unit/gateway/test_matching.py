"""What makes two conversations the same, and which result belongs to which call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.gateway import matching
from swe_rollout.gateway.dialects.base import tool
from swe_rollout.gateway.matching import Chains, chain, exchange_of, results_of, tells
from swe_rollout.gateway.values import Answer, Call, Finish, Request, Result, Told
from swe_rollout.types.turn import CallStatus, ToolCall

SAMPLED = (ToolCall(CallStatus.OK, "", "a", {}), ToolCall(CallStatus.OK, "", "b", {}))


def turn(ids: tuple[str, str], *results: tuple[str, str]) -> Told:
    calls = (Call(ids[0], "a", "{}"), Call(ids[1], "b", "{}"))
    return Told("", calls, tuple(Result(*each) for each in results))


def digest(told: Told) -> bytes:
    return chain(Request((Message(MessageRole.USER, "a"),), (told,))).digests[-1]


@pytest.mark.parametrize(
    ("told", "results", "shown"),
    [
        (turn(("x", "y"), ("y", "2"), ("x", "1")), ["1", "2"], ("1", "2")),
        (turn(("x", "x"), ("x", "1"), ("x", "2")), ["1", "2"], ("1", "2")),
        (turn(("", ""), ("", "1"), ("", "2")), ["1", "2"], ("1", "2")),
        (turn(("x", "x"), ("x", "1")), None, ("1", "")),
        (turn(("x", "y"), ("y", "2")), None, ("", "2")),
        (turn(("x", "y"), ("x", "1"), ("x", "2")), None, ("1", "")),
    ],
)
def test_each_call_has_its_own_result(
    told: Told, results: list[str] | None, shown: tuple[str, ...]
) -> None:
    assert results_of(SAMPLED, told) == results
    assert exchange_of(told).results == shown


def test_results_that_change_places_are_another_conversation() -> None:
    for ids in (("x", "x"), ("x", "y")):
        told = turn(ids, (ids[0], "1"), (ids[1], "2"))
        assert digest(told) != digest(turn(ids, (ids[0], "2"), (ids[1], "1")))
    unknown = turn(("x", "y"), ("z", "1"), ("z", "2"))
    assert digest(unknown) != digest(structs.replace(unknown, results=unknown.results[::-1]))


def conversation(*texts: str, task: str = "a") -> Request:
    return Request((Message(MessageRole.USER, task),), tuple(Told(text) for text in texts))


def test_what_is_known_of_a_conversation_is_not_digested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chains, digested = Chains(), list[str]()

    def after(told: Told) -> list[str]:
        digested.append(told.text)
        return []

    monkeypatch.setattr(matching, "_after", after)
    for texts in (("a", "b"), ("a", "b", "c"), ("a", "x"), ("a", "b", "c", "d")):
        request = conversation(*texts)
        found = chains.of(request, 100)
        news = digested[:]
        assert found == chain(request).digests
        digested[:] = news
    assert digested == ["a", "b", "c", "x", "d"]


def test_digests_are_those_of_a_session_that_knows_nothing() -> None:
    chains = Chains()
    for request in (
        conversation("a", "b"),
        conversation("a", "b", task="c"),
        conversation("a ", "b"),
        conversation("b", "a"),
        conversation("a"),
        conversation(),
        replace(conversation("a"), tools=(tool("t", "", {"maximum": 1}),)),
        replace(conversation("a"), tools=(tool("t", "", {"maximum": True}),)),
    ):
        assert chains.of(request, 100) == chain(request).digests


def test_few_conversations_are_known_and_no_large_one() -> None:
    chains = Chains()
    for number in range(10):
        chains.of(conversation("a", task=f"{number}"), 100)
        chains.of(conversation("a", "b", task=f"{number}"), 100)
    chains.of(conversation("large"), 1 << 21)
    assert [each.turns[-1].text for each in chains.known] == ["b"] * 4


def test_a_call_without_arguments_is_shown_without_any() -> None:
    assert [dict(call.arguments) for call in exchange_of(turn(("x", "y"))).calls] == [{}, {}]
    odd = Told("", (Call("x", "a", "no object"),))
    assert dict(exchange_of(odd).calls[0].arguments) == {"arguments": "no object"}


@pytest.mark.parametrize(
    ("given", "told", "same"),
    [
        ('{"a": 10.0, "b": [1e2]}', '{"b":[100],"a":10}', True),
        ('{"a": 0.1}', '{"a":1e-1}', True),
        ('{"a": 10.5}', '{"a":10}', False),
        ('{"a": 1}', '{"a":"1"}', False),
        ('{"a": 1}', '{"a":true}', False),
        ('{"a": null}', "{}", False),
        ('{"a": 9007199254740993}', '{"a":9007199254740992}', False),
        ('{"a": 1e400}', '{"a":1e401}', True),
        ("", "{}", True),
        ("[1]", '{"arguments":"[1]"}', True),
    ],
)
def test_arguments_are_told_alike_in_any_spelling(given: str, told: str, *, same: bool) -> None:
    answer = Answer("a", "", "", (Call("a", "f", given),), Finish.CALLS, 1, 1, 0, 0)
    assert tells(Told("", (Call("b", "f", told),)), answer) is same
