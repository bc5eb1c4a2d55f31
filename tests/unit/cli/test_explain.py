"""The verb `explain`."""

from __future__ import annotations

import pytest

from swe_rollout.spec.fields import all_fields
from unit.cli.cli_parts import run_cli


def test_explain_has_every_field_of_the_schema(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    undocumented = [field.dotted for field in all_fields() if not field.doc and len(field.path) > 1]
    code = run_cli(monkeypatch, "explain", "spec.limits")

    assert code == 0
    assert "turns <integer> default 50" in capsys.readouterr().out
    assert undocumented == []
