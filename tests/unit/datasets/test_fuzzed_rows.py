"""Ten thousand damaged rows of every format: each loads, or is refused with its place."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator

import pytest

from swe_rollout.datasets.row_files import Row
from swe_rollout.datasets.swebench import instance_of
from swe_rollout.errors import Problem
from swe_rollout.types.instance import Instance
from unit.datasets.test_formats import COMMON, LIVE, PRO, R2E, REBENCH

ROWS = 10_000
V2 = REBENCH | {"language": "c", "image_name": "a/b:1"}
SMITH = COMMON | {"repo": "swesmith/me__adder.12345678", "instance_id": "me__adder.12345678.x__1"}
MULTI: dict[str, object] = {
    "org": "google",
    "repo": "gson",
    "number": 1,
    "base": {"sha": "d5276398046ce4a102776a1e67dcac2884d80dfe"},
    "resolved_issues": [{"number": 2, "title": "It fails", "body": None}],
    "fix_patch": "",
    "test_patch": COMMON["test_patch"],
    "f2p_tests": {"a.B": {"run": "PASS", "test": "FAIL", "fix": "PASS"}},
    "p2p_tests": {},
}
SEEDS = (COMMON | {"instance_id": "a"}, SMITH, REBENCH, V2, R2E, PRO, LIVE, MULTI)
JUNK: tuple[object, ...] = (
    None, True, 0, -1, 1 << 70, 0.5, float("nan"), "", " ", "\0", "\ud800", "x" * 3000, "../..",
    "[", "[1]", "['a', 'b']", "{}", '{"a": 1}', "\x1b[31m", "é漢", b"\xff", [], [None], [[]],
    ["a", "a"], {}, {"": {}}, {"file_diffs": [{}]}, {"file_diffs": 3},
    {"a": {"b": [1, {"c": "d"}]}},
    {"test_cmd": "x", "log_parser": "parse_log_pytest"}, [{"title": "t", "body": 1}],
    {"sha": "main"},
    "@@ -1 +1 @@", "diff --git a/x b/x\n@@ -1,9 +1 @@\n", "diff --git \n--- \n+++ \n@@ -1 +1 @@\n+",
)  # fmt: skip


def damaged(value: object, choose: random.Random) -> object:
    """Return the value, with a part of it changed, removed or repeated."""
    match value:
        case dict() if value and choose.random() < 0.8:
            changed = copy.copy(value)
            name = choose.choice(list(changed))
            match choose.randrange(4):
                case 0:
                    del changed[name]
                case 1:
                    changed[choose.choice(["image", "test_cmd", "org", "install_config", "x"])] = (
                        choose.choice(JUNK)
                    )
                case _:
                    changed[name] = damaged(changed[name], choose)
            return changed
        case list() if value and choose.random() < 0.8:
            index = choose.randrange(len(value))
            return [*value[:index], damaged(value[index], choose), *value[index:]]
        case str() if value.startswith(("[", "{")) and choose.random() < 0.7:
            try:
                return json.dumps(damaged(json.loads(value), choose))
            except (ValueError, TypeError):
                return value[: choose.randrange(len(value))]
        case str() if value and choose.random() < 0.5:
            cut = choose.randrange(len(value))
            return value[:cut] + str(choose.choice(JUNK))[:40] + value[cut:]
        case _:
            return choose.choice(JUNK)


def rows(seed: int) -> Iterator[object]:
    choose = random.Random(seed)
    for number in range(ROWS):
        row: object = SEEDS[number % len(SEEDS)]
        for _ in range(choose.randrange(1, 4)):
            row = damaged(row, choose)
        yield row


@pytest.mark.threat(point=6)
def test_ten_thousand_damaged_rows_load_or_are_refused_with_their_place() -> None:
    # The same rows each time, because a failure must be found again.
    loaded = refused = 0
    for number, content in enumerate(rows(seed=15), start=1):
        result = instance_of(Row(f"rows.jsonl:{number}", content))
        match result:
            case Instance():
                loaded += 1
                assert result.instance_id
                assert result.image
                json.dumps(result.extra)
            case Problem():
                refused += 1
                text = str(result)
                assert text.startswith(f"rows.jsonl:{number}: ")
                assert len(text) < 1000
                assert "\n" not in text
    assert loaded > 500
    assert refused > 500
