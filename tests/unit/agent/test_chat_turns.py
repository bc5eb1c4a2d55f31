"""Episodes over a chat API: the same programs, tools and limits, and a record without tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from swe_rollout.agent.chat_turns import read_calls
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.first_prompt import PromptTooLongError
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.program import Agent, loop, run_agent
from swe_rollout.agent.prompts import Prompts
from swe_rollout.engine.base import EngineInfo
from swe_rollout.engine.chat.base import (
    AssistantMessage,
    ChatCall,
    ChatEngine,
    ChatRequest,
    ChatResponse,
    ChatUsage,
    ToolResult,
    ToolResults,
    UserMessage,
)
from swe_rollout.engine.errors import ContextOverflowError
from swe_rollout.errors import EngineError, InternalError
from swe_rollout.spec.limits import CutTurns, Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import ChatLine
from swe_rollout.types.turn import CallStatus, FinishReason
from unit.agent.agent_parts import TOOLS, Echo, context_of


def say(
    text: str = "",
    *calls: tuple[str, str],
    finish: FinishReason = FinishReason.STOP,
    usage: ChatUsage = ChatUsage(100, 10, 5),  # noqa: B008 - frozen
) -> ChatResponse:
    """A message with calls of these names and arguments; their ids count up in it."""
    named = tuple(ChatCall(f"id{n}", name, raw) for n, (name, raw) in enumerate(calls))
    return ChatResponse(AssistantMessage(text, named), finish, usage, model="m-1")


LS = ("bash", '{"command": "ls"}')
LISTING = "exit code: 0\nstdout:\nls"
SUBMIT = say("Done.", ("submit", "{}"))


@dataclass
class Talker(ChatEngine):
    """Says one message after the other, the last one again; raises what is an error."""

    messages: Sequence[ChatResponse | Exception]
    requests: list[ChatRequest] = field(default_factory=list)
    pause_s: float = 0.0

    async def info(self) -> EngineInfo:
        return EngineInfo("talker", None, None, None)

    async def respond(self, request: ChatRequest) -> ChatResponse:
        said = self.messages[min(len(self.requests), len(self.messages) - 1)]
        self.requests.append(request)
        await asyncio.sleep(self.pause_s)
        if isinstance(said, Exception):
            raise said
        return said


def episode(
    engine: ChatEngine,
    *,
    sandbox: Echo | None = None,
    prompts: Prompts | None = None,
    chat_format: str | None = None,
    **limits: object,
) -> AgentContext:
    parts = AgentParts(
        engine,
        None,
        TOOLS,
        prompts or Prompts("Be brief.", "Fix."),
        Limits.model_validate(limits),
        chat_format=chat_format,
    )
    return context_of(parts, sandbox=sandbox, sampling=Sampling(temperature=0.5))


async def play(
    *messages: ChatResponse | Exception, program: Agent = loop, **limits: object
) -> tuple[StopReason, AgentContext, Talker]:
    engine = Talker(messages)
    context = episode(engine, sandbox=None, prompts=None, chat_format=None, **limits)
    return await run_agent(program, context), context, engine


async def test_an_episode_is_played_to_its_submission() -> None:
    stop, context, engine = await play(say("I look.", LS), SUBMIT)
    assert stop is StopReason.SUBMITTED
    first, second = engine.requests
    assert (first.system, first.messages) == ("Be brief.", (UserMessage("Fix."),))
    assert [tool.name for tool in first.tools] == ["bash", "str_replace_editor", "submit"]
    assert first.tools[0].parameters["type"] == "object"
    assert (first.max_new_tokens, first.sampling.temperature) == (4096, 0.5)
    assert second.messages == (
        UserMessage("Fix."),
        AssistantMessage("I look.", (ChatCall("id0", *LS),)),
        ToolResults((ToolResult("id0", LISTING),)),
    )
    turn = context.turns[0]
    assert (turn.text, turn.completion_tokens, turn.cached_tokens) == ("I look.", 10, 5)
    assert turn.tool_calls[0].arguments == {"command": "ls"}
    assert turn.tool_calls[0].id == "id0"
    assert turn.request.length == 0


async def test_calls_may_stand_in_the_words_of_a_message() -> None:
    engine = Talker([say('Look.\nTOOL_CALL: bash(command="ls")'), say("TOOL_CALL: submit()")])
    context = episode(engine, chat_format="tool_call_line")

    assert await run_agent(loop, context) is StopReason.SUBMITTED

    first, second = engine.requests
    assert first.tools == ()
    assert first.system.startswith("Be brief.\n\n# Tools")
    assert "TOOL_CALL: TOOL(KEY='VALUE')" in first.system
    assert second.messages[-1] == UserMessage(f"Observation:\n{LISTING}")
    assert context.turns[0].tool_calls[0].arguments == {"command": "ls"}
    recorded = context.chat()
    assert recorded is not None
    assert recorded.messages[0] == ChatLine("system", first.system)


async def test_a_call_in_words_that_does_not_parse_is_answered() -> None:
    engine = Talker([say("TOOL_CALL: bash(command=)"), say("I give up.")])
    context = episode(engine, chat_format="tool_call_line")

    assert await run_agent(loop, context) is StopReason.FINISHED

    (call,) = context.turns[0].tool_calls
    assert call.status is not CallStatus.OK
    assert engine.requests[1].messages[-1] == UserMessage(f"Observation:\n{call.problem}")


async def test_a_call_of_the_api_itself_is_answered_beside_those_in_words() -> None:
    engine = Talker([say('TOOL_CALL: bash(command="pwd")', LS), say("Done.")])
    context = episode(engine, chat_format="tool_call_line")

    await run_agent(loop, context)

    *_, results, words = engine.requests[1].messages
    assert results == ToolResults((ToolResult("id0", f"Observation:\n{LISTING}"),))
    assert isinstance(words, UserMessage)
    assert words.text.endswith("stdout:\npwd")


async def test_its_record_has_messages_and_no_tokens() -> None:
    _, context, _ = await play(say("I look.", LS), SUBMIT)
    (branch,) = context.branches()
    assert (branch.token_ids, branch.loss_mask, branch.segments) == ((), (), ())
    found = context.chat()
    assert found is not None
    assert found.models == ("m-1",)
    assert found.messages == (
        ChatLine("system", "Be brief."),
        ChatLine("user", "Fix."),
        ChatLine("assistant", "I look.", turn=0),
        ChatLine("tool", LISTING),
        ChatLine("assistant", "Done.", turn=1),
    )


@pytest.mark.parametrize("words", ["Nothing to do.", 'TOOL_CALL: bash(command="ls")'])
async def test_a_message_without_calls_of_the_api_ends_the_episode(words: str) -> None:
    stop, context, _ = await play(say(words))
    assert (stop, context.said) == (StopReason.FINISHED, words)
    assert context.turns[0].tool_calls == ()


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("bash", '{"command": "ls"}', CallStatus.OK),
        ("submit", "", CallStatus.OK),
        ("bash", "", CallStatus.BAD_ARGUMENTS),
        ("bash", '{"command": 1}', CallStatus.BAD_ARGUMENTS),
        ("bash", '{"command": "ls", "extra": 1}', CallStatus.BAD_ARGUMENTS),
        ("bash", '["ls"]', CallStatus.BAD_ARGUMENTS),
        ("bash", "null", CallStatus.BAD_ARGUMENTS),
        ("bash", '{"command": "ls"', CallStatus.INVALID_JSON),
        ("bash", '{"command": "a", "command": "b"}', CallStatus.INVALID_JSON),
        ("bash", '{"command": "ls"} {}', CallStatus.INVALID_JSON),
        ("bash", '{"command": NaN}', CallStatus.INVALID_JSON),
        ("bash", '{"command": ' + "[" * 50_000, CallStatus.INVALID_JSON),
        ("bash", r'{"command": "\ud800"}', CallStatus.INVALID_JSON),
        ("rm", "{}", CallStatus.UNKNOWN_TOOL),
        ("", "{}", CallStatus.MISSING_NAME),
    ],
)
def test_calls_are_checked_as_strictly_as_those_of_tokens(
    name: str, arguments: str, status: CallStatus
) -> None:
    (call,) = read_calls([ChatCall("1", name, arguments)], TOOLS.specs)
    assert (call.status, call.id) == (status, "1")
    assert bool(call.problem) is (status is not CallStatus.OK)
    json.dumps(call.raw).encode()


async def test_every_call_gets_a_result_by_its_id_and_refusals_say_so() -> None:
    _, _, engine = await play(say("", LS, ("rm", "{}"), ("bash", "{")), SUBMIT)
    (results,) = [each for each in engine.requests[1].messages if isinstance(each, ToolResults)]
    assert [(each.call_id, each.is_error) for each in results.results] == [
        ("id0", False),
        ("id1", True),
        ("id2", True),
    ]


async def test_a_thousand_calls_are_answered_and_few_of_them_run() -> None:
    sandbox = Echo()
    engine = Talker([say("", *[LS] * 1000), SUBMIT])
    assert await run_agent(loop, episode(engine, sandbox=sandbox)) is StopReason.SUBMITTED
    (results,) = [each for each in engine.requests[1].messages if isinstance(each, ToolResults)]
    assert len(results.results) == 1000
    assert len(sandbox.commands) == 128


async def test_a_cut_message_ends_the_episode_and_nothing_in_it_runs() -> None:
    stop, context, _ = await play(
        say("I", LS, finish=FinishReason.LENGTH, usage=ChatUsage(9, 50)), maxNewTokens=50
    )
    assert stop is StopReason.TOKEN_LIMIT
    assert context.turns[0].observations == ()


@pytest.mark.parametrize("calls", [(), (LS,)])
async def test_a_cut_message_can_be_answered(calls: tuple[tuple[str, str], ...]) -> None:
    sandbox = Echo()
    engine = Talker([say("I", *calls, finish=FinishReason.LENGTH), SUBMIT])
    context = episode(engine, sandbox=sandbox, cutTurns=CutTurns.ANSWER, maxNewTokens=10)
    assert await run_agent(loop, context) is StopReason.SUBMITTED
    assert sandbox.commands == []
    last = engine.requests[1].messages[-1]
    text = last.results[0].text if isinstance(last, ToolResults) else last.text
    assert "the turn was cut after 10 tokens" in text
    assert isinstance(last, ToolResults) is bool(calls)


async def test_limits_hold() -> None:
    assert (await play(say("", LS), turns=3))[0] is StopReason.TURN_LIMIT
    big = say("", LS, usage=ChatUsage(900, 101))
    assert (await play(big, contextTokens=1000))[0] is StopReason.CONTEXT_FULL
    assert (await play(say("", ("rm", "{}"))))[0] is StopReason.FORMAT_ERRORS
    assert (await play(say("", LS), repeatedTurns=4))[0] is StopReason.REPEATED


async def test_the_time_limit_ends_a_call() -> None:
    engine = Talker([SUBMIT], pause_s=30)
    context = episode(engine, episodeSeconds=0.05)
    assert await run_agent(loop, context) is StopReason.TIME_LIMIT
    assert context.turns == []


async def test_a_full_context_is_an_end_and_no_failure() -> None:
    full = ContextOverflowError("too long")
    assert (await play(say("", LS), full))[0] is StopReason.CONTEXT_FULL
    with pytest.raises(PromptTooLongError, match="too long"):
        await play(full)


async def test_an_error_of_the_api_is_a_failure() -> None:
    engine = Talker([say("", LS), EngineError("it broke")])
    context = episode(engine)
    with pytest.raises(EngineError):
        await run_agent(loop, context)
    assert len(context.turns) == 1
    assert context.chat() is not None


async def test_what_a_program_says_comes_behind_the_results() -> None:
    async def program(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        context.say("Also read the docs.")
        return await context.finish()

    _, context, engine = await play(say("", LS), SUBMIT, program=program)
    assert engine.requests[1].messages[-2:] == (
        ToolResults((ToolResult("id0", LISTING),)),
        UserMessage("Also read the docs."),
    )
    found = context.chat()
    assert found is not None
    assert ChatLine("user", "Also read the docs.") in found.messages


async def test_sub_agents_have_conversations_of_their_own() -> None:
    async def program(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        child = await context.spawn("Look at the tests.", turns=2)
        await child.finish()
        return await context.finish()

    _, context, engine = await play(say("", LS), say("They pass."), SUBMIT, program=program)
    assert engine.requests[1].messages == (UserMessage("Look at the tests."),)
    assert engine.requests[1].system == "Be brief."
    assert [turn.branch for turn in context.episode_turns] == [0, 1, 0]
    found = context.chat()
    assert found is not None
    assert [line.text for line in found.messages if line.branch == 1] == [
        "Be brief.", "Look at the tests.", "They pass.",
    ]  # fmt: skip


async def test_a_long_conversation_is_compacted() -> None:
    long = say("", LS, usage=ChatUsage(600, 100))
    first = replace(long, usage=ChatUsage(50, 10))
    stop, context, engine = await play(
        first, long, say("My notes."), SUBMIT, contextTokens=1000, compactAt=500
    )
    assert stop is StopReason.SUBMITTED
    assert isinstance(last := engine.requests[2].messages[-1], UserMessage)
    assert "little room left" in last.text
    (prompt,) = engine.requests[3].messages
    assert isinstance(prompt, UserMessage)
    assert "My notes." in prompt.text
    assert [branch.kind for branch in context.branches()] == ["main", "restart"]


async def test_half_a_surrogate_pair_is_no_text_of_a_record() -> None:
    odd = replace(SUBMIT, message=replace(SUBMIT.message, text="\ud800"))
    _, context, _ = await play(odd)
    json.dumps(context.turns[0].text, ensure_ascii=False).encode()


def test_parts_over_a_chat_api_have_no_tokens() -> None:
    parts = AgentParts(Talker([]), None, TOOLS, Prompts(), Limits())
    assert parts.chat is not None
    with pytest.raises(InternalError):
        _ = parts.tokens
