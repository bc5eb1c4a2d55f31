"""Shared by tests of slime's adapter: an open session over a policy of the test's own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from swe_rollout.integrations import slime
from swe_rollout.integrations.slime_session import SlimeSession, job_of, open_slime, router_of
from swe_rollout.launcher.sync import held, let_go
from swe_rollout.testing.ratio import RatioRow
from unit.integrations.rollouts import InMemorySandboxes, Policy, sandboxes
from unit.integrations.slime_fields import Sample, arguments

SAMPLING = {"temperature": 0.8, "top_p": 1.0, "top_k": -1, "max_new_tokens": 4096}


@dataclass
class Slime:
    """slime's side: its arguments, its flag, and calls of generate."""

    args: SimpleNamespace
    policy: Policy
    session: SlimeSession
    state: SimpleNamespace
    sample_class: type[Any] = Sample
    made: int = 0

    @property
    def sandboxes(self) -> InMemorySandboxes:
        return sandboxes()

    def sample(self, task: str = "one", **values: Any) -> Any:
        self.made += 1
        given = {"index": self.made, "group_index": 0, "metadata": {"instance_id": task}}
        return self.sample_class(**{**given, **values})

    async def generate(self, sample: Any, *, evaluation: bool = False, **sampling: Any) -> Any:
        return await slime.generate(self.args, sample, {**SAMPLING, **sampling}, evaluation)


@asynccontextmanager
async def slime_over(job: Path, policy: Policy, **values: Any) -> AsyncIterator[Slime]:
    """Open the job as generate does, with another engine, and a flag that the test sets."""
    args = arguments(swe_rollout_job=str(job), **values)
    state = SimpleNamespace(aborted=False)
    module = ModuleType("slime.rollout.sglang_rollout")
    module.GenerateState = lambda _: state  # type: ignore[attr-defined]
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    stopped = partial(slime._is_stopped, args)
    opening = partial(open_slime, args, stopped=stopped, engine=policy)
    try:
        session = await held(("slime", job_of(args), router_of(args)), opening)
        yield Slime(args, policy, session, state)
    finally:
        await let_go()
        if before is None:
            del sys.modules[module.__name__]
        else:
            sys.modules[module.__name__] = before


def row_of(sample: Any, policy: Policy, *, temperature: float = 0.8) -> RatioRow:
    """Read a row of the ratio test from slime's fields alone; which weights sampled is no field."""
    start = len(sample.tokens) - sample.response_length
    return RatioRow(
        sample.tokens,
        start,
        sample.loss_mask,
        sample.rollout_log_probs,
        [temperature] * sample.response_length,
        [
            policy.version_of(sample.tokens[: start + position + 1]) if trained else None
            for position, trained in enumerate(sample.loss_mask)
        ],
    )
