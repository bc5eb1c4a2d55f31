"""The fixtures of the unit tests' API server."""

from __future__ import annotations

from unit.conftest import connect

__all__ = ["connect"]
