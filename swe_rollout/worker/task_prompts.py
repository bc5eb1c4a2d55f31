"""Reconstruct the prompts of a recorded episode: the job's, filled with the task's text."""

from __future__ import annotations

from collections.abc import Callable

from swe_rollout.agent.prompts import MessageRole
from swe_rollout.agent.recorded_text import RecordedText, recorded_text
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.export.chat import Reading, TaskPrompt
from swe_rollout.extension import ExtensionError
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Turn
from swe_rollout.worker.assembly import prompts_of
from swe_rollout.worker.stored_tasks import StoredTasks


def reading_of(tasks: StoredTasks, *, on_note: Callable[[str], None]) -> Reading:
    """Return the settings with which exports read a job's records.

    Tools that can't be loaded here are omitted from the chats, with a note.
    """
    spec = tasks.job.spec
    tools: tuple[ToolSpec, ...] = ()
    try:
        tools = toolbox(spec.agent.tools).specs
    except ExtensionError as error:
        on_note(f"without the descriptions of tools: {error}")
    prompts = prompts_of(spec.agent, tools)
    functions = tuple(tool.function() for tool in tools)

    def prompt(trajectory: Trajectory) -> TaskPrompt:
        task = tasks.task_of(trajectory)
        first = prompts.messages(task.problem_statement, task.workdir)
        texts = {message.role: message.content for message in first}
        return TaskPrompt(texts.get(MessageRole.SYSTEM, ""), texts[MessageRole.USER], functions)

    def text(turn: Turn, trajectory: Trajectory) -> RecordedText:
        is_read = all(call.status is CallStatus.OK for call in turn.tool_calls)
        if trajectory.chat is not None and spec.agent.tool_format == "auto" and is_read:
            # The calls are the API's own, and stand beside the text.
            return RecordedText(turn.text, turn.text)
        return recorded_text(turn, trajectory.token_path, tools)

    return Reading(prompt, text)
