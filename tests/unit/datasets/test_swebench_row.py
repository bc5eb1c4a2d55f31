"""Every wrong field of a row is named with what was expected."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from swe_rollout.types.instance import Instance
from unit.datasets.row_parts import GOOD, problem, read

BAD: tuple[tuple[str, object, str], ...] = (
    (
        "FAIL_TO_PASS",
        5,
        "FAIL_TO_PASS: expected a list of test ids or its JSON string; found int",
    ),
    ("FAIL_TO_PASS", "[1]", "found int in the list"),
    ("FAIL_TO_PASS", "__import__('os').getcwd()", "found \"__import__('os').getcwd()\""),
    ("FAIL_TO_PASS", [], "expected at least one test id; found none"),
    ("FAIL_TO_PASS", [" "], "found ' ' in the list"),
    ("FAIL_TO_PASS", "[" * 100_000, "(100000 characters)"),
    ("PASS_TO_PASS", {"a": 1}, "found object"),
    ("PASS_TO_PASS", ["t"] * 100_001, "has 100001 test ids; at most 100000"),
    ("PASS_TO_PASS", ["a\0b"], "PASS_TO_PASS: contains a NUL byte at character 1"),
    ("instance_id", "", "instance_id: expected 1 to 200 letters"),
    ("instance_id", "../../etc/passwd", "names a folder; found '../../etc/passwd'"),
    ("instance_id", "a/b", "found 'a/b'"),
    ("instance_id", "a..b", "found 'a..b'"),
    ("instance_id", ".hidden", "no leading dot"),
    ("instance_id", "x" * 201, "(201 characters)"),
    ("instance_id", "a\n", "found 'a\\n'"),
    ("instance_id", 7, "instance_id: expected text; found int"),
    ("repo", "", "repo: expected 1 to 200 characters; found ''"),
    ("base_commit", "main; rm -rf /", "expected a commit id in hexadecimal"),
    ("base_commit", None, "base_commit: missing"),
    ("problem_statement", "  \n", "problem_statement: expected a text; found nothing"),
    ("problem_statement", "x" * ((1 << 20) + 1), "has 1048577 bytes"),
    ("problem_statement", "half \ud800", "half a surrogate pair at character 5"),
    ("patch", "please apply this", "patch: expected a diff; found 'please apply this'"),
    ("patch", "\0\1\2" * 100, "patch: contains a NUL byte at character 0"),
    ("test_patch", ["a"], "test_patch: expected text; found list"),
    ("test_patch", "", "test_patch: touches no file; add `test_cmd` or `eval_script`"),
    ("log_parser", "parse_log_pytset", "did you mean pytest?"),
    ("log_parser", "parse_log_x", "there is no parser 'parse_log_x'; docs/how-to/datasets.md"),
    ("eval_type", "maybe", "eval_type: expected 'pass_and_fail' or 'fail_only'; found 'maybe'"),
    ("image", "two words", "image: expected the name of an image"),
    ("workdir", "../up", "workdir: expected an absolute path"),
    ("workdir", "/a/../../b", "workdir: expected an absolute path"),
    ("test_cmd", [], "test_cmd: expected a command or a list of them; found list"),
    ("test_cmd", ["ok", 3], "test_cmd: expected a command or a list of them; found int"),
    ("test_timeout_s", -1, "test_timeout_s: expected greater than 0"),
    ("install_config", {"install": ["x"]}, "install_config.test_cmd: missing"),
)


@pytest.mark.parametrize(
    ("field", "value", "message"), BAD, ids=[f"{field}-{text[:30]}" for field, _, text in BAD]
)
async def test_a_bad_field_is_named_with_what_was_expected(
    tmp_path: Path, field: str, value: object, message: str
) -> None:
    text = await problem(tmp_path, {field: value})
    assert text.startswith("rows.jsonl:1: ")
    assert message in text
    assert len(text) < 500, "a message never dumps a huge field"


async def test_several_bad_fields_of_a_row_are_one_line(tmp_path: Path) -> None:
    text = await problem(tmp_path, {"repo": 1, "FAIL_TO_PASS": 2})
    assert text == (
        "rows.jsonl:1: repo: expected text; found int; FAIL_TO_PASS: expected a list of test ids "
        "or its JSON string; found int (instance pallets__flask-5014)"
    )


@pytest.mark.threat(point=6)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" + "'a'," * 3_900_000 + "]", "has 100001 test ids; at most 100000"),
        ("['" + "a" * 15_000_000, "(15000002 characters)"),
        ("1+" * 5_000_000 + "1", "(10000001 characters)"),
        ("[" + "(" * 9_000_000 + "]", "(9000002 characters)"),
    ],
    ids=["too many", "never closed", "a sum", "too deep"],
)
async def test_a_python_list_is_read_no_further_than_its_bound(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[int] = []
    monkeypatch.setattr(ast, "literal_eval", lambda quoted: evaluated.append(len(quoted)))
    assert message in await problem(tmp_path, {"FAIL_TO_PASS": text})
    assert not evaluated


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("['a', \"it's\", 'x\\'y']", ("a", "it's", "x'y")),
        ("('a',)", ("a",)),
        (" [ 'a' , 'b' , ] ", ("a", "b")),
    ],
)
async def test_a_python_list_of_texts_is_read(
    text: str, ids: tuple[str, ...], tmp_path: Path
) -> None:
    row = json.dumps(GOOD | {"FAIL_TO_PASS": text}).encode()
    (task,) = await read(tmp_path, "rows.jsonl", row)
    assert isinstance(task, Instance)
    assert task.expected.fail_to_pass == ids


@pytest.mark.parametrize("text", ["['a' 'b']", "['a', 1]", "['a',,'b']", "['a'", "['\\N{NO}']"])
async def test_anything_else_is_no_list(text: str, tmp_path: Path) -> None:
    assert "expected a list of test ids" in await problem(tmp_path, {"FAIL_TO_PASS": text})
