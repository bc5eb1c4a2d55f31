"""Records of episodes that the forced policy played."""

from __future__ import annotations

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.errors import gather_all
from swe_rollout.integrations.adapter import generation_of
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, FinishReason, Generation
from trainers.generators.forced import NEW, OLD, ForcedPolicy
from trainers.generators.in_memory import in_memory_job


class ForcedEngine(TokenEngine):
    """The forced policy as an engine."""

    def __init__(self, policy: ForcedPolicy) -> None:
        self._policy = policy

    async def info(self) -> EngineInfo:
        return EngineInfo("tiny", None, None, NEW)

    async def generate(self, request: GenerateRequest) -> Generation:
        said = self._policy.sample(
            request.input_ids.tolist(),
            episode=f"{request.episode}#{request.branch}",
            limit=request.max_new_tokens,
            temperature=request.sampling.temperature,
        )
        return generation_of(request, said.ids, said.logprobs, said.finish, said.versions)


async def play(
    policy: ForcedPolicy, *, samples: int = 1, temperature: float = 0.8, lost: int = 0
) -> list[Trajectory]:
    """Play samples of a task; the first `lost` of them break."""
    job = in_memory_job(temperature=temperature, lost=[("task-a", each) for each in range(lost)])
    async with job.session(engine=ForcedEngine(policy)) as session:
        records = await gather_all(session.run_episode("task-a") for _ in range(samples))
    for record in records[lost:]:
        _require_hardships(record)
    return list(records)


def _require_hardships(record: Trajectory) -> None:
    """What makes a record hard to train on is in it."""
    versions = {each for branch in record.samples for each in branch.weight_versions}
    assert versions == {None, OLD, NEW}
    assert len(record.samples) == 2
    calls = [len(turn.tool_calls) for turn in record.turns]
    assert max(calls) == 2, "parallel calls"
    statuses = {call.status for turn in record.turns for call in turn.tool_calls}
    assert CallStatus.OK in statuses
    assert len(statuses) > 1, "calls that did not parse"
    assert FinishReason.LENGTH in {turn.finish_reason for turn in record.turns}, "a cut turn"
    runs = [
        len({s.start for s in record.segments if s.turn == turn.index}) for turn in record.turns
    ]
    assert max(runs) > 2, "a turn in several runs"
