"""Log parsers by name: `LOG_PARSERS` has the built-in ones and those that users bring."""

from __future__ import annotations

from collections.abc import Mapping

from swe_rollout.extension import ExtensionPoint
from swe_rollout.grading.parsers.base import LogParser, NamedLogParser

_HERE = "swe_rollout.grading.parsers"

LOG_PARSERS: ExtensionPoint[LogParser] = ExtensionPoint(
    "log parser",
    group="swe_rollout.log_parsers",
    accepts=callable,
    expected="a function that takes the log and returns a mapping of test id to status",
    builtin={
        "pytest": f"{_HERE}.pytest_log:pytest",
        "pytest_options": f"{_HERE}.pytest_log:pytest_options",
        "pytest_v2": f"{_HERE}.pytest_log:pytest_v2",
        "django": f"{_HERE}.django_log:django",
        "sympy": f"{_HERE}.sympy_log:sympy",
        "seaborn": f"{_HERE}.pytest_log:seaborn",
        "matplotlib": f"{_HERE}.pytest_log:matplotlib",
        "swesmith": f"{_HERE}.pytest_log:swesmith",
        "unittest": f"{_HERE}.unittest_log:unittest",
        "r2e": f"{_HERE}.r2e_log:r2e",
        "junit_xml": f"{_HERE}.junit_xml:junit_xml",
        "json_results": f"{_HERE}.json_results:json_results",
        "gotest": f"{_HERE}.go_log:gotest",
        "gotest_json": f"{_HERE}.go_log:gotest_json",
        "cargo": f"{_HERE}.rust_log:cargo",
        "maven": f"{_HERE}.jvm_log:maven",
        "surefire": f"{_HERE}.jvm_log:surefire",
        "gradle": f"{_HERE}.jvm_log:gradle",
        "ant": f"{_HERE}.jvm_log:ant",
        "ctest": f"{_HERE}.native_log:ctest",
        "googletest": f"{_HERE}.native_log:googletest",
        "doctest": f"{_HERE}.native_log:doctest",
        "automake": f"{_HERE}.native_log:automake",
        "redis": f"{_HERE}.native_log:redis",
        "micropython": f"{_HERE}.native_log:micropython",
        "jest": f"{_HERE}.node_log:jest",
        "jest_json": f"{_HERE}.node_log:jest_json",
        "jest_files": f"{_HERE}.node_log:jest_files",
        "vitest": f"{_HERE}.node_log:vitest",
        "mocha": f"{_HERE}.node_log:mocha",
        "mocha_json": f"{_HERE}.node_log:mocha_json",
        "karma": f"{_HERE}.node_log:karma",
        "tap": f"{_HERE}.node_log:tap",
        "phpunit": f"{_HERE}.php_log:phpunit",
        "minitest": f"{_HERE}.ruby_log:minitest",
        "ruby_unit": f"{_HERE}.ruby_log:ruby_unit",
        "rspec": f"{_HERE}.ruby_log:rspec",
        "rspec_lines": f"{_HERE}.ruby_log:rspec_lines",
        "cucumber": f"{_HERE}.ruby_log:cucumber",
        "bpmn_js": f"{_HERE}.browser_log:bpmn_js",
        "calypso": f"{_HERE}.browser_log:calypso",
        "chart_js": f"{_HERE}.browser_log:chart_js",
        "eslint": f"{_HERE}.browser_log:eslint",
        "fusion_next": f"{_HERE}.browser_log:fusion_next",
        "highlightjs": f"{_HERE}.browser_log:highlightjs",
        "lighthouse_mocha": f"{_HERE}.browser_log:lighthouse_mocha",
        "marked": f"{_HERE}.browser_log:marked",
        "openlayers": f"{_HERE}.browser_log:openlayers",
        "p5js": f"{_HERE}.browser_log:p5js",
    },
    one_argument=True,
)


def load_parser(use: str, parameters: Mapping[str, object] | None = None) -> NamedLogParser:
    """Load a log parser by name. Raises ExtensionError, which says what exists."""
    return NamedLogParser(use, LOG_PARSERS.load(use, parameters))
