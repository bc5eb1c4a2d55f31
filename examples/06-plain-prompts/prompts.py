"""Play plain prompts with tools and a model of one's own.

    python examples/06-plain-prompts/prompts.py

The function `model` stands in for a call of any model's API; it uses each tool once.
"""

from swe_rollout import Trajectory, chat_engine, play, tool
from swe_rollout.engine.chat.base import (
    AssistantMessage,
    ChatCall,
    ChatRequest,
    ChatResponse,
    ToolResults,
    UserMessage,
)
from swe_rollout.types.turn import FinishReason

PROMPTS = ["What is 15 * 24?", {"content": "What is 2 ** 100?"}, "Look up quantum computing."]


@tool
async def look_up(query: str, *, max_results: int = 5) -> str:
    """Look up a subject in a small library."""
    return "\n".join([f"A book about {query}"] * max_results)


@chat_engine
async def model(request: ChatRequest) -> str | ChatResponse:
    """Answer as a model would: a call first, then the result of it."""
    match request.messages[-1]:
        case ToolResults((result, *_)):
            return f"The answer is {result.text}"
        case UserMessage(text):
            words = text.rstrip("?.")
        case _:
            return "I have nothing to add."
    if words.startswith("What is "):
        call = ChatCall("1", "calculator", f'{{"expression": "{words.removeprefix("What is ")}"}}')
    else:
        call = ChatCall("1", "look_up", f'{{"query": "{words.removeprefix("Look up ")}"}}')
    return ChatResponse(AssistantMessage("", (call,)), FinishReason.STOP)


def describe(trajectory: Trajectory) -> str:
    calls = [call.name for turn in trajectory.turns for call in turn.tool_calls]
    return f"{trajectory.stop_reason}: {calls} {trajectory.turns[-1].text!r}"


if __name__ == "__main__":
    tools = ["calculator", {"use": "look_up", "with": {"max_results": 1}}]
    spec = {
        "policy": {"chat": {"use": "model"}},
        "agent": {"tools": tools},
        "limits": {"turns": 10},
    }
    for trajectory in play(PROMPTS, spec=spec, concurrency=3):
        print(describe(trajectory))
