"""The branches of a running episode, and the state that all of its agents share.

Compaction replaces a long history with the policy's own summary of it. The request for a summary is
a user message; the summary is an ordinary turn, trained on in the branch that it ends. The next
branch starts with the first prompt and the summary, both with mask 0.

An `OpenBranch` is a token log and the content of its next delta. `EpisodeState` holds the episode's
turns, clock and failure; its agents use the engine one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from swe_rollout.agent.call_text import describe_tools, written_call
from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.prompts import Message, MessageRole, with_system
from swe_rollout.agent.renderer import Rendered
from swe_rollout.agent.tools.state import ToolState
from swe_rollout.engine.chat.base import (
    ChatMessage,
    ChatResponse,
    ToolResult,
    ToolResults,
    UserMessage,
)
from swe_rollout.spec.limits import Limits
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.tokens.log import TokenLog
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.trajectory import ChatLine, ChatRecord, Difference
from swe_rollout.types.turn import CallStatus, ToolCall, Turn

_SHORT_CALLS = 8
_SHORT_CHARACTERS = 4096
"""Work up to these sizes takes a few milliseconds at most, so it runs on the event loop."""
SUMMARY_REQUEST = """\
There is little room left in this conversation. It ends here, and you go on in a new one that \
holds the task and what you write now, nothing else. Call no tool in this turn. Write down what \
you need to go on:
- what you found out, with the paths and names that matter;
- which files you changed, and how;
- commands that worked, and attempts that failed and why;
- what is left to do, in order."""
_NOTES = """\


You have worked on this before. These are your notes from then; what you changed in the files is \
still there. Go on from here.

