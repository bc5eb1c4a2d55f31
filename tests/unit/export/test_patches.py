"""Predictions for SWE-bench, and patch files, byte for byte (E9, WE6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_rollout.errors import UsageError
from swe_rollout.export.files import export
from swe_rollout.export.patches import (
    FilteredPatch,
    PatchFilter,
    patches_format,
    predictions_format,
)
from unit.export.export_parts import PATCH, failed, stream, trajectory

DROP = PatchFilter(("pyproject.toml",))


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def test_a_prediction_has_the_fields_of_swe_bench(tmp_path: Path) -> None:
    out = tmp_path / "preds.jsonl"
    await export(stream(trajectory("a"), trajectory("b")), out, predictions_format())
    assert rows(out) == [
        {"instance_id": name, "model_name_or_path": "scripted:gold", "model_patch": PATCH}
        for name in "ab"
    ]


async def test_a_filter_is_recorded_beside_what_it_dropped(tmp_path: Path) -> None:
    out = tmp_path / "preds.jsonl"
    form = predictions_format(DROP, model_name="mine")
    await export(stream(trajectory()), out, form)
    (row,) = rows(out)
    assert row["model_name_or_path"] == "mine"
    assert row["dropped_globs"] == ["pyproject.toml"]
    assert row["dropped_paths"] == ["pyproject.toml"]
    assert "pyproject" not in str(row["model_patch"])


async def test_which_sample_counts_is_never_guessed(tmp_path: Path) -> None:
    out = tmp_path / "preds.jsonl"
    records = stream(trajectory("a", 0), trajectory("a", 1))
    with pytest.raises(UsageError, match="a has several samples"):
        await export(records, out, predictions_format())
    assert not out.exists()


async def test_an_episode_that_broke_before_its_patch_is_no_prediction(tmp_path: Path) -> None:
    out = tmp_path / "preds.jsonl"
    records = stream(failed(trajectory("a")), failed(trajectory("b"), patch=PATCH))
    done = await export(records, out, predictions_format())
    assert [row["instance_id"] for row in rows(out)] == ["b"]
    ((episode, why),) = done.left_out
    assert str(episode) == "demo/a/0"
    assert "SandboxError" in why


async def test_patch_files_are_exact_and_listed(tmp_path: Path) -> None:
    out = tmp_path / "patches"
    await export(stream(trajectory("a"), trajectory("a", 1)), out, patches_format())
    assert (out / "a" / "0.patch").read_bytes() == PATCH.encode()
    index = json.loads((out / "patches.json").read_bytes())
    assert [each["file"] for each in index["patches"]] == ["a/0.patch", "a/1.patch"]
    assert index["dropped_globs"] == []


async def test_filtered_patch_files_say_so(tmp_path: Path) -> None:
    out = tmp_path / "patches"
    await export(stream(trajectory()), out, patches_format(DROP))
    index = json.loads((out / "patches.json").read_bytes())
    assert index["dropped_globs"] == ["pyproject.toml"]
    assert index["patches"][0]["dropped_paths"] == ["pyproject.toml"]
    assert (out / "a" / "0.patch").read_bytes() == DROP.apply(PATCH).text.encode()


PARTS = ["diff --git" + each for each in PATCH.split("diff --git")[1:]]


RENAMED = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
IN_A_HUNK = (
    "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,1 +1,2 @@\n"
    " diff --git a/y b/y\n+diff --git a/y b/y\n"
)
BINARY = "diff --git a/b b/b\nindex 1..2 100644\nGIT binary patch\nliteral 1\nIc${MZ\n\n"


@pytest.mark.parametrize(
    ("parts", "globs", "kept", "dropped"),
    [
        (PARTS, (), PARTS, ()),
        (PARTS, ("pyproject.toml",), PARTS[1:], ("pyproject.toml",)),
        (PARTS, ("*.toml", "test_*.py"), PARTS[1:2], ("pyproject.toml", "tests/deep/test_x.py")),
        (PARTS, ("tests/*",), PARTS[:2], ("tests/deep/test_x.py",)),
        (PARTS, ("*/x.py",), [PARTS[0], PARTS[2]], ("src/x.py",)),
        (PARTS, ("PYPROJECT.TOML", "ests/*"), PARTS, ()),
        (PARTS, ("*",), [], ("pyproject.toml", "src/x.py", "tests/deep/test_x.py")),
        ([RENAMED], ("x",), [], ("x",)),
        ([RENAMED], ("y",), [], ("y",)),
        ([IN_A_HUNK], ("y",), [IN_A_HUNK], ()),
        ([BINARY, PARTS[1]], ("b",), [PARTS[1]], ("b",)),
        ([BINARY, PARTS[1]], ("x.py",), [BINARY], ("src/x.py",)),
    ],
)
def test_globs_choose_files(
    parts: list[str], globs: tuple[str, ...], kept: list[str], dropped: tuple[str, ...]
) -> None:
    assert PatchFilter(globs).apply("".join(parts)) == FilteredPatch("".join(kept), dropped)
