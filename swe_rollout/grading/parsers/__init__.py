"""Log parsers by name: `LOG_PARSERS` has the built-in parsers and those of users."""

from __future__ import annotations

from collections.abc import Mapping

from swe_rollout.extension import ExtensionPoint
from swe_rollout.grading.parsers.base import LogParser, NamedLogParser
from swe_rollout.types.instance import LOG_PARSER_FAMILIES

LOG_PARSERS: ExtensionPoint[LogParser] = ExtensionPoint(
    "log parser",
    group="swe_rollout.log_parsers",
    accepts=callable,
    expected="a function that takes the log and returns a mapping of test id to status",
    builtin={
        name: f"swe_rollout.grading.parsers.{module}:{name}"
        for module, names in LOG_PARSER_FAMILIES.items()
        for name in names.split()
    },
    one_argument=True,
)


def load_parser(use: str, parameters: Mapping[str, object] | None = None) -> NamedLogParser:
    """Load a log parser by name. Raises ExtensionError, which lists what exists."""
    return NamedLogParser(use, LOG_PARSERS.load(use, parameters))
