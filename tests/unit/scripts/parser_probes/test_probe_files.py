"""Probe files: their schema, errors that name the place, and how expected calls are compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rollout_dev.parser_probes.probe_files import load_probes
from rollout_dev.parser_probes.probes import run_probe
from swe_rollout.errors import UsageError
from swe_rollout.testing.tiny import tokenizer_path

PLAIN = {"name": "x", "format": "hermes", "tools": [], "text": "hi", "expect": []}
TOOL = {"type": "function", "function": {"name": "submit"}}
CALL = '<tool_call>{"name": "submit", "arguments": {}}</tool_call>'
PROBE = {"name": "x", "format": "hermes", "tools": [TOOL], "text": CALL}


def tool(**function: object) -> dict[str, object]:
    return {"type": "function", "function": function}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "line 1"),
        ("", "length >= 1"),
        ("[]", "length >= 1"),
        ("3", "Expected `object`"),
        ("{}", "`probes`"),
        ('["a"]', r"\$\.probes\[0\]"),
        (json.dumps([PLAIN, PLAIN | {"format": "latin"}]), r"'latin' - at `\$\.probes\[1\]"),
        (json.dumps([PLAIN | {"text": 3}]), r"\.text`"),
        (json.dumps([{"format": "hermes", "expect": []}]), "probe 1 .*`text`, or `ids`"),
        (json.dumps([PLAIN | {"ids": [1]}]), "tokenizer"),
        (json.dumps([PLAIN | {"expect": [{}]}]), "`status`"),
        (json.dumps([PLAIN | {"expect": [{"status": "fine"}]}]), "fine"),
        (json.dumps([PLAIN | {"expect": [{"status": []}]}]), "length >= 1"),
        (json.dumps([PLAIN | {"expect": [{"status": "ok", "arguments": [1]}]}]), "`object | null`"),
        (json.dumps([PLAIN | {"expect": None}]), "`array`"),
        (json.dumps([PLAIN | {"tools": [tool(name="a", parameters=[])]}]), r"\.parameters`"),
        (json.dumps([PLAIN | {"tools": [tool(name="a", parameters={"type": 3})]}]), "'a'"),
        (json.dumps([PLAIN | {"tools": [tool()]}]), "`name`"),
        (json.dumps([PLAIN | {"prompt_opened_reasoning": "no"}]), "`bool`"),
        (json.dumps([PLAIN | {"reasoning": {"opener": "<t>"}}]), "`closer`"),
        (json.dumps([PLAIN | {"ids": ["1"], "tokenizer": "x"}]), r"\.ids\[0\]`"),
        (json.dumps([PLAIN | {"prompt_opens_reasoning": True}]), "`prompt_opens_reasoning`"),
        (json.dumps([PLAIN | {"expect": [{"status": "ok", "argument": {}}]}]), "`argument`"),
        (json.dumps({"probes": [PLAIN], "tool": []}), "`tool`"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "probes.json"
    file.write_text(content)
    with pytest.raises(UsageError, match="not a file of probes") as raised:
        load_probes(file)
    assert re.search(why, raised.value.why), raised.value.why


def test_json_lines_an_object_and_a_list_are_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "probes.json"
    loaded = []
    for content in (
        f"\ufeff{json.dumps(PLAIN)}\n\n{json.dumps(PLAIN)}\n",
        json.dumps({"probes": [PLAIN, PLAIN]}),
        json.dumps([PLAIN, PLAIN]),
    ):
        file.write_text(content)
        loaded.append(load_probes(file))
    assert loaded[0] == loaded[1] == loaded[2]


def test_probes_without_tools_of_their_own_have_those_of_the_file(tmp_path: Path) -> None:
    probe = {"format": "hermes", "text": CALL, "expect": [{"status": "ok"}]}
    file = tmp_path / "probes.json"
    file.write_text(json.dumps({"tools": [TOOL], "probes": [probe, probe | {"tools": []}]}))
    first, second = load_probes(file)
    assert first.passes(run_probe(first))
    assert not second.passes(run_probe(second))


@pytest.mark.parametrize(
    "fields",
    [
        {"expect": [{"status": "ok", "name": "submit", "arguments": {}}]},
        {"expect": [{"status": ["unclosed", "ok"]}]},
        {"text": CALL[:-4], "expect": [{"status": "unclosed", "arguments": {"never": "run"}}]},
        {"text": CALL + "<|im_end|>", "expect": [{"status": "ok"}]},
        {"prompt_opened_reasoning": True, "expect": []},
        {"text": f"[T]{CALL}[/T]", "reasoning": {"opener": "[T]", "closer": "[/T]"}, "expect": []},
        {"expect": [{"status": "ok", "raw": ' {"name": "submit", "arguments": {}}', "id": ""}]},
    ],
)
def test_expected_calls_pass(tmp_path: Path, fields: dict[str, object]) -> None:
    file = tmp_path / "probes.json"
    file.write_text(json.dumps(PROBE | fields))
    (probe,) = load_probes(file)
    assert probe.passes(run_probe(probe))


@pytest.mark.parametrize(
    "expect",
    [
        [{"status": "malformed"}],
        [{"status": "ok", "name": "other"}],
        [{"status": "ok", "arguments": {"a": 1}}],
        [{"status": "ok", "id": "1"}],
        [{"status": "ok", "raw": "{}"}],
        [{"status": "ok"}, {"status": "ok"}],
        [],
    ],
)
def test_other_calls_than_the_expected_fail(tmp_path: Path, expect: list[object]) -> None:
    file = tmp_path / "probes.json"
    file.write_text(json.dumps(PROBE | {"expect": expect}))
    (probe,) = load_probes(file)
    assert not probe.passes(run_probe(probe))


@pytest.mark.parametrize(
    ("tokenizer", "content", "why"),
    [
        ("none.json", None, "can't be read"),
        ("broken.json", "{}", "is not a tokenizer"),
    ],
)
def test_ids_without_their_tokenizer_are_an_error_that_names_the_probe(
    tmp_path: Path, tokenizer: str, content: str | None, why: str
) -> None:
    if content is not None:
        (tmp_path / tokenizer).write_text(content)
    file = tmp_path / "probes.json"
    file.write_text(json.dumps(PROBE | {"ids": [1], "tokenizer": tokenizer, "expect": []}))
    (probe,) = load_probes(file)
    with pytest.raises(UsageError, match=f"^x: .*{why}"):
        run_probe(probe)


def test_an_id_that_is_not_in_the_vocabulary_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "probes.json"
    tokenizer = str(tokenizer_path())
    file.write_text(json.dumps(PROBE | {"ids": [1 << 40], "tokenizer": tokenizer, "expect": []}))
    (probe,) = load_probes(file)
    with pytest.raises(UsageError, match=r"^x: an id"):
        run_probe(probe)
