"""Bounds of a RolloutJob: each of its counts, times, texts and resource amounts has a maximum.

The bounds are far above what a job needs, but low enough that nothing downstream overflows. The CRD
takes them from here, as do the models in `swe_rollout.spec` and the worker.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import partial
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

MAX_SAMPLES: Final = 10_000
MAX_EPISODES: Final = 1_000_000
"""The most episodes (tasks times samples) of one job."""
BUDGET_FLOOR: Final = 10
"""While fewer episodes have finished, the failure budget assumes this many."""
MAX_SECONDS: Final = 2_592_000
"""Thirty days: no single wait is sensibly longer."""
MAX_JOB_SECONDS: Final = 31_536_000
"""One year, for the durations of a whole job."""

Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
Text = Annotated[str, StringConstraints(max_length=65_536)]
ShortText = Annotated[str, StringConstraints(max_length=256)]
Globs = Annotated[tuple[ShortText, ...], Field(max_length=5000)]


MAX_AMOUNTS: Final = {"cpu": "256", "memory": "2Ti", "ephemeral-storage": "4Ti"}
"""The most that one container of a job may request or use. A ResourceQuota bounds a namespace."""

_QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,9})?)(m|k|[KMGTPE]i|[MGTPE])?")
_FACTORS: Final = {
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("MGTPE", 2)},
}


def parse_quantity(text: str) -> Decimal:
    """Parse a Kubernetes quantity. Raises ValueError if it is invalid."""
    if (found := _QUANTITY.fullmatch(text)) is None:
        raise ValueError("a Kubernetes quantity such as 2, 500m or 4Gi")
    number, unit = found.groups()
    return Decimal(number) * _FACTORS.get(unit or "", Decimal(1))


def check_amount(resource: str, text: str) -> str:
    """Return `text` if it is above 0 and within the resource's maximum, else raise ValueError."""
    amount, most = parse_quantity(text), MAX_AMOUNTS[resource]
    if not 0 < amount <= parse_quantity(most):
        raise ValueError(f"a Kubernetes quantity above 0 and at most {most}")
    return text


_TEXT = StringConstraints(max_length=32)
Cpu = Annotated[str, _TEXT, AfterValidator(partial(check_amount, "cpu"))]
Memory = Annotated[str, _TEXT, AfterValidator(partial(check_amount, "memory"))]
Storage = Annotated[str, _TEXT, AfterValidator(partial(check_amount, "ephemeral-storage"))]
