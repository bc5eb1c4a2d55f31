"""slime's fully asynchronous rollout, which ends when too many episodes failed.

    --rollout-function-path swe_rollout.integrations.slime_async.generate_rollout

slime's own rollout only logs the errors of a generate function, and waits for other groups forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from swe_rollout.launcher.sync import ends_first
from swe_rollout.training.sample_bounds import FailureRateError

_STOPPED: Final = "swe_rollout_stopped"


def note(args: Any, error: FailureRateError) -> None:
    """Record the error that ends the rollout for its step: slime's worker has its own thread."""
    setattr(args, _STOPPED, error)


def generate_rollout(
    args: Any,
    rollout_id: int,
    data_buffer: Any,
    evaluation: bool = False,
) -> Any:
    """Return the groups of a step, as slime's `generate_rollout_fully_async` does.

    Raises FailureRateError when too many of the last episodes failed.
    """
    from slime.rollout import fully_async_rollout as slime

    if evaluation:
        return slime.generate_rollout_fully_async(args, rollout_id, data_buffer, evaluation)
    # The public function blocks its thread and can't be stopped.
    groups = slime._generate_rollout_async(args, rollout_id, data_buffer)  # noqa: SLF001
    return slime.run(_until_stopped(args, groups))


async def _until_stopped(args: Any, groups: Coroutine[None, None, Any]) -> Any:
    task = asyncio.ensure_future(groups)
    if await ends_first(task, lambda: hasattr(args, _STOPPED)):
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    error: FailureRateError = getattr(args, _STOPPED)
    raise error
