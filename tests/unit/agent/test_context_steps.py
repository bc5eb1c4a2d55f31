"""The steps of a turn, taken apart by a program: sample, run, answer, say; and what is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.errors import Boundary, MisuseError
from swe_rollout.spec.limits import CutTurns, Limits
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import Turn
from unit.agent.agent_parts import (
    BROKEN,
    END,
    RENDERER,
    SUBMIT,
    Echo,
    Played,
    bash,
    loop_of,
    player,
)


def played(program: Callable[[AgentContext], Awaitable[StopReason]], *texts: str) -> Played:
    async def run(context: AgentContext) -> StopReason:
        return await program(context)

    return loop_of(player(*texts), program=run)


async def test_a_sampled_turn_comes_with_its_calls_and_none_of_them_has_run() -> None:
    sandbox, engine = Echo(), player(bash("one") + bash("two"), "Done.")
    seen: list[Turn] = []

    async def by_steps(context: AgentContext) -> StopReason:
        await context.begin()
        turn = await context.generate()
        assert [call.arguments["command"] for call in turn.calls] == ["one", "two"]
        assert (turn.stop, sandbox.commands, seen) == (None, [], [])
        (first,) = await context.run(turn.calls[:1])
        assert sandbox.commands == ["one"]
        assert first.text.endswith("one")
        await context.run()
        assert sandbox.commands == ["one", "two"]
        last = await context.generate()
        assert (last.words, last.stop) == ("Done.", StopReason.FINISHED)
        return StopReason.FINISHED

    episode = loop_of(engine, sandbox=sandbox, program=by_steps, on_turn=seen.append)
    assert await episode.run() is StopReason.FINISHED
    assert len(episode.turns[0].observations) == 2
    assert seen == episode.turns


async def test_steps_make_the_same_tokens_as_whole_turns() -> None:
    async def by_steps(context: AgentContext) -> StopReason:
        await context.begin()
        while (turn := await context.generate()).stop is None:
            for call in turn.calls:
                await context.run([call])
            if context.stop:
                return context.stop
        return turn.stop

    texts = (bash("ls"), bash("a") + bash("b"), BROKEN, SUBMIT)
    whole, apart = loop_of(player(*texts)), played(by_steps, *texts)
    assert await whole.run() is await apart.run() is StopReason.SUBMITTED
    assert whole.log.ids == apart.log.ids
    assert whole.log.segments == apart.log.segments


async def test_a_program_answers_a_call_in_place_of_the_tool() -> None:
    sandbox, engine = Echo(), player(bash("rm -rf /"), SUBMIT)

    async def refuses(context: AgentContext) -> StopReason:
        await context.begin()
        turn = await context.generate()
        context.answer(turn.calls[0], "not allowed\ud800 <|im_end|>")
        return await context.finish()

    episode = loop_of(engine, sandbox=sandbox, program=refuses)
    assert await episode.run() is StopReason.SUBMITTED
    assert sandbox.commands == []
    assert episode.turns[0].observations[0].text == "not allowed? <|im_end|>"
    assert "not allowed? <|im_end|>" in RENDERER.decode(episode.log.ids)


async def test_a_message_goes_on_after_the_policy_s_own_end_and_is_not_trained_on() -> None:
    engine = player("All is well.", SUBMIT + bash("late"), "Done.")

    async def says(context: AgentContext) -> StopReason:
        await context.begin()
        assert await context.turn() is StopReason.FINISHED
        context.say("Really?\n")
        context.say("Run the tests <|im_end|>.")
        assert await context.turn() is StopReason.SUBMITTED
        context.say("They fail.")
        return await context.finish()

    episode = loop_of(engine, program=says)
    assert await episode.run() is StopReason.FINISHED
    text = RENDERER.decode(episode.log.ids)
    assert (
        "All is well.<|im_end|>\n<|im_start|>user\nReally?\n\n\nRun the tests <|im_end|>.<|im_end|>"
        "\n<|im_start|>assistant\n"
    ) in text
    assert "handed the work in" in episode.turns[1].observations[1].text
    controls = [i for i in episode.log.ids if i in RENDERER.controls]
    assert RENDERER.decode(controls).count(END) == text.count(END) - 1
    kinds = {segment.kind for segment in episode.log.segments if segment.turn}
    assert kinds == {SegmentKind.SAMPLED, SegmentKind.DELTA}


async def test_a_message_can_stand_behind_results() -> None:
    engine = player(bash("ls"), "Done.")

    async def says(context: AgentContext) -> StopReason:
        await context.begin()
        await context.turn()
        context.say("Hurry.")
        return await context.finish()

    episode = loop_of(engine, program=says)
    await episode.run()
    assert "ls\n</tool_response><|im_end|>\n<|im_start|>user\nHurry.<|im_end|>" in RENDERER.decode(
        episode.log.ids
    )


async def test_other_first_messages_replace_the_task_s() -> None:
    async def begins(context: AgentContext) -> StopReason:
        await context.begin("Only look <|im_start|>.")
        return await context.finish()

    episode = played(begins, "Done.")
    await episode.run()
    text = RENDERER.decode(episode.log.ids)
    assert "<|im_start|>user\nOnly look <|im_start|>.<|im_end|>" in text
    assert "It fails." not in text


async def test_a_message_before_the_first_turn_ends_the_prompt() -> None:
    engine = player("A plan.", "Done.")

    async def plans(context: AgentContext) -> StopReason:
        await context.begin([Message(MessageRole.USER, "Fix it.")])
        child = await context.spawn("Plan it.")
        await child.finish()
        context.say(f"{child.said} <|im_end|>")
        context.say("Go.")
        return await context.finish()

    episode = loop_of(engine, program=plans)
    assert await episode.run() is StopReason.FINISHED
    main, child = episode.context.branches()
    text = RENDERER.decode(main.token_ids)
    assert "user\nFix it.\n\nA plan. <|im_end|>\n\nGo.<|im_end|>\n<|im_start|>assistant" in text
    assert child.parent_length == main.segments[0].end
    assert episode.context.prompts()[0].text.endswith("Go.")


@pytest.mark.parametrize("first", [[], "", " ", [{"role": "user", "content": "x"}]])
async def test_a_prompt_without_a_message_of_the_user_is_refused(first: str) -> None:
    async def begins(context: AgentContext) -> StopReason:
        await context.begin(first)
        return await context.finish()

    with pytest.raises(MisuseError, match=r"message.*test_context_steps.py:\d+: await") as caught:
        await played(begins).run()
    assert (caught.value.retryable, caught.value.boundary) == (False, Boundary.EXTENSION)


STEPS: dict[str, Callable[[AgentContext], Awaitable[object]]] = {
    "begin": lambda context: context.begin(),
    "turn": lambda context: context.turn(),
    "generate": lambda context: context.generate(),
    "run": lambda context: context.run(),
    "run-first": lambda context: context.run(context.turns[0].tool_calls),
    "run-twice": lambda context: context.run(context.turns[-1].tool_calls * 2),
    "spawn": lambda context: context.spawn("Look."),
}
MISUSE = {
    "begin begin": "begin.. was called twice",
    "begin generate generate": "before all calls of the last one were answered",
    "begin generate run generate run-first": "not the next ones of its last turn",
    "begin generate run-twice": "not the next ones of its last turn",
    "begin run": "no turn whose calls can be answered",
    "begin generate say": "before all calls were answered",
    "begin turn say-nothing": "empty message",
    "spawn": "begin.. was not called",
}


@pytest.mark.parametrize("steps", MISUSE)
async def test_steps_out_of_order_are_refused_with_the_reason(steps: str) -> None:
    *before, last = steps.split()

    async def take(context: AgentContext, step: str) -> None:
        if step.startswith("say"):
            context.say("Hello." if step == "say" else " \n")
        else:
            await STEPS[step](context)

    async def run(context: AgentContext) -> StopReason:
        for step in before:
            await take(context, step)
        with pytest.raises(MisuseError, match=MISUSE[steps]):
            await take(context, last)
        return StopReason.FINISHED

    engine = player(bash("ls"))
    episode = loop_of(engine, program=run)
    assert await episode.run() is StopReason.FINISHED


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (Limits(turns=2), StopReason.TURN_LIMIT),
        (Limits(max_new_tokens=3), StopReason.TOKEN_LIMIT),
        (Limits(format_errors=2), StopReason.FORMAT_ERRORS),
        (Limits(repeated_turns=2), StopReason.REPEATED),
        (Limits(context_tokens=1100), StopReason.CONTEXT_FULL),
    ],
)
async def test_no_message_goes_past_a_limit(limits: Limits, stop: StopReason) -> None:
    async def insists(context: AgentContext) -> StopReason:
        await context.begin()
        while await context.turn() is None:
            context.say("Go on.")
        assert not context.can_continue
        found = context.stop
        with pytest.raises(MisuseError, match="limit was reached"):
            context.say("Go on.")
        with pytest.raises(MisuseError, match="limit was reached"):
            await context.restart("Go on.")
        with pytest.raises(MisuseError, match="limit was reached"):
            await context.generate()
        assert found is not None
        return found

    turn = BROKEN if stop is StopReason.FORMAT_ERRORS else bash("ls")
    engine = player(turn)
    episode = loop_of(engine, program=insists, limits=limits)
    assert await episode.run() is stop


async def test_turns_whose_calls_a_program_left_open_are_reported_too() -> None:
    seen: list[Turn] = []

    async def leaves(context: AgentContext) -> StopReason:
        await context.begin()
        await context.generate()
        return StopReason.FINISHED

    await loop_of(player(bash("ls")), program=leaves, on_turn=seen.append).run()
    assert [len(turn.tool_calls) for turn in seen] == [1]


async def test_the_same_answer_to_another_turn_is_another_delta() -> None:
    """A turn that was cut is closed by the harness, whatever was answered before."""

    async def answers(context: AgentContext) -> StopReason:
        await context.begin()
        for _ in range(2):
            turn = await context.generate()
            context.answer(turn.calls[0], "same")
        return await context.finish()

    engine = player(bash("ls"), bash("a long one " * 40), SUBMIT)
    limits = Limits(max_new_tokens=len(engine.turns[0]), cut_turns=CutTurns.ANSWER)
    episode = loop_of(engine, program=answers, limits=limits)
    assert await episode.run() is StopReason.SUBMITTED
    text = RENDERER.decode(episode.log.ids)
    opened, closed = (text.count(each) for each in ("<|im_start|>", "<|im_end|>"))
    assert opened == closed
