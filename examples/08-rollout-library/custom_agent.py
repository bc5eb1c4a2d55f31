"""An agent of your own: a loop over turns, in which each step is the harness's.

python examples/08-rollout-library/custom_agent.py
"""

from swe_rollout import AgentContext, ChatRequest, StopReason, agent_program, chat_engine, play
from swe_rollout.types.turn import CallStatus


@agent_program
async def reasoning(context: AgentContext) -> StopReason:
    await context.begin()
    while context.can_continue:
        turn = await context.generate()
        if turn.stop is not None:
            return turn.stop
        for call in turn.calls:
            if call.status is CallStatus.OK and call.name == "think":
                context.answer(call, "Noted. Now answer.")
            else:
                await context.run([call])
    return StopReason.TURN_LIMIT


@chat_engine
async def model(request: ChatRequest) -> str:
    if request.turn == 0:
        return 'Action: {"name": "think", "parameters": {"thought": "Lists have .sort()."}}'
    return "Use sorted(values)."


SPEC = {
    "policy": {"chat": {"use": "model"}},
    "agent": {"use": "reasoning", "tools": ["think"], "toolFormat": "action_json"},
    "limits": {"turns": 8},
}

if __name__ == "__main__":
    (trajectory,) = play(["How is a list sorted in Python?"], spec=SPEC)
    for turn in trajectory.turns:
        print(turn.text, [each.text for each in turn.observations])
    print(trajectory.stop_reason)