<notes>
{summary}
</notes>"""


class OpenBranch:
    """One branch: its log, and the input that follows its last turn."""

    def __init__(
        self,
        index: int,
        kind: BranchKind,
        parent: OpenBranch | None,
        prompt: Rendered,
        *,
        parent_length: int | None = None,
    ) -> None:
        """`parent_length` is the length of the parent's log, if it opened the branch earlier."""
        self.index = index
        self.has_turns = False
        self._kind = kind
        self._parent = parent
        self._parent_length: int | None = 0 if parent is None else len(parent.log)
        if parent_length is not None:
            self._parent_length = parent_length
        elif parent is not None and not parent.has_turns:
            self._parent_length = None  # its prompt may still grow
        self.begin((), prompt)
        self._last_calls: tuple[ToolCall, ...] = ()
        self._reasoning_is_open = False
        self._delta: tuple[tuple[int, tuple[str, ...], str], Rendered] | None = None

    def begin(self, first: Sequence[Message], prompt: Rendered) -> None:
        """Start with these messages; again only before the first turn."""
        self.first = first
        """The messages that the branch starts with."""
        self.log = TokenLog()
        self.log.append_prompt(prompt.ids)
        self.opens_reasoning = prompt.opens_reasoning
        """Whether the next turn starts inside its reasoning."""

    @property
    def last_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the last turn."""
        return self._last_calls

    def follow(self, calls: tuple[ToolCall, ...], *, reasoning_is_open: bool) -> None:
        """Record the calls and the reasoning state of the turn that the next delta follows."""
        self._last_calls, self._reasoning_is_open = calls, reasoning_is_open

    async def delta(self, parts: AgentParts, results: Sequence[str], message: str) -> Rendered:
        """Render the input after the last turn, once; later calls return the same delta."""
        key = (len(self.log), tuple(results), message)
        if self._delta is None or self._delta[0] != key:
            render = partial(
                parts.tokens.renderer.delta,
                self.log.last_id(),
                self._last_calls,
                results=results,
                tools=parts.toolbox.specs,
                open_reasoning=self._reasoning_is_open,
                messages=(message,) if message else (),
            )
            size = sum(map(len, results)) + len(message)
            is_short = len(results) <= _SHORT_CALLS and size <= _SHORT_CHARACTERS
            self._delta = key, render() if is_short else await off_loop(render)
        return self._delta[1]

    def append(self, delta: Rendered, *, turn: int) -> None:
        """Append a delta, before the turn that its prompt opens."""
        self.opens_reasoning = delta.opens_reasoning
        self.log.append_delta(delta.ids, turn=turn)
        self._delta = None

    def forget_delta(self) -> None:
        """Forget a delta that was rendered and not appended."""
        self._delta = None

    async def is_full(self, parts: AgentParts, results: Sequence[str], message: str) -> bool:
        """Return whether the branch, including its next delta, would exceed `compactAt`."""
        if parts.limits.compact_at is None:
            return False
        delta = await self.delta(parts, results, message)
        return compaction_is_due(self.log, len(delta.ids), parts.limits)

    def record(self) -> Branch:
        """Return the stored form of the branch."""
        parent, length = self._parent, self._parent_length
        if length is None:
            length = parent.log.segments[0].end if parent and parent.log.segments else 0
        return Branch.of(
            self.log,
            index=self.index,
            kind=self._kind,
            parent=None if parent is None else parent.index,
            parent_length=length,
        )


class ChatBranch(OpenBranch):
    """One branch of an episode over a chat API: messages, and a log without tokens."""

    def __init__(
        self, index: int, kind: BranchKind, parent: OpenBranch | None, first: Sequence[Message]
    ) -> None:
        super().__init__(index, kind, parent, Rendered([], opens_reasoning=False))
        self.begin(first, Rendered([], opens_reasoning=False))
        self.tokens = 0
        """Tokens of the last request and its response, as the API counts them."""
        self._prompt_tokens = 0

    def begin(self, first: Sequence[Message], prompt: Rendered) -> None:
        super().begin(first, prompt)
        self.system = "".join(_texts(first, MessageRole.SYSTEM))
        self.messages: list[ChatMessage] = list(map(UserMessage, _texts(first, MessageRole.USER)))
        lines = [ChatLine(message.role.value, message.content, self.index) for message in first]
        self.lines = lines
        """The recorded conversation; each message of the policy has the index of its turn."""

    def following(
        self, calls: Sequence[ToolCall], results: Sequence[str], message: str
    ) -> list[ChatMessage]:
        """Return the messages after the last turn: results of its calls, and the user's message."""
        pairs = list(zip(calls, results, strict=True))
        answered = tuple(
            ToolResult(call.id, text, is_error=call.status is not CallStatus.OK)
            for call, text in pairs
            if call.id
        )
        # A truncated turn may have no call that a result could refer to.
        said = [text for call, text in pairs if not call.id] + ([message] if message else [])
        return [
            *([ToolResults(answered)] if answered else []),
            *([UserMessage("\n\n".join(said))] if said else []),
        ]

    def add(self, following: Sequence[ChatMessage], response: ChatResponse, *, turn: int) -> None:
        """Append the messages sent after the last turn, and the response to them."""
        self.messages += following
        self.lines += [line for each in following for line in _lines(each, self.index)]
        said = response.message
        if said.text or said.calls:
            self.messages.append(said)
        self.lines.append(ChatLine("assistant", said.text, self.index, turn))
        self.tokens = response.usage.prompt_tokens + response.usage.completion_tokens
        self._prompt_tokens = self._prompt_tokens or response.usage.prompt_tokens
        self.has_turns = True

    async def is_full(self, parts: AgentParts, results: Sequence[str], message: str) -> bool:
        del results, message
        bound = parts.limits.compact_at_tokens
        return bound is not None and self.tokens > bound >= self._prompt_tokens


def _with_tools(first: Sequence[Message], parts: AgentParts) -> Sequence[Message]:
    """Describe the tools in the system message if calls are written in the message text."""
    form, tools = parts.chat_format, parts.toolbox.specs
    if form is None or not tools:
        return first
    return with_system(first, describe_tools(tools, written_call(form)))


def _texts(messages: Sequence[Message], role: MessageRole) -> Iterator[str]:
    return (message.content for message in messages if message.role is role)


def _lines(message: ChatMessage, branch: int) -> Iterator[ChatLine]:
    match message:
        case UserMessage(text):
            yield ChatLine("user", text, branch)
        case ToolResults(results):
            yield from (ChatLine("tool", result.text, branch) for result in results)
        case _:
            return


