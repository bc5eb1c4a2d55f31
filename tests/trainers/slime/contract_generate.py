"""What slime's contract tests call by its path: our generate, with a job and a policy around it.

The contract's arguments have no router and its samples no task; both are set here. Loaded as a
plugin of pytest, before slime replaces transformers by a stub.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from swe_rollout.integrations import slime
from swe_rollout.integrations.slime_session import job_of, open_slime, router_of
from swe_rollout.launcher.sync import held
from unit.integrations.rollouts import SUBMIT, Policy, bash, hashed_model, write_job

assert transformers.__version__
os.environ["SWE_ROLLOUT_JOB"] = str(write_job(Path(tempfile.mkdtemp(prefix="slime-contract-"))))


async def generate(
    args: Any,
    sample: Any,
    sampling_params: dict[str, Any],
    evaluation: bool = False,  # noqa: FBT001, FBT002 - slime's signature
) -> Any:
    """Play a task with a policy in this process."""
    args.sglang_router_ip, args.sglang_router_port = "127.0.0.1", 9
    sample.metadata["instance_id"] = "one"
    policy = Policy({0: [bash("ls"), SUBMIT]}, {"v1": hashed_model(1)})
    stopped = partial(slime._is_stopped, args)
    opening = partial(open_slime, args, stopped=stopped, engine=policy)
    await held(("slime", job_of(args), router_of(args)), opening)
    return await slime.generate(args, sample, sampling_params, evaluation)
