"""Rows are untrusted: each bad one is one line with the place, the field and what was expected."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from swe_rollout.datasets import swebench
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.types.instance import Instance
from unit.datasets.row_parts import GOOD, lines, read


def parquet(rows: list[dict[str, object]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


async def test_the_position_of_a_bad_row_is_its_line_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    data = lines(GOOD) + b"\n" + b'{"a": \n' + b"[1]\n" + b'"caf\xe9"\n' + b"\x00\xff\x13\n"
    good, broken, array, latin, binary = await read(tmp_path, "rows.jsonl", data)
    assert isinstance(good, Instance)
    assert str(broken).startswith("rows.jsonl:3: invalid JSON: Expecting value (column")
    assert (
        str(array)
        == "rows.jsonl:4: expected an object; found list; a file of one list is named .json"
    )
    assert str(latin) == "rows.jsonl:5: invalid UTF-8 at byte 4 (0xe9)"
    assert str(binary).startswith("rows.jsonl:6: invalid UTF-8")


async def test_json_that_is_nested_too_deep_is_a_problem(tmp_path: Path) -> None:
    [result] = await read(tmp_path, "rows.jsonl", b"[" * 200_000)
    assert str(result) == "rows.jsonl:1: JSON that is nested too deep"


async def test_a_number_with_too_many_digits_is_a_problem(tmp_path: Path) -> None:
    [result] = await read(tmp_path, "rows.jsonl", b'{"a": ' + b"9" * 5000 + b"}")
    assert str(result).startswith("rows.jsonl:1: invalid JSON: Exceeds the limit")


async def test_a_row_over_16_mib_is_a_problem(tmp_path: Path) -> None:
    big = GOOD | {"hints_text": "x" * (16 << 20)}
    for name, data in (
        ("rows.jsonl", lines(big)),
        ("rows.json", json.dumps([big]).encode()),
    ):
        [result] = await read(tmp_path, name, data)
        assert isinstance(result, Problem)
        assert "at most 16777216" in str(result)


async def test_the_same_rows_are_read_from_every_form_of_file(tmp_path: Path) -> None:
    row = GOOD | {"FAIL_TO_PASS": json.dumps(GOOD["FAIL_TO_PASS"])}
    plain = lines(row, row | {"instance_id": "other-1"})
    two_frames = zstandard.compress(lines(row)) + zstandard.compress(
        lines(row | {"instance_id": "other-1"})
    )
    forms = {
        "rows.jsonl": plain,
        "rows.jsonl.gz": gzip.compress(plain),
        "rows.jsonl.zst": two_frames,
        "rows.json": json.dumps([row, row | {"instance_id": "other-1"}]).encode(),
        "rows.parquet": parquet([row, row | {"instance_id": "other-1"}]),
    }
    found = [await read(tmp_path, name, data) for name, data in forms.items()]
    assert [result.instance_id for result in found[0] if isinstance(result, Instance)] == [
        "pallets__flask-5014",
        "other-1",
    ]
    assert all(results == found[0] for results in found)


async def test_a_bad_parquet_row_is_named_by_its_number(tmp_path: Path) -> None:
    data = parquet([GOOD, GOOD | {"instance_id": "b/c"}])
    good, bad = await read(tmp_path, "rows.parquet", data)
    assert isinstance(good, Instance)
    assert str(bad).startswith("rows.parquet: row 2: instance_id: expected")


async def test_a_parquet_file_without_the_columns_says_which(tmp_path: Path) -> None:
    [result] = await read(tmp_path, "rows.parquet", parquet([{"question": "?"}]))
    assert "instance_id: missing; repo: missing" in str(result)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("rows.jsonl", b"", "the file is empty"),
        ("rows.jsonl", b"\n \n", "the file has no rows"),
        ("rows.json", b"[]", "the file has no rows"),
        ("rows.json", b"5", "expected a list of rows, or one row"),
        ("rows.parquet", b"PAR1 nonsense PAR1", "not a readable Parquet file"),
        ("rows.jsonl.zst", b"not zstd", "can't be decompressed"),
        ("rows.jsonl.zst", zstandard.compress(b"x" * 999)[:-4], "can't be decompressed"),
        ("rows.jsonl.gz", gzip.compress(b"x" * 99, mtime=0)[:-9], "can't be decompressed"),
        ("rows.csv", b"a,b", "expected *.jsonl"),
    ],
)
async def test_a_file_that_has_no_rows_says_why(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    with pytest.raises(DatasetError, match=f"there are no rows in {name}") as caught:
        await read(tmp_path, name, data)
    (problem,) = caught.value.problems
    assert problem.place == name
    assert message in problem.message


async def test_a_second_row_of_the_same_instance_is_a_problem(tmp_path: Path) -> None:
    _, second = await read(tmp_path, "rows.jsonl", lines(GOOD, GOOD))
    assert str(second).startswith(
        "rows.jsonl:2: instance_id: pallets__flask-5014 is already at rows.jsonl:1"
    )


@pytest.mark.parametrize("prefix", ["", "file://"])
@pytest.mark.parametrize("absolute", [True, False])
async def test_a_path_may_be_relative_absolute_or_a_file_address(
    tmp_path: Path, prefix: str, *, absolute: bool
) -> None:
    (tmp_path / "my rows.jsonl").write_bytes(lines(GOOD))
    name = "my rows.jsonl" if not prefix else "my%20rows.jsonl"
    uri = prefix + (f"{tmp_path}/{name}" if absolute else name)
    [result] = await swebench.load(uri, base_dir=tmp_path)
    assert isinstance(result, Instance)


@pytest.mark.parametrize("uri", ["absent.jsonl", ".", "https://example.org/rows.jsonl"])
async def test_an_address_without_rows_says_how_to_write_one(tmp_path: Path, uri: str) -> None:
    with pytest.raises(DatasetError) as caught:
        await swebench.load(uri, base_dir=tmp_path)
    assert caught.value.fix
    assert caught.value.problems


@pytest.mark.threat(point=22)
@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("nowhere/deep/rows.jsonl", "the folder {base}/nowhere does not exist"),
        ("rows.jsonl", "no such file"),
        ("princeton-nlp/SWE-bench_Lite.jsonl", "the folder {base}/princeton-nlp does not exist"),
        (".", "Is a directory"),
        ("/dev/zero", "a device or a pipe"),
    ],
)
async def test_what_is_missing_is_named(tmp_path: Path, uri: str, why: str) -> None:
    with pytest.raises(DatasetError) as caught:
        await swebench.load(uri, base_dir=tmp_path)
    (problem,) = caught.value.problems
    assert why.format(base=tmp_path) in problem.message


@pytest.mark.parametrize("name", ["rows.json", "rows.parquet", "rows.jsonl.zst"])
async def test_a_binary_file_gives_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError) as caught:
        await read(tmp_path, name, bytes(range(256)).replace(b"\n", b"") * 1000)
    (problem,) = caught.value.problems
    assert len(str(problem)) < 300
