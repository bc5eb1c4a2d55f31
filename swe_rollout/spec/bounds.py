"""Bounds of a RolloutJob: every count, time and text in it has a maximum.

They are far above what a job needs, and low enough that nothing downstream overflows. The CRD has
them from here. Used by the models in `swe_rollout.spec`, and for a job's episodes by the worker.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints

MAX_SAMPLES: Final = 10_000
MAX_EPISODES: Final = 1_000_000
"""Tasks times samples of one job."""
BUDGET_FLOOR: Final = 10
"""While fewer episodes have finished, the failure budget is that of this many."""
MAX_SECONDS: Final = 2_592_000
"""Thirty days: longer than any single wait makes sense."""
MAX_JOB_SECONDS: Final = 31_536_000
"""A year, for the times of a whole job."""

Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
Text = Annotated[str, StringConstraints(max_length=65_536)]
ShortText = Annotated[str, StringConstraints(max_length=256)]
Globs = Annotated[tuple[ShortText, ...], Field(max_length=5000)]
