"""Output and exit status of `conformance parsers` and `conformance tokens`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_dev import families
from rollout_dev.conformance import parsers, tokens
from swe_rollout.spec.tool_format import ToolFormat

WRONG = {
    "name": "wrong on purpose",
    "tools": [],
    "text": "no call",
    "expect": [{"status": "ok", "name": "bash"}],
}


@pytest.fixture(autouse=True)
def logged_again() -> Iterator[None]:
    """Undo what `conformance tokens` does for its whole process."""
    yield
    logging.disable(logging.NOTSET)


def test_the_table_of_parsers_is_one_object_with_every_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parsers.main(["--no-peers", "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    (row,) = report["rows"]
    assert (report["name"], report["ok"], row["subject"]) == ("parsers", True, "swe-rollout")
    assert row["right"] == row["of"] >= 300
    assert len([name for name in row if name.endswith("_right")]) == len(ToolFormat)


@pytest.mark.parametrize(
    ("form", "status", "words"),
    [
        ("hermes", 1, ["| hermes | 0 of 1 |", "wrong on purpose"]),
        ("smalltalk", 2, ["probes[0]"]),
    ],
)
def test_a_wrong_result_and_a_probe_that_can_t_be_read_fail_the_run(
    form: str, status: int, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "probes.json"
    file.write_text(json.dumps([WRONG | {"format": form}]))
    assert parsers.main(["--no-peers", "--probes", str(file)]) == status
    said = "".join(capsys.readouterr())
    assert all(each in said for each in words)


def test_the_table_of_tokens_has_a_row_for_each_tokenizer_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kimi = families.write("kimi_k2", tmp_path / "kimi")
    odd = families.write("qwen3", tmp_path / "odd")
    (odd / "chat_template.jinja").write_text("{{ 1 / 0 }}")

    named = ["--tokenizer", str(kimi), str(odd)]
    assert tokens.main(["--no-peers", "--json", "--quick", *named]) == 1

    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    right, refused = report["rows"]
    assert (report["name"], report["ok"]) == ("tokens", False)
    assert (right["subject"], right["family"]) == ("swe-rollout", "kimi_k2")
    assert right["tokenizer"] == str(kimi)
    assert (right["prefix_breaks"], right["forged_ids"], right["checks_failed"]) == (0, 0, 0)
    assert [right[f"trained_share_{noise}"] for noise in ("0", "0_2", "1", "10")] == [1, 1, 1, 1]
    assert right["turns"] > 100
    assert refused["tokenizer"] == str(odd)
    assert refused["refused"]


def test_the_table_of_tokens_is_markdown_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    glm = families.write("glm4_7", tmp_path / "glm")

    assert tokens.main(["--no-peers", "--quick", "--tokenizer", str(glm)]) == 0

    head, line, row, *_, last = capsys.readouterr().out.splitlines()
    assert head.startswith("| tokenizer | family | subject | prefix_breaks | forged_ids |")
    assert set(line) <= set("|-: ")
    assert row.startswith(f"| {glm} | glm | swe-rollout | 0 | 0 | 100.0 % |")
    assert last == "ok"
