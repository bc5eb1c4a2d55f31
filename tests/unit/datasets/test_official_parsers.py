"""Names of SWE-bench's log parsers lead to parsers that exist here."""

from __future__ import annotations

import pytest

from swe_rollout.datasets.official_parsers import official_name, parser_of
from swe_rollout.grading.parsers import LOG_PARSERS
from swe_rollout.types.instance import BUILTIN_LOG_PARSERS


@pytest.mark.parametrize(
    ("official", "parser"),
    [
        ("parse_log_flask", "pytest"),
        ("parse_log_sphinx", "pytest_v2"),
        ("parse_log_django", "django"),
        ("parse_log_cargo", "cargo"),
        ("parse_log_gradle_custom", "gradle"),
        ("parse_combined_test_reports", "junit_xml"),
        ("parse_log_jekyll", None),
        ("parse_log_haskell", None),
        ("parse_log_next", "fusion_next"),
        ("flask", None),
        ("os:system", None),
        ("parse_log_os:system", None),
    ],
)
def test_official_names_lead_to_a_parser(official: str, parser: str | None) -> None:
    assert parser_of(official) == parser


def test_some_official_parsers_depend_on_the_instance_or_its_version() -> None:
    assert parser_of("parse_log_jekyll", instance_id="jekyll__jekyll-8761") == "cucumber"
    assert parser_of("parse_log_jekyll", instance_id="jekyll__jekyll-8047") == "minitest"
    assert parser_of("parse_log_lighthouse", version="10.2") == "lighthouse_mocha"
    assert parser_of("parse_log_lighthouse", version="5.1") == "jest_files"
    assert parser_of("parse_log_lighthouse", version="2.9") == "mocha_json"
    assert parser_of("parse_log_lighthouse") is None
    assert parser_of("parse_log_next", version="1.27") is None


@pytest.mark.parametrize("parser", BUILTIN_LOG_PARSERS)
def test_every_parser_has_an_official_name_that_leads_back_to_it(parser: str) -> None:
    assert parser_of(official_name(parser) or "") == parser
    assert parser_of(parser) == parser


def test_the_parsers_of_rows_are_the_built_in_ones() -> None:
    assert set(BUILTIN_LOG_PARSERS) == set(LOG_PARSERS.names())
    assert official_name("mine:parse") is None
