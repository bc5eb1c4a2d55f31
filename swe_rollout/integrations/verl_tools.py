"""Our tools for verl's own tool agent loop, in its tool file:

    tools:
      - class_name: swe_rollout.integrations.verl_tools.SweRolloutTool
        config: {type: native, tool: bash}

Each trajectory gets one sandbox, started by its first call from the task that
`tools_kwargs.bash.create_kwargs.instance_id` names, and shared by all its tools. verl notifies a
tool of each call, but never of a trajectory's end: the sandbox is deleted when verl drops the
trajectory's data. Tokens, retries and rewards are verl's own here; use the agent loop of
`integrations.verl` for ours.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.state import ToolState
from swe_rollout.context import Attempt
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import InternalError, UsageError
from swe_rollout.integrations.adapter import needed
from swe_rollout.integrations.trainer_session import JOB_VARIABLE, block_by_chance
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.sync import held
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import CallStatus, Generation, ToolCall
from swe_rollout.worker.session import Session

with needed("verl"):
    from verl.tools.base_tool import BaseTool
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse


class _Unused(TokenEngine):
    """The session's unused engine: verl samples, and we play no episode."""

    async def info(self) -> EngineInfo:
        return EngineInfo("verl", None, None, None, str(tokenizer_path()))

    async def generate(self, request: GenerateRequest) -> Generation:
        raise InternalError(f"{request.episode} is verl's own")


@dataclass
class Workplace:
    """The sandbox of a trajectory, and the state of its tools."""

    sandbox: asyncio.Task[Sandbox]
    state: ToolState = field(default_factory=ToolState)

    async def close(self) -> None:
        """Delete the sandbox."""
        await self.state.aclose()
        self.sandbox.cancel()
        (found,) = await asyncio.gather(self.sandbox, return_exceptions=True)
        if not isinstance(found, BaseException):
            await found.close()


@dataclass
class Workplaces:
    """The sandboxes of the trajectories that verl plays in this process."""

    session: Session
    open: dict[str, Workplace] = field(default_factory=dict)
    closing: set[asyncio.Task[None]] = field(default_factory=set)

    def of(self, key: str, instance: str) -> Workplace:
        """Return the workplace of a trajectory; its first call starts it."""
        if (found := self.open.get(key)) is None:
            start = asyncio.ensure_future(self._start(instance))
            found = self.open[key] = Workplace(start)
        return found

    def drop(self, key: str) -> None:
        """Delete a trajectory's sandbox in the background."""
        if (found := self.open.pop(key, None)) is not None:
            task = asyncio.ensure_future(found.close())
            self.closing.add(task)
            task.add_done_callback(self.closing.discard)

    async def aclose(self) -> None:
        """Delete all sandboxes."""
        for key in tuple(self.open):
            self.drop(key)
        await asyncio.gather(*self.closing, return_exceptions=True)

    async def _start(self, instance_id: str) -> Sandbox:
        session = self.session
        instance = next((i for i in session.instances if i.instance_id == instance_id), None)
        if instance is None:
            raise UsageError(f"the job has no task {instance_id}")
        number = session.new_samples(instance_id)
        episode = EpisodeId(session.job.metadata.name, instance_id, number)
        sandbox = await session.context.start_sandbox(Attempt(episode, instance, number=1))
        await repository.prepare(sandbox, instance)
        return sandbox


class SweRolloutTool(BaseTool):
    """One of our tools, named by `config.tool`, in the sandboxes of the job."""

    def __init__(self, config: Mapping[str, Any], tool_schema: Any = None) -> None:
        """Use the job file `config.job`; without it, SWE_ROLLOUT_JOB names one."""
        self._tools = toolbox([str(config["tool"])])
        (self._spec,) = self._tools.specs
        schema = tool_schema or OpenAIFunctionToolSchema.model_validate(self._spec.function())
        super().__init__(dict(config), schema)
        self._job = config.get("job") or os.environ.get(JOB_VARIABLE, "")
        self._instances: dict[str, str] = {}

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, Any]:
        """Record the task of a call; raises UsageError if the row names none."""
        task = (kwargs.get("create_kwargs") or kwargs).get("instance_id")
        if not task:
            raise UsageError(
                f"the tool {self.name} was given no task",
                fix='give each row "tools_kwargs": {"' + self.name + '": {"create_kwargs": '
                '{"instance_id": …}}}',
            )
        call = instance_id or secrets.token_hex(16)
        self._instances[call] = str(task)
        return call, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: Mapping[str, Any], **kwargs: Any
    ) -> tuple[Any, float, dict[str, Any]]:
        """Run the tool; a faulty call has an observation, a lost sandbox raises an error."""
        if problems := self._spec.problems(parameters):
            return ToolResponse(text="error: " + "; ".join(problems)), 0.0, {"ok": False}
        places = await held(("verl_tools", self._job), self._open)
        trajectory = kwargs.get("agent_data")
        key = getattr(trajectory, "request_id", None) or instance_id
        if trajectory is not None and key not in places.open:
            loop = asyncio.get_running_loop()
            weakref.finalize(trajectory, loop.call_soon_threadsafe, places.drop, key)
        place = places.of(key, self._instances[instance_id])
        limits = places.session.context.agent.limits
        observation = await self._tools.run(
            ToolCall(CallStatus.OK, "", self._spec.name, dict(parameters)),
            await asyncio.shield(place.sandbox),
            ToolContext(limits.tool_seconds, limits.tool_output_bytes, place.state),
        )
        told = {"ok": True, "exit_code": observation.exit_code, "seconds": observation.duration_s}
        return ToolResponse(text=observation.text), 0.0, told

    async def release(self, instance_id: str, **_: Any) -> None:
        """Forget a call; delete a sandbox that belongs to no trajectory."""
        self._instances.pop(instance_id, None)
        places = await held(("verl_tools", self._job), self._open)
        places.drop(instance_id)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Workplaces]:
        job = RolloutJob.from_yaml(self._job)
        async with job.session(engine=_Unused(), first_sample=block_by_chance()) as session:
            places = Workplaces(session)
            try:
                yield places
            finally:
                await places.aclose()
