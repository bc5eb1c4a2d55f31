"""Pod templates that a job may have, and attempts at others, for every place that checks them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """A template that must be refused, and the field that the refusal names."""

    template: Any
    field: str

    def __str__(self) -> str:
        return self.field


_READ: Final = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
FORBIDDEN: Final = tuple(Attempt(**row) for rows in _READ["forbidden"].values() for row in rows)
ALLOWED: Final[dict[str, Json]] = _READ["allowed"]
