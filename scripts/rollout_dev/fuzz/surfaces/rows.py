"""Datasets: files of rows, rows of every format, and Harbor's task folders."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from rollout_dev.fuzz.surface import promise, split_head, surface, with_head
from rollout_dev.fuzz.surfaces import real
from swe_rollout.datasets import row_files
from swe_rollout.datasets.formats import FORMATS
from swe_rollout.datasets.harbor_files import PlainFile, TaskFolder
from swe_rollout.datasets.harbor_task import instance_of as harbor_instance
from swe_rollout.datasets.row_files import Row
from swe_rollout.datasets.source import is_instance_id
from swe_rollout.datasets.swebench import AUTO, instance_of
from swe_rollout.errors import Problem
from swe_rollout.types.instance import Instance

_ROW_FILES = {
    "swe-bench": "swebench/*.jsonl",
    "swe-smith": "rows/swe-smith/*.json",
    "swe-rebench-v2": "rows/swe-rebench-v2/*.json",
    "swe-bench-live": "rows/swe-bench-live/*.jsonl",
    "multi-swe-bench": "rows/multi-swe-bench/*.jsonl",
}
_MOST_OF_A_FILE = 8


def _rows() -> Iterator[tuple[str, object]]:
    for line in (real.OWN / "rows.jsonl").read_text().splitlines():
        name, row = json.loads(line)
        yield name, row
    for name, pattern in _ROW_FILES.items():
        for data in real.files(real.DATA, pattern):
            try:
                found = json.loads(data)
            except ValueError:
                found = [json.loads(line) for line in data.splitlines()[:_MOST_OF_A_FILE] if line]
            yield from ((name, row) for row in (found if isinstance(found, list) else [found]))


def _row_samples() -> Sequence[bytes]:
    made = []
    for name, row in _rows():
        body = json.dumps(row).encode()
        if len(body) <= real.MOST_BYTES:
            made += [with_head(name, body), with_head(AUTO, body)]
    return made


def _check(found: Instance | Problem) -> None:
    match found:
        case Problem():
            promise(len(str(found)) < 1 << 16, "a problem as long as what it is about")
            promise(
                "\0" not in str(found) and "\x1b" not in str(found), "a problem steers terminals"
            )
        case Instance():
            promise(is_instance_id(found.instance_id), "a row names a task that has no name")
            promise(found.digest, "a task without a digest")


def _read_row(data: bytes) -> None:
    head, body = split_head(data)
    try:
        value: object = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return
    _check(instance_of(Row("rows.jsonl:1", value), head if head in FORMATS else AUTO))


ROWS = surface("dataset-rows", _read_row, samples=_row_samples)


def _file_samples() -> Sequence[bytes]:
    rows = [row for _, row in _rows()][:8]
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    buffer = io.BytesIO()
    table = pa.Table.from_pylist([{"a": "x", "b": [1, 2], "c": {"d": None}}, {"a": None, "b": []}])
    pq.write_table(table, buffer)
    return [
        with_head("rows.jsonl", lines),
        with_head("rows.json", json.dumps(rows[:2]).encode()),
        with_head("rows.jsonl.zst", zstandard.ZstdCompressor().compress(lines[:4000])),
        with_head("rows.jsonl.gz", gzip.compress(lines[:4000], mtime=0)),
        with_head("rows.parquet", buffer.getvalue()),
    ]


def _read_file(data: bytes) -> None:
    head, body = split_head(data)
    for number, each in enumerate(row_files._parse(head, body)):  # noqa: SLF001 - its threads aside
        promise(isinstance(each, Row | Problem), "something else than a row or a problem")
        if isinstance(each, Row) and number < _MOST_OF_A_FILE:
            _check(instance_of(each))


FILES = surface("dataset-files", _read_file, samples=_file_samples)


def _harbor_samples() -> Sequence[bytes]:
    tasks = real.ROOT / "tests" / "e2e" / "harbor_tasks"
    made = []
    for folder in sorted(each.parent for each in tasks.glob("**/task.toml")):
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        texts = {
            path.relative_to(folder).as_posix(): path.read_text(errors="replace") for path in paths
        }
        made.append(json.dumps(texts).encode())
    return made


def _read_task(data: bytes) -> None:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    files = {
        name: PlainFile(text.encode(errors="surrogatepass"), executable=False)
        for name, text in value.items()
        if isinstance(text, str)
    }
    _check(harbor_instance(TaskFolder("task", files), image="", keep=()))


HARBOR = surface("harbor-tasks", _read_task, samples=_harbor_samples)
