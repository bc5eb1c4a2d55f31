"""Reading turns: nothing a policy writes fails an episode, or holds the event loop."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType, SimpleNamespace

import pytest

from swe_rollout.agent import sampled_turn
from swe_rollout.agent.off_loop import off_loop, settled_heap
from swe_rollout.agent.program import run_agent
from swe_rollout.agent.sampled_turn import MAX_CALLS, SampledTurn, read_turn
from swe_rollout.errors import ExtensionFailedError
from swe_rollout.spec.limits import Limits
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import CallStatus
from unit.agent.agent_parts import END, RENDERER, SUBMIT, TOOLS, Player, encode, loop_of
from waits import PATIENCE_S

LONG = Limits(context_tokens=1 << 20, max_new_tokens=1 << 16, turns=3, tool_output_bytes=512)


def read(ids: Sequence[int]) -> SampledTurn:
    return read_turn(RENDERER, ids, tools=TOOLS.specs, opens_reasoning=False)


def raw_call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def bash_call(arguments: str) -> str:
    return raw_call('{"name": "bash", "arguments": ' + arguments + "}")


HOSTILE = {
    "nested arrays": bash_call("[" * 30_000),
    "nested objects": bash_call('{"command": ' * 3_000),
    "a number of many digits": bash_call('{"command": ' + "9" * 5_000 + "}"),
    "an infinite number": bash_call('{"command": 1e999}'),
    "a key twice": bash_call('{"command": "ls", "command": "rm"}'),
    "half a surrogate pair": bash_call(r'{"command": "\ud800"}'),
    "half a surrogate pair in a key": bash_call(r'{"\udfff": "ls"}'),
    "a NUL": bash_call(r'{"command": "a\u0000b"}'),
    "a thousand unknown arguments": bash_call(json.dumps({str(i): i for i in range(1000)})),
    "a name of many characters": raw_call(json.dumps({"name": "x" * 9999, "arguments": {}})),
    "a name of control characters": raw_call(json.dumps({"name": "\0\n{%}", "arguments": {}})),
    "an id": raw_call('{"name": "bash", "arguments": {}, "id": {}}'),
    "openers": "<tool_call>" * 3000,
    "calls": SUBMIT[:-1] * 300,
    "the end of the text": "<tool_call>",
}


@pytest.mark.threat(point=11)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_what_a_policy_writes_is_answered_and_the_episode_ends_as_data(text: str) -> None:
    engine = Player([encode(text) + encode(END), encode("Done." + END)])
    played = loop_of(engine, limits=LONG)

    stop = await played.run()

    assert stop is StopReason.FINISHED
    observations = played.turns[0].observations
    assert observations
    assert all(len(each.text.encode()) <= LONG.tool_output_bytes for each in observations)


@pytest.mark.threat(point=11)
async def test_a_parser_that_fails_makes_a_malformed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    parser: dict[str, object] = {"__file__": sampled_turn.__file__}
    code = "def parse(*_, **__): raise RecursionError"
    exec(compile(code, sampled_turn.__file__, "exec"), parser)  # noqa: S102 - one of ours
    monkeypatch.setattr(RENDERER, "parser", SimpleNamespace(**parser))
    played = loop_of(Player([encode(SUBMIT + END)]), limits=LONG)

    stop = await played.run()

    assert stop is StopReason.FORMAT_ERRORS
    assert {call.status for turn in played.turns for call in turn.tool_calls} == {
        CallStatus.MALFORMED
    }


async def test_a_parser_of_the_user_s_that_fails_is_no_turn_of_the_policy_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        def parse(self, *_: object, **__: object) -> None:
            raise KeyError("calls")

    monkeypatch.setattr(RENDERER, "parser", Broken())
    with pytest.raises(ExtensionFailedError, match=r"test_sampled_turn.py:\d+: raise KeyError"):
        await loop_of(Player([encode(SUBMIT + END)]), limits=LONG).run()


@pytest.mark.threat(point=10)
def test_a_call_with_bytes_that_are_no_text_is_not_run() -> None:
    broken = next(i for i in range(RENDERER.vocab_size) if RENDERER.decode([i]) == "\ufffd")
    before, behind = bash_call('{"command": "echo X > f"}').split("X")

    def calls(inside: Sequence[int]) -> list[tuple[CallStatus, str]]:
        turn = read([*encode(before), *inside, *encode(behind + END)])
        return [(call.status, call.problem) for call in turn.calls]

    refusal = (CallStatus.MALFORMED, "the call was not run: some of its bytes are not UTF-8")
    assert calls([broken]) == [refusal]
    assert calls(encode("\ufffd")) == calls(encode("é€😀")) == [(CallStatus.OK, "")]


def test_calls_beyond_the_limit_of_a_turn_are_answered_together() -> None:
    calls = read(encode(SUBMIT * (MAX_CALLS + 72))).calls

    assert len(calls) == MAX_CALLS + 1
    assert [call.status for call in calls[:-1]] == [CallStatus.OK] * MAX_CALLS
    assert calls[-1].status is CallStatus.MALFORMED
    assert "the 71 behind it" in calls[-1].problem
    assert calls[-1].span is not None
    assert calls[-2].span is not None
    assert calls[-1].span.start == calls[-2].span.end


@pytest.mark.threat(point=10)
async def test_a_long_turn_is_read_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[threading.Thread]()
    sampled = RENDERER.sampled

    def seen(ids: Sequence[int]) -> object:
        threads.append(threading.current_thread())
        return sampled(ids)

    monkeypatch.setattr(RENDERER, "sampled", seen)
    long, short = encode("<tool_call>" * 2000 + END), encode("Done." + END)
    await loop_of(Player([long, short]), limits=LONG).run()

    assert [each is threading.main_thread() for each in threads] == [False, True]


def longest_call_s(work: Callable[[], object]) -> float:
    """Return the CPU time of the longest call of C code, during which no other thread runs."""
    began, longest = 0.0, 0.0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal began, longest
        if event == "c_call":
            began = time.thread_time()
        elif event.startswith("c_"):
            longest = max(longest, time.thread_time() - began)

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return longest


@pytest.mark.threat(point=10)
@pytest.mark.parametrize("unit", ["<tool_call>", '<tool_call>{"name": "', "a", SUBMIT[:40]])
async def test_a_degenerate_turn_does_not_hold_the_event_loop(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In CPU time: others may have the cores. The reading thread takes short steps."""
    ids, held, run = (encode(unit) * 8192)[:8192] + encode(END), list[float](), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        held.append(time.thread_time() - began)

    played = loop_of(Player([ids, encode("Done." + END)]), limits=LONG)
    with settled_heap():
        monkeypatch.setattr(asyncio.Handle, "_run", timed)
        await run_agent(played.program, played.context)
        assert longest_call_s(partial(read, ids)) <= 0.05

    assert max(held) <= 0.05


async def test_work_in_the_thread_does_not_hold_the_loop_and_raises_here() -> None:
    goes_on = threading.Event()
    asyncio.get_running_loop().call_later(0.01, goes_on.set)
    assert await off_loop(goes_on.wait, PATIENCE_S), "the loop did not go on meanwhile"
    with pytest.raises(ZeroDivisionError):
        await off_loop(divmod, 1, 0)
    assert await asyncio.gather(*(off_loop(abs, -n) for n in range(5))) == [0, 1, 2, 3, 4]
