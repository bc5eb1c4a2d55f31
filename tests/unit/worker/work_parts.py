"""A stored job with episodes, and sandboxes that answer from a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult, SandboxRequest
from swe_rollout.spec.job import RolloutJob
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Evaluation, Expected, Instance
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Observation, ToolCall
from unit.export.export_parts import trajectory

TASK = Instance(
    instance_id="a",
    problem_statement="fix it",
    image="image:1",
    repo="a/b",
    base_commit="0" * 40,
    evaluation=Evaluation(commands=("pytest",)),
    expected=Expected(("t",), ("u",)),
)
PATCH = "diff --git a/x b/x\n"


def job(**spec: object) -> RolloutJob:
    told = {"dataset": {"releasePairs": {}}, "policy": {"scripted": {}}, **spec}
    return RolloutJob.model_validate({"metadata": {"name": "demo"}, "spec": told})


def episode(*commands: tuple[str, str], sample: int = 0) -> Trajectory:
    """Return an episode of turns with one command each, and what was seen."""
    found = trajectory("a", sample)
    turns = tuple(
        replace(
            found.turns[0],
            index=index,
            tool_calls=(ToolCall(CallStatus.OK, "raw", "bash", {"command": command}),),
            observations=(
                Observation(f"exit code: 0\nstdout:\n{seen}", exit_code=0, duration_s=0.1),
            ),
        )
        for index, (command, seen) in enumerate(commands)
    )
    return replace(found, turns=turns, patch=PATCH, instance_digest=TASK.digest)


@dataclass
class TableSandbox:
    """Answers commands from a table; the last step of an episode returns its patch."""

    outputs: Mapping[str, str] = field(default_factory=dict)
    patch: str = PATCH
    exit_code: int = 0
    commands: list[str] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    closed: int = 0

    @property
    def workdir(self) -> str:
        return "/testbed"

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
        **_: object,
    ) -> ExecResult:
        if "MAX_BYTES" in (env or {}):
            return _result(self.patch)
        if "BASE" in (env or {}):
            return _result("abc123\n")
        assert isinstance(command, str)
        self.commands.append(command)
        self.timeouts.append(timeout_s)
        if command == "lose":
            raise SandboxError("the sandbox is lost")
        return _result(self.outputs.get(command, ""), self.exit_code)

    async def read_file(self, path: str, *, max_bytes: int = 0) -> bytes:
        raise NotImplementedError

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        raise NotImplementedError

    async def end_processes(self) -> None:
        """There are none."""

    async def close(self) -> None:
        self.closed += 1


def _result(text: str, code: int = 0) -> ExecResult:
    data = text.encode()
    return ExecResult(code, data, b"", stdout_bytes=len(data))


@dataclass
class OneSandbox:
    """Starts the one sandbox, or none."""

    sandbox: TableSandbox
    refuses: bool = False
    requests: list[SandboxRequest] = field(default_factory=list)

    async def start(self, request: SandboxRequest) -> TableSandbox:
        self.requests.append(request)
        if self.refuses:
            raise SandboxError("no room")
        return self.sandbox

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        """Nothing is warm."""

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        """There are none."""

    async def aclose(self) -> None:
        """Nothing is held."""
