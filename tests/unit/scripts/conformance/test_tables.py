"""Output and exit status of `conformance parsers` and `conformance tokens`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rollout_dev import families
from swe_rollout.spec.tool_format import ToolFormat

WRONG = {
    "name": "wrong on purpose",
    "format": "hermes",
    "tools": [],
    "text": "no call",
    "expect": [{"status": "ok", "name": "bash"}],
}


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rollout_dev.conformance", name, "--no-peers", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_the_table_of_parsers_is_one_object_with_every_format() -> None:
    done = run("parsers", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    (row,) = report["rows"]
    assert (report["name"], report["ok"], row["subject"]) == ("parsers", True, "swe-rollout")
    assert row["right"] == row["of"] >= 300
    assert len([name for name in row if name.endswith("_right")]) == len(ToolFormat)


def test_a_wrong_result_is_printed_and_fails_the_run(tmp_path: Path) -> None:
    file = tmp_path / "probes.json"
    file.write_text(json.dumps([WRONG]))
    done = run("parsers", "--probes", str(file))
    assert done.returncode == 1
    assert "wrong on purpose" in done.stderr
    assert "| hermes | 0 of 1 |" in done.stdout


def test_probes_that_can_t_be_read_are_an_error_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "probes.json"
    file.write_text(json.dumps([WRONG | {"format": "smalltalk"}]))
    done = run("parsers", "--probes", str(file))
    assert done.returncode == 2
    assert "probes[0]" in done.stderr


def test_the_table_of_tokens_has_a_row_for_each_tokenizer_that_is_named(tmp_path: Path) -> None:
    kimi = families.write("kimi_k2", tmp_path / "kimi")
    odd = families.write("qwen3", tmp_path / "odd")
    (odd / "chat_template.jinja").write_text("{{ 1 / 0 }}")
    named = ("--tokenizer", str(kimi), str(odd))

    done = run("tokens", "--json", "--quick", *named)

    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    right, refused = report["rows"]
    assert (report["name"], report["ok"]) == ("tokens", False)
    assert (right["subject"], right["family"]) == ("swe-rollout", "kimi_k2")
    assert right["tokenizer"] == str(kimi)
    assert (right["prefix_breaks"], right["forged_ids"], right["checks_failed"]) == (0, 0, 0)
    assert [right[f"trained_share_{noise}"] for noise in ("0", "0_2", "1", "10")] == [1, 1, 1, 1]
    assert right["turns"] > 100
    assert refused["tokenizer"] == str(odd)
    assert refused["refused"]


def test_the_table_of_tokens_is_markdown_for_people(tmp_path: Path) -> None:
    glm = families.write("glm4_7", tmp_path / "glm")

    done = run("tokens", "--quick", "--tokenizer", str(glm))

    assert done.returncode == 0, done.stderr
    head, line, row = done.stdout.splitlines()[:3]
    assert head.startswith("| tokenizer | family | subject | prefix_breaks | forged_ids |")
    assert set(line) <= set("|-: ")
    assert row.startswith(f"| {glm} | glm | swe-rollout | 0 | 0 | 100.0 % |")
    assert done.stdout.splitlines()[-1] == "ok"
