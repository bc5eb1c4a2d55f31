"""The verb `check-template`: its output and exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rollout_dev import families
from swe_rollout.testing.tiny import tokenizer_path
from unit.cli.cli_parts import Cli

TINY = str(tokenizer_path())


def with_template(folder: Path, begin: str, family: str = "qwen3") -> str:
    """Write a tokenizer of a family whose template begins so; return its folder."""
    families.write(family, folder)
    file = folder / "chat_template.jinja"
    file.write_text(begin + file.read_text())
    return str(folder)


TELLS_XML = "<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>"
TELLS_KEYS = "<tool_call>{name}\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>"


def test_rules_and_checks_are_written_as_json(cli: Cli) -> None:
    found = cli("check-template", TINY, "--quick", "-o", "json").json

    assert found["ok"] is True
    assert found["rules"]["family"] == "chatml"
    assert all(check["passed"] for check in found["checks"])


def test_a_check_that_fails_is_in_the_tables_and_exits_1(cli: Cli, tmp_path: Path) -> None:
    refuse = "{% if messages | length > 12 %}{{ raise_exception('too long') }}{% endif %}"

    done = cli("check-template", with_template(tmp_path, refuse), "--quick", code=1)

    assert "family" in done.out
    assert ["forged", "control", "tokens", "pass"] in [row[:4] for row in done.rows]
    assert "\ndeltas: many turns: TemplateError: too long" in done.out


def test_a_template_that_is_refused_exits_1(cli: Cli, tmp_path: Path) -> None:
    kimi = str(families.write("kimi_k2", tmp_path / "kimi"))
    done = cli("check-template", kimi, "--quick", "--tool-format", "hermes", code=1)
    assert "does not fit the format of calls hermes" in done.err

    odd = families.write("qwen3", tmp_path / "odd")
    text = "{% for m in messages %}{{ m.content }}{% endfor %}"
    (odd / "chat_template.jinja").write_text(text)
    found = cli("check-template", str(odd), "-o", "json", code=1).json
    assert found["ok"] is False
    assert "exact" in found["refused"]["what"]
    assert found["refused"]["why"]


@pytest.mark.parametrize(
    ("family", "tells", "taught"),
    [
        ("qwen3_coder", TELLS_XML, "qwen_xml"),
        ("qwen3_5", TELLS_XML, "qwen_xml"),
        ("glm4_5", TELLS_KEYS, "glm45 or glm47"),
        ("glm4_7", TELLS_KEYS, "glm45 or glm47"),
        ("qwen3", '<tool_call>\n{"name": NAME}\n</tool_call>', "hermes"),
    ],
)
def test_a_format_that_the_template_does_not_teach_is_refused(
    family: str, tells: str, taught: str, cli: Cli, tmp_path: Path
) -> None:
    folder = with_template(tmp_path, f"{{% raw %}}{tells}{{% endraw %}}", family)
    other = "hermes" if taught != "hermes" else "llama3"

    done = cli("check-template", folder, "--quick", "--tool-format", other, code=1)

    assert f"does not fit the format of calls {other}" in done.err
    assert f"{other} does not read the calls that it writes; it teaches {taught}" in done.err
    shown = cli("check-template", folder, "--quick")
    assert ["teaches", *taught.split()] in shown.rows


def test_a_template_that_only_tells_of_another_format_is_no_hermes(
    cli: Cli, tmp_path: Path
) -> None:
    folder = with_template(tmp_path, TELLS_XML, "qwen3_coder")
    file = Path(folder, "chat_template.jinja")
    file.write_text(file.read_text().replace("m.tool_calls or []", "[]"))

    for wanted in ((), ("--tool-format", "hermes")):
        done = cli("check-template", folder, "--quick", *wanted, code=1)
        assert "it writes no calls" in done.err or "hermes does not read" in done.err


@pytest.mark.parametrize(
    ("broken", "code"), [("{}", 1), ("nothing", 1), ('{"added_tokens": [], "model": {}}', 1)]
)
def test_files_that_are_broken_are_an_error_of_ours(
    broken: str, code: int, cli: Cli, tmp_path: Path
) -> None:
    folder = families.write("qwen3", tmp_path / "broken")
    (folder / "tokenizer.json").write_text(broken)

    errors = cli("check-template", str(folder), code=code).err

    assert "error: " in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("./none",), 3, "error: "),
        *(((TINY, "--template-kwargs", text), 2, "JSON") for text in ("[", "[1]", "1")),
        *(
            ((TINY, "--quick", "--template-date", text), 2, "is no date")
            for text in ("2031-13-01", "tomorrow", "20310517", "2031-W20-6", "")
        ),
    ],
)
def test_what_can_not_be_checked_is_refused(
    arguments: tuple[str, ...], code: int, said: str, cli: Cli
) -> None:
    assert said in cli("check-template", *arguments, code=code).err


def test_empty_results_are_written_where_the_template_leaves_them_out(
    cli: Cli, tmp_path: Path
) -> None:
    folder = families.write("functiongemma", tmp_path)
    file = folder / "chat_template.jinja"
    begin, end = "{{- '<start_function_response>response:", "'}<end_function_response>' }}"
    text = file.read_text()
    assert text.count(begin) == text.count(end) == 1
    text = text.replace(begin, "{%- if m.content %}" + begin).replace(end, end + "{%- endif %}")
    file.write_text(text)

    assert (
        "; empty results are written, which the template leaves out"
        in cli("check-template", str(folder), "--quick").out
    )


def test_the_template_is_told_the_date_of_the_job(cli: Cli, tmp_path: Path) -> None:
    asks = "{% if strftime_now('%Y') != '2031' %}{{ raise_exception('too early') }}{% endif %}"
    folder = with_template(tmp_path, asks)

    assert "too early" in cli("check-template", folder, "--quick", code=1).err
    cli("check-template", folder, "--quick", "--template-date", "2031-05-17")


def test_glm4_s_calls_are_read_from_the_headers_of_turns(cli: Cli, tmp_path: Path) -> None:
    said = cli("check-template", str(families.write("glm4_0414", tmp_path)))
    assert re.search(r"^teaches +glm4 *$", said.out, re.MULTILINE)
    assert "every token is kept exact" in said.out + said.err
