"""Log parsers by name: `LOG_PARSERS` has the built-in ones and those that users bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from swe_rollout.extension import ExtensionPoint
from swe_rollout.grading.parsers.base import LogParser, NamedLogParser

_BUILTIN: Final = {
    "python_log": "pytest pytest_options pytest_v2 django sympy seaborn matplotlib swesmith "
    "unittest r2e",
    "reports": "junit_xml json_results",
    "native_log": "gotest gotest_json cargo ctest googletest doctest automake redis micropython",
    "jvm_log": "maven surefire gradle ant",
    "node_log": "jest jest_json jest_files vitest mocha mocha_json karma tap",
    "script_log": "phpunit minitest ruby_unit rspec rspec_lines cucumber",
    "browser_log": "bpmn_js calypso chart_js eslint fusion_next highlightjs lighthouse_mocha "
    "marked openlayers p5js",
}
"""The names of the built-in parsers, by the module that holds them."""

LOG_PARSERS: ExtensionPoint[LogParser] = ExtensionPoint(
    "log parser",
    group="swe_rollout.log_parsers",
    accepts=callable,
    expected="a function that takes the log and returns a mapping of test id to status",
    builtin={
        name: f"swe_rollout.grading.parsers.{module}:{name}"
        for module, names in _BUILTIN.items()
        for name in names.split()
    },
    one_argument=True,
)


def load_parser(use: str, parameters: Mapping[str, object] | None = None) -> NamedLogParser:
    """Load a log parser by name. Raises ExtensionError, which says what exists."""
    return NamedLogParser(use, LOG_PARSERS.load(use, parameters))