class EpisodeState:
    """The state that the agents of one episode share."""

    def __init__(self, parts: AgentParts, on_turn: Callable[[Turn], None]) -> None:
        self.turns: list[Turn] = []
        """The turns of all agents, by index."""
        self.branches: list[OpenBranch] = []
        self.sub_agents = 0
        self.differences: list[Difference] = []
        """Those of a harness, in order."""
        self.failure: Exception | None = None
        self.is_over = False
        """Whether the agent program has returned."""
        self.tools = ToolState()
        """The state of the episode's tools."""
        self.engine = asyncio.Lock()
        """Allows one engine call of the episode at a time."""
        self._episode_seconds = parts.limits.episode_seconds
        self.deadline = Deadline(self._episode_seconds)
        """The clock, which all agents share."""
        self._on_turn = on_turn
        self._reported = set[int]()
        self.models: dict[str, None] = {}
        """The models that a chat API reported in its responses, in order of first use."""

    def chat(self) -> ChatRecord | None:
        """Return the conversations of an episode over a chat API, or None if it has tokens."""
        chats = [branch for branch in self.branches if isinstance(branch, ChatBranch)]
        if not chats:
            return None
        return ChatRecord(
            tuple(self.models), tuple(line for branch in chats for line in branch.lines)
        )

    def prompts(self) -> tuple[ChatLine, ...]:
        """Return the messages that the branches start with."""
        return tuple(
            ChatLine(message.role.value, message.content, branch.index)
            for branch in self.branches
            for message in branch.first
        )

    def start_clock(self) -> None:
        """Restart the clock from zero."""
        self.deadline.reset(self._episode_seconds)

    async def open_branch(
        self,
        kind: BranchKind,
        parent: OpenBranch | None,
        parts: AgentParts,
        first: Sequence[Message],
    ) -> OpenBranch:
        """Open the next branch, which starts with these messages."""
        branch: OpenBranch
        if parts.chat is not None:
            branch = ChatBranch(len(self.branches), kind, parent, _with_tools(first, parts))
        else:
            prompt = await off_loop(parts.tokens.renderer.prompt, first, parts.toolbox.specs)
            branch = OpenBranch(len(self.branches), kind, parent, prompt)
            branch.first = first
        self.branches.append(branch)
        return branch

    async def extend_prompt(self, branch: OpenBranch, parts: AgentParts, text: str) -> None:
        """Append a message to the prompt of a branch that has no turns yet."""
        first, prompt = appended(branch.first, f"\n\n{text}"), Rendered([], opens_reasoning=False)
        if parts.chat is None:
            prompt = await off_loop(parts.tokens.renderer.prompt, first, parts.toolbox.specs)
        branch.begin(first, prompt)

    def report(self, index: int) -> None:
        """Notify the observer, once per turn, that a turn ended without a failure."""
        if index not in self._reported:
            self._reported.add(index)
            self._on_turn(self.turns[index])

    def report_all(self) -> None:
        """Report the turns whose calls the program left open."""
        for turn in self.turns:
            self.report(turn.index)


def with_summary(first: Sequence[Message], summary: str) -> tuple[Message, ...]:
    """Return the first messages of a branch, with a summary appended."""
    return appended(first, _NOTES.replace("{summary}", summary or "(none)"))


def appended(first: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Return the first messages of a branch, with a text appended to the last user message.

    It gets no message of its own because many templates reject two user messages in a row. Like
    the text of a dataset row, it can't forge control tokens.
    """
    users = [at for at, message in enumerate(first) if message.role is MessageRole.USER]
    if not users:
        return (*first, Message(MessageRole.USER, text.lstrip()))
    changed = replace(first[users[-1]], content=first[users[-1]].content + text)
    return (*first[: users[-1]], changed, *first[users[-1] + 1 :])


def compaction_is_due(log: TokenLog, more: int, limits: Limits) -> bool:
    """Return whether a log that grows by `more` tokens would exceed `limits.compactAt`.

    This is never so while the prompt is most of the log, because compaction keeps the prompt.
    """
    if limits.compact_at_tokens is None:
        return False
    prompt = log.segments[0].end
    return len(log) + more > limits.compact_at_tokens >= prompt
