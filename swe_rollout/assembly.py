"""From a job's spec to the parts its episodes share: engine, renderer, tools, sandboxes, grader."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import Toolbox
from swe_rollout.engine.base import Sampling, TokenEngine
from swe_rollout.engine.scripted import ScriptedEngine
from swe_rollout.engine.sglang import SglangEngine
from swe_rollout.grading.grader import Grader
from swe_rollout.limits import Limits
from swe_rollout.rollout import Rollout
from swe_rollout.sandbox.local import LocalProvider
from swe_rollout.sandbox.pod import PodProvider
from swe_rollout.spec.job import LocalSandbox, PodSandbox, RolloutJob, SandboxSpec
from swe_rollout.testing.tiny import tokenizer_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AsyncExitStack

    from swe_rollout.instance import Instance
    from swe_rollout.progress import Progress
    from swe_rollout.sandbox.base import SandboxProvider
    from swe_rollout.trajectory import EpisodeId


async def assemble(
    job: RolloutJob,
    instances: Sequence[Instance],
    *,
    progress: Progress,
    on_note: Callable[[str], None],
    stack: AsyncExitStack,
) -> Rollout:
    """The shared parts of a job, closed with `stack`.

    Raises PrerequisiteError or UnreachableError when one of them can't be had.
    """
    ...
