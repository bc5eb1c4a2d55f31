"""ChatTurns: the turns of an agent over a chat API, which returns messages and no tokens.

It replaces `policy_turns.PolicyTurns` if the engine is a chat engine; programs, tools and limits
are the same. Calls are either the API's own, whose ids are returned with the results, or part of
the message text if the agent has a format for that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from swe_rollout.agent.branches import ChatBranch, OpenBranch
from swe_rollout.agent.call_text import written_result
from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.parsers.base import Refusal, checked
from swe_rollout.agent.parsers.strict_json import read_json
from swe_rollout.agent.policy_turns import PolicyTurns, sampling_of
from swe_rollout.agent.sampled_turn import (
    MAX_CALLS,
    SampledTurn,
    TurnBuilder,
    calls_in_words,
    cut_call,
)
from swe_rollout.agent.tools.base import ToolSpec, encodable
from swe_rollout.engine.chat.base import ChatCall, ChatRequest, ChatResponse, ChatTool
from swe_rollout.errors import InternalError
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import CallStatus, FinishReason, ToolCall

NO_TOKENS: Final = RequestProof(0, hashlib.sha256().hexdigest())
"""The proof of a request that has no tokens."""


class ChatTurns(PolicyTurns):
    """Takes the turns of one agent over a chat API, within the limits of the episode."""

    async def take(
        self, branch: OpenBranch, results: Sequence[str], message: str
    ) -> tuple[SampledTurn, TurnBuilder | None]:
        """Send the messages after the last turn and return the response, unless a limit is reached.

        A request that hits the time limit leaves no turn: APIs return a whole message or nothing.
        """
        engine = self._parts.chat
        if engine is None or not isinstance(branch, ChatBranch):
            raise InternalError("an agent over a chat API has a branch or an engine with tokens")
        if branch.tokens >= self._parts.limits.context_tokens:
            return SampledTurn(stop=StopReason.CONTEXT_FULL), None
        if self._state.deadline.expired:
            return SampledTurn(stop=StopReason.TIME_LIMIT), None
        following = branch.following(branch.last_calls, self._worded(results), message)
        turn = TurnBuilder(len(self._state.turns), NO_TOKENS, branch.index, message)
        request = self._request(branch, turn.index, following)
        response = await self._timed(engine.respond(request), branch, turn)
        if isinstance(response, StopReason):
            return SampledTurn(stop=response), None
        branch.add(following, response, turn=turn.index)
        sampled = await self._read_response(response, turn)
        branch.follow(turn.calls, reasoning_is_open=False)
        self._state.turns.append(turn.build())
        return sampled, turn

    def _request(self, branch: ChatBranch, turn: int, following: Sequence[object]) -> ChatRequest:
        return ChatRequest(
            episode=self._episode,
            turn=turn,
            system=branch.system,
            messages=(*branch.messages, *following),  # type: ignore[arg-type]
            tools=self._tools(),
            max_new_tokens=self._parts.limits.max_new_tokens,
            sampling=sampling_of(self._sampling, branch),
            clock=self._state.deadline,
        )

    def _tools(self) -> tuple[ChatTool, ...]:
        """Return the tools to pass to the API; none if the system message describes them."""
        if self._parts.chat_format is not None:
            return ()
        return tuple(
            ChatTool(spec.name, spec.description, spec.arguments.schema)
            for spec in self._parts.toolbox.specs
        )

    def _worded(self, results: Sequence[str]) -> Sequence[str]:
        return [written_result(each) for each in results] if self._parts.chat_format else results

    async def _read_response(self, response: ChatResponse, turn: TurnBuilder) -> SampledTurn:
        said, usage = response.message, response.usage
        self._state.models.setdefault(response.model)
        turn.finish_reason = response.finish_reason
        turn.cached_tokens, turn.counted_tokens = usage.cached_tokens, usage.completion_tokens
        words = encodable(said.text)
        turn.text = "\n\n".join(filter(None, (encodable(said.reasoning), words)))
        if response.finish_reason is not FinishReason.LENGTH:
            turn.calls = await off_loop(self._calls, said.calls, words)
            stop = None if turn.calls else StopReason.FINISHED
            return SampledTurn(turn.text, words, turn.calls, stop)
        tokens = usage.completion_tokens or self._parts.limits.max_new_tokens
        if stop := self._stop_of_cut(tokens):
            return SampledTurn(turn.text, words, stop=stop)
        cut = cut_call(tokens)
        turn.calls = tuple(replace(cut, name=call.name, id=call.id) for call in said.calls)
        turn.calls = turn.calls or (cut,)
        return SampledTurn(turn.text, words, turn.calls)

    def _calls(self, calls: Sequence[ChatCall], words: str) -> tuple[ToolCall, ...]:
        form, specs = self._parts.chat_format, self._parts.toolbox.specs
        worded = () if form is None else calls_in_words(form, words, specs)
        return (*worded, *read_calls(calls, specs))


def read_calls(calls: Sequence[ChatCall], tools: Sequence[ToolSpec]) -> tuple[ToolCall, ...]:
    """Check a message's calls as strictly as calls in sampled tokens; each keeps its id."""
    return tuple(
        replace(_read(call, tools) if index < MAX_CALLS else _TOO_MANY, id=call.id)
        for index, call in enumerate(calls)
    )


_TOO_MANY: Final = Refusal(CallStatus.MALFORMED, f"a turn may have {MAX_CALLS} calls").call("")


def _read(call: ChatCall, tools: Sequence[ToolSpec]) -> ToolCall:
    raw, name = encodable(call.arguments), encodable(call.name)
    if not name:
        return Refusal(CallStatus.MISSING_NAME, "it names no tool").call(raw)
    try:
        # APIs send an empty string for a call without arguments.
        arguments = read_json(call.arguments).whole if call.arguments.strip() else {}
    except ValueError as error:
        return Refusal(CallStatus.INVALID_JSON, str(error), name).call(raw)
    if not isinstance(arguments, dict):
        return Refusal(CallStatus.BAD_ARGUMENTS, "its arguments are no JSON object", name).call(raw)
    return checked(name, arguments, tools=tools, raw=raw)
