"""The verb `check-template`: its output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollout_dev import families
from swe_rollout.testing.tiny import tokenizer_path
from unit.cli.cli_parts import run_cli

TINY = str(tokenizer_path())


def check_template(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    return run_cli(monkeypatch, "check-template", *arguments)


def test_check_template_writes_rules_and_checks_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = check_template(monkeypatch, TINY, "--quick", "-o", "json")

    result = json.loads(capsys.readouterr().out)
    assert code == 0
    assert result["ok"] is True
    assert result["rules"]["family"] == "chatml"
    assert all(check["passed"] for check in result["checks"])


def test_check_template_shows_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = check_template(monkeypatch, TINY, "--quick")

    out = capsys.readouterr().out
    assert code == 0
    assert "family" in out
    assert "forged control tokens" in out
    assert "FAIL" not in out


def test_check_template_ends_with_1_when_a_check_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = families.write("qwen3", tmp_path / "short")
    file = folder / "chat_template.jinja"
    refuse = "{% if messages | length > 12 %}{{ raise_exception('too long') }}{% endif %}"
    file.write_text(refuse + file.read_text())

    code = check_template(monkeypatch, str(folder), "--quick")

    assert code == 1
    assert "\ndeltas: many turns: TemplateError: too long" in capsys.readouterr().out


def test_check_template_ends_with_1_when_the_format_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = families.write("kimi_k2", tmp_path / "kimi")

    code = check_template(monkeypatch, str(folder), "--quick", "--tool-format", "hermes")

    assert code == 1
    assert "does not fit the format of calls hermes" in capsys.readouterr().err


def test_check_template_ends_with_1_when_the_template_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = families.write("qwen3", tmp_path / "odd")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )

    code = check_template(monkeypatch, str(folder), "-o", "json")

    result = json.loads(capsys.readouterr().out)
    assert code == 1
    assert result["ok"] is False
    assert "exact" in result["refused"]["what"]
    assert result["refused"]["why"]


@pytest.mark.parametrize("broken", ["{}", "nothing", '{"added_tokens": [], "model": {}}'])
def test_check_template_ends_with_an_error_of_ours_when_files_are_broken(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = families.write("qwen3", tmp_path / "broken")
    (folder / "tokenizer.json").write_text(broken)

    code = check_template(monkeypatch, str(folder))

    errors = capsys.readouterr().err
    assert code in {1, 3}
    assert "error: " in errors
    assert "Traceback" not in errors


def test_check_template_ends_with_3_when_there_is_no_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_template(monkeypatch, str(tmp_path / "none")) == 3


@pytest.mark.parametrize("kwargs", ["[", "[1]", "1"])
def test_check_template_ends_with_2_when_kwargs_are_not_an_object(
    kwargs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_template(monkeypatch, TINY, "--template-kwargs", kwargs) == 2


def test_check_template_tells_the_template_the_date_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = families.write("qwen3", tmp_path / "dated")
    file = folder / "chat_template.jinja"
    asks = "{% if strftime_now('%Y') != '2031' %}{{ raise_exception('too early') }}{% endif %}"
    file.write_text(asks + file.read_text())

    assert check_template(monkeypatch, str(folder), "--quick") == 1
    assert "too early" in capsys.readouterr().err
    dated = ("--quick", "--template-date", "2031-05-17")
    assert check_template(monkeypatch, str(folder), *dated) == 0


@pytest.mark.parametrize("text", ["2031-13-01", "tomorrow", "20310517", "2031-W20-6", ""])
def test_check_template_refuses_what_is_no_date(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_template(monkeypatch, TINY, "--quick", "--template-date", text) == 2
    assert "is no date" in capsys.readouterr().err
