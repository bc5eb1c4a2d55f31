"""Errors and tables as the user reads them."""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
import re

import pytest
import yaml

import swe_rollout
from checkout import ROOT
from swe_rollout.cli.options import OutputFormat
from swe_rollout.cli.output import DOCS, documented_class, show_error, write_data, write_table
from swe_rollout.errors import Problem, SpecError, SweRolloutError, UsageError


def test_an_error_says_what_why_fix_and_where_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(UsageError("it is wrong\x1b[2J", why="because\nof this", fix="do that"))

    assert capsys.readouterr().err.splitlines() == [
        "error: it is wrong␛[2J",
        "  why   because",
        "        of this",
        "  fix   do that",
        f"  docs  {DOCS}#usage",
    ]


def test_problems_come_first_and_are_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("job.yaml:3", "spec.x", "word " * 100 + "[bold]not markup[/bold]")

    show_error(SpecError("job.yaml is wrong", [problem]))

    assert capsys.readouterr().err.splitlines()[0] == str(problem)


def test_every_error_has_a_heading_on_the_troubleshooting_page() -> None:
    for module in pkgutil.walk_packages(swe_rollout.__path__, "swe_rollout."):
        with contextlib.suppress(ImportError):  # of a trainer, in `integrations`
            importlib.import_module(module.name)
    page = (ROOT / DOCS).read_text()

    headings = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)

    wanted = {documented_class(kind).anchor() for kind in _tree(SweRolloutError)}
    assert set(headings) == wanted | _beside_trainers()
    assert len(headings) == len(set(headings))


def _beside_trainers() -> set[str]:
    """Return the anchors of errors in modules that may need a trainer to be imported."""
    texts = (path.read_text() for path in (ROOT / "swe_rollout/integrations").rglob("*.py"))
    names = re.findall(r"^class (\w+Error)\(SweRolloutError\)", "\n".join(texts), re.MULTILINE)
    return {re.sub(r"(?<!^)(?=[A-Z])", "-", each.removesuffix("Error")).lower() for each in names}


def _tree(kind: type[SweRolloutError]) -> list[type[SweRolloutError]]:
    return [kind, *(each for below in kind.__subclasses__() for each in _tree(below))]


def test_tables_show_untrusted_cells_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(["NAME", "COUNT#"], [["[red]a\x1b[2J", "12"], ["b", "3"]])

    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "NAME        COUNT",
        "[red]a␛[2J     12",
        "b               3",
    ]


def test_a_table_of_wide_characters_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(["NAME", "COUNT#"], [["日本", "1"], ["ab", "22"]])

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["NAME  COUNT", "日本      1", "ab       22"]


def test_names_alone_and_wide_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["a\x1b", "1", "x"]]
    for form, shown in (
        (OutputFormat.NAME, ["a␛"]),
        (OutputFormat.TABLE, ["NAME  N", "a␛    1"]),
        (OutputFormat.WIDE, ["NAME  N  MORE", "a␛    1  x"]),
    ):
        write_table(["NAME", "N#", "MORE+"], rows, form)
        assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == shown


def test_yaml_is_the_same_value_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": ["1", 2.5, None, True], "b: c": "no", "ü": {}}

    write_data(value, OutputFormat.JSON)
    assert json.loads(capsys.readouterr().out) == value
    write_data(value, OutputFormat.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == value
