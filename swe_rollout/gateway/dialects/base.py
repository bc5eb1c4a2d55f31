"""What the dialects share: items of a conversation in order, and what a dialect has to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Protocol, TypeAlias, TypeVar

import msgspec

from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.gateway.dialects.fields import Fields
from swe_rollout.gateway.values import Answer, BadRequestError, Call, Request, Result, Told

_Body = TypeVar("_Body")
Most: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
"""The most tokens of an answer."""
Stops: TypeAlias = Annotated[list[str], msgspec.Meta(max_length=64)]
"""Texts that end an answer, each of which is looked for."""
_SERVER_ERROR: Final = 500
"""The first status by which a server blames itself."""


class Role(Enum):
    """Who wrote an item."""

    SYSTEM = "system"
    USER = "user"
    POLICY = "policy"
    TOOL = "tool"


ROLES: Final = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.POLICY,
}


# What bodies are decoded into holds no cycles. Left to the garbage collector, the thousands of
# objects of each request double the time of reading it beside 64 long conversations.


class Part(msgspec.Struct, gc=False):
    """A part of a message."""

    type: str | None = "text"
    text: str | None = None


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message, or a part of one, in the order of the conversation."""

    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    """The call whose result this is."""
    is_more: bool = False
    """Whether the item before is of the same message."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request as one API has it."""

    request: Request
    model: str
    streams: bool
    counts: bool = True
    """Whether a stream ends with the numbers of tokens."""


class Dialect(Protocol):
    """One API."""

    ping: bytes = b": ping\n\n"
    """What keeps a stream alive while nothing is there to be sent."""

    def read(self, body: bytes) -> Wanted:
        """Read a request. Raises BadRequestError."""
        ...

    def write(self, answer: Answer, wanted: Wanted) -> object:
        """Return the JSON body of a response."""
        ...

    def events(self, answer: Answer, wanted: Wanted) -> Iterator[bytes]:
        """Yield a response as server-sent events."""
        ...

    def error(self, message: str, *, code: str, status: int) -> object:
        """Return the JSON body of an error."""
        ...

    def error_event(self, message: str, *, code: str, status: int) -> bytes:
        """Return the event by which a stream fails."""
        return event(self.error(message, code=code, status=status))


def decoded(
    body: bytes,
    kind: type[_Body],
    fields: Fields,
    *,
    renamed: Callable[[bytes], bytes] = bytes,
) -> tuple[_Body, tuple[str, ...]]:
    """Decode a body, whose names `renamed` may change, and name the fields that nobody knows.

    Raises BadRequestError that names the place, also for a field that is refused.
    """
    try:
        body = renamed(body)
        return msgspec.json.decode(body, type=kind), fields.unknown(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequestError(f"the body can't be read: {error}") from error


def role_of(name: str | None, roles: Mapping[str, Role] = ROLES) -> Role:
    """Return who wrote a message. Raises BadRequestError."""
    if name is None or name not in roles:
        raise BadRequestError(f"a message has the role {name!r:.40}")
    return roles[name]


def text_of(content: str | Sequence[Part] | None, role: Role = Role.TOOL) -> str:
    """Return the text of a message. Raises BadRequestError for what is none.

    Vendors split what a policy said wherever they like; what others wrote are texts of their own.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if odd := next((part.type for part in content if part.text is None), None):
        raise BadRequestError(f"a part of a message is {odd!r:.40}, and only text is understood")
    return ("" if role is Role.POLICY else "\n").join(part.text or "" for part in content)


def most_calls(choice: str | None, *, is_parallel: bool = True) -> int | None:
    """Return how many calls an answer may have. Raises BadRequestError for what would force one."""
    match choice:
        case None | "auto":
            return None if is_parallel else 1
        case "none":
            return 0
        case _:
            raise BadRequestError(
                f"the choice of tools is {choice!r:.40}, and may be auto or none: nothing forces"
                " what is sampled, for a trainer could not tell its probability",
                code="unsupported_value",
            )


def openai_error(message: str, *, code: str, status: int) -> object:
    """Return the JSON body of an error as OpenAI's APIs have it."""
    kind = "invalid_request_error" if status < _SERVER_ERROR else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def event(data: object, *, name: str = "") -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


def tool(name: str, description: str | None, schema: Mapping[str, object] | None) -> ToolSpec:
    """Return a tool of a harness, which checks its arguments itself."""
    shown = dict(schema or {"type": "object", "properties": {}})
    return ToolSpec(name, description or "", schema=Arguments.unchecked(shown))


class _Turn(msgspec.Struct, gc=False):
    """A turn as it is read: lists, so that reading costs what the text costs."""

    said: list[str] = []
    calls: list[Call] = []
    results: list[Result] = []
    messages: list[str] = []

    def says(self, item: Item) -> bool:
        """Take what the policy says, unless it begins another turn: no answer has two texts."""
        is_second = item.text and not item.is_more and (self.said or self.calls)
        if self.results or self.messages or is_second:
            return False
        if item.text:
            self.said.append(item.text)
        self.calls += item.calls
        return True

    def told(self) -> Told:
        message = "\n\n".join(self.messages) if self.messages else ""
        return Told("".join(self.said), tuple(self.calls), tuple(self.results), message)


def conversation(items: Iterable[Item]) -> tuple[tuple[Message, ...], tuple[Told, ...]]:
    """Return the messages before the first turn of the policy, and its turns.

    Neighbours of the same role are one; of the policy's, those that can be one answer: a text and
    its calls, told as one message or as several. Raises BadRequestError for a result without a turn
    before it, and where there is nothing to answer.
    """
    system: list[str] = []
    user: list[str] = []
    turns: list[_Turn] = []
    for item in items:
        role = item.role
        if role is Role.POLICY:
            if not turns or not turns[-1].says(item):
                turns.append(_Turn())
                turns[-1].says(item)
        elif role is Role.TOOL:
            if not turns:
                raise BadRequestError("a tool's result comes before the first turn")
            turns[-1].results.append(Result(item.call_id, item.text))
        elif turns:
            if item.text:
                turns[-1].messages.append(item.text)
        elif role is Role.SYSTEM:
            system.append(item.text)
        else:
            user.append(item.text)
    first = [
        Message(role, "\n\n".join(filter(None, texts)))
        for role, texts in ((MessageRole.SYSTEM, system), (MessageRole.USER, user))
    ]
    found = tuple(message for message in first if message.content.strip())
    if not found or found[-1].role is not MessageRole.USER:
        raise BadRequestError("there is no message of the user before the first turn")
    return found, tuple(turn.told() for turn in turns)
