"""Read trajectories that the Agentic Rollout Library dumped, as episodes without tokens.

It wrote one trajectory as JSON, as a chat in JSON Lines or as text, and a batch as a JSON array of
trajectories. A dump has no tokens and no verdict, so its episode is shown, and not trained on.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from swe_rollout.errors import UsageError
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.episode import EpisodeId, StopReason, Timing
from swe_rollout.types.trajectory import ChatLine, ChatRecord, Trajectory
from swe_rollout.types.turn import CallStatus, FinishReason, Observation, ToolCall, Turn
from swe_rollout.types.verdict import Reward, RewardTerm

SUFFIXES: Final = (".json", ".jsonl", ".txt")
_MOST_BYTES: Final = 256 << 20
_MOST_PATCH: Final = 16 << 20
_ROLES: Final = {
    "observation": "user",
    "action_result": "tool",
    "thought": "assistant",
    "action": "assistant",
    "final_answer": "assistant",
}
_NO_TOKENS: Final = RequestProof(0, hashlib.sha256(b"").hexdigest())
_STEP: Final = re.compile(r"^Step (\d+): ([A-Z_]+)\nContent: ", re.MULTILINE)
_RULE: Final = "-" * 30
_TOOL: Final = re.compile(r"\nTool: (.*)(?:\nArgs: (.*))?")
_HEAD: Final = re.compile(
    r"Trajectory: (.*)\nCompleted: (.*)\nFinal Reward: (.*)\nTotal Steps: \d+\n=+\n"
)

_Object = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(slots=True)
class _Dump:
    """What a dump tells of one trajectory."""

    name: str
    messages: list[_Message]
    metadata: _Object = field(default_factory=dict)
    is_completed: bool | None = None
    reward: float | None = None
    patch: str = ""


def read_dumps(
    files: Iterable[Path], *, job: str, on_problem: Callable[[UsageError], None]
) -> Iterator[Trajectory]:
    """Yield the trajectories in files; those of one task are numbered. Other files are reported."""
    seen: Counter[str] = Counter()
    for path in files:
        try:
            dumps = _read(path)
        except UsageError as error:
            on_problem(error)
            continue
        for dump in dumps:
            dump.patch = dump.patch or _patch_beside(path)
            yield _trajectory(dump, job, seen[dump.name])
            seen[dump.name] += 1


def _patch_beside(path: Path) -> str:
    """Return the patch that a runner wrote beside `trajectories/NAME.jsonl`, if any."""
    patch = path.parent.parent / "patches" / f"{path.stem}.patch"
    if path.parent.name != "trajectories" or not patch.is_file():
        return ""
    with patch.open("rb") as file:
        return file.read(_MOST_PATCH).decode(errors="replace")


def _read(path: Path) -> list[_Dump]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _no_dump(path, f"it has more than {_MOST_BYTES >> 20} MiB")
        return list(_dumps(path, path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, OverflowError) as error:
        raise _no_dump(path, " ".join(str(error).split())[:200]) from error


def _no_dump(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is no dump of a trajectory",
        why=why,
        fix="name a file that dump_trajectory, save_trajectory_as_messages or save_trajectories "
        "wrote",
    )


def _dumps(path: Path, text: str) -> Iterator[_Dump]:
    if head := _HEAD.match(text):
        yield _from_text(text, head)
        return
    if path.suffix == ".jsonl":
        yield _from_chat(path, text)
        return
    value = json.loads(text)
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(_object(each).get("steps"), list):
            raise ValueError("it has no list of steps")  # noqa: TRY004 - of a file's content
        yield _from_steps(path, each)


def _from_steps(path: Path, found: _Object) -> _Dump:
    metadata, steps = _object(found.get("metadata")), found.get("steps")
    system, reward = found.get("system_prompt"), found.get("final_reward")
    messages = [_Message("system", str(system))] if system else []
    for step in steps if isinstance(steps, list) else []:
        told = _object(step)
        kind, tool = str(told.get("step_type")), told.get("tool_name")
        is_call = kind == "action" and isinstance(tool, str)
        call = ToolCall(CallStatus.OK, "", str(tool), dict(_object(told.get("tool_args"))))
        text = _text(told.get("content"))
        messages.append(_Message(_role(kind), text, (call,) if is_call else ()))
    name = _name(metadata, str(found.get("request_id") or path.stem))
    dump = _Dump(name, messages, metadata, bool(found.get("is_completed")))
    dump.reward = float(reward) if isinstance(reward, int | float) else None
    return dump


def _from_chat(path: Path, text: str) -> _Dump:
    messages: list[_Message] = []
    metadata: _Object = {}
    for number, line in enumerate(filter(str.strip, text.split("\n")), 1):
        message = json.loads(line)
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str):
            raise ValueError(f"line {number} is no message with a role")  # noqa: TRY004
        if role == "meta":
            metadata = _object(message.get("meta") or message)
            continue
        calls = message.get("tool_calls")
        made = tuple(map(_call, calls)) if isinstance(calls, list) else ()
        messages.append(_Message(role, _text(message.get("content")), made))
    if not messages:
        raise ValueError("it has no message")
    return _Dump(_name(metadata, path.stem), messages, metadata)


def _from_text(text: str, head: re.Match[str]) -> _Dump:
    """Read the form for people. A content that imitates the next step is taken for it."""
    starts, expected = [], 1
    for match in _STEP.finditer(text, head.end()):
        if match[1] == str(expected):
            starts.append(match)
            expected += 1
    messages: list[_Message] = []
    ends = [*(each.start() for each in starts[1:]), len(text)]
    for match, end in zip(starts, ends[: len(starts)], strict=True):
        content = text[match.end() : end].rstrip().removesuffix(_RULE).rstrip("\n")
        kind = match[2].lower()
        calls: tuple[ToolCall, ...] = ()
        if kind == "action" and (tool := list(_TOOL.finditer(content))):
            content, last = content[: tool[-1].start()], tool[-1]
            calls = (ToolCall(CallStatus.OK, "", last[1], _arguments(last[2])),)
        messages.append(_Message(_role(kind), content, calls))
    dump = _Dump(_name({}, head[1]), messages, {}, head[2] == "True")
    dump.reward = None if head[3] == "None" else float(head[3])
    return dump


def _arguments(text: str | None) -> dict[str, object]:
    """Read arguments as Python prints a dictionary."""
    try:
        return dict(_object(ast.literal_eval(text or "{}")))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {"args": text}


def _call(value: object) -> ToolCall:
    function = _object(_object(value).get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    return ToolCall(CallStatus.OK, "", str(function.get("name")), dict(_object(arguments)))


def _role(kind: str) -> str:
    if kind not in _ROLES:
        raise ValueError(f"{kind[:40]} is no type of a step: {', '.join(_ROLES)}")
    return _ROLES[kind]


def _object(value: object) -> _Object:
    return value if isinstance(value, dict) else {}


def _text(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _name(metadata: _Object, other: str) -> str:
    """Return the name of the task as a folder may be named."""
    named = metadata.get("instance_id")
    text = named if isinstance(named, str) and named else other
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text)[:200].strip(".-") or "trajectory"


def _trajectory(dump: _Dump, job: str, sample: int) -> Trajectory:
    first = next((i for i, m in enumerate(dump.messages) if m.role == "assistant"), None)
    prompts = dump.messages if first is None else dump.messages[:first]
    model = dump.metadata.get("model")
    policy = model if isinstance(model, str) else ""
    lines = tuple(ChatLine(each.role, each.text) for each in dump.messages)
    has_reward = dump.reward is not None
    return Trajectory(
        episode=EpisodeId(job, dump.name, sample),
        policy=policy,
        token_ids=(),
        loss_mask=(),
        logprobs=(),
        segments=(),
        turns=tuple(_turns(dump.messages[len(prompts) :])),
        stop_reason=StopReason.FINISHED if dump.is_completed else None,
        patch=dump.patch,
        verdict=None,
        reward=Reward((RewardTerm("final_reward", dump.reward or 0.0),)) if has_reward else None,
        failure=None,
        attempt=1,
        seed=None,
        timing=Timing(),
        spec_digest="",
        software={"read from": "a dump of the Agentic Rollout Library"},
        finished_at=_text(dump.metadata.get("end_time") or ""),
        prompts=tuple(ChatLine(each.role, each.text) for each in prompts),
        chat=ChatRecord((policy,) if policy else (), lines),
    )


def _turns(messages: Sequence[_Message]) -> Iterator[Turn]:
    """Yield a turn for each message of the policy, with the messages up to the next as results."""
    starts = [i for i, message in enumerate(messages) if message.role == "assistant"]
    ends = [*starts[1:], len(messages)][: len(starts)]
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        said = messages[start]
        results = tuple(Observation(each.text) for each in messages[start + 1 : end])
        yield Turn(
            index, _NO_TOKENS, said.text, FinishReason.STOP, 0, 0, said.calls, observations=results
        )
