"""Read files of rows as plain values: JSON Lines (plain, zstd, gzip), a JSON list, Parquet.

`swebench` interprets the values. Files are untrusted: whatever is wrong with a row is one `Problem`
with the row's position, and the other rows are still read.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from swe_rollout.datasets.hub_files import hub_files
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.store.bucket import read_object
from swe_rollout.text.paths import expanded, file_meant, is_special, why_missing

MAX_FILE_BYTES = 4 << 30
"""The size limit for a file after decompression."""
MAX_ROW_BYTES = 16 << 20
_TOO_BIG = f"more than {MAX_FILE_BYTES >> 30} GiB come out of it; split it"
_LFS = b"version https://git-lfs.github.com/spec/"
_ZSTD_CHUNK = 16 << 10
"""How many compressed bytes are read at a time, which bounds the output of one step."""
_GZIP_PART = 1 << 20
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w-]*/[\w.-]+(?:@[\w./-]+)?")
"""Matches `organisation/name`, optionally followed by `@` and a revision."""
_FILE_ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet", ".zst", ".gz")
_FILE_TYPES = "*.jsonl, *.jsonl.zst, *.jsonl.gz, *.json or *.parquet"


def _quiet(_: str) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its place (`rows.jsonl:17`) and its content, of any type."""

    place: str
    content: object


async def read_rows(
    uri: str, *, base_dir: Path, split: str = "", on_progress: Callable[[str], None] = _quiet
) -> tuple[Row | Problem, ...]:
    """Read every row of the file in order, with a problem in place of a bad one.

    If no such file exists, `organisation/name` means a dataset on a hub, and `split` a part of it.
    Raises DatasetError when there is neither such a file nor such a dataset, or no row in it.
    """
    if await asyncio.to_thread(is_on_hub, uri, base_dir):
        files = await asyncio.to_thread(hub_files, uri, split, on_progress)
        parts = [await read_rows(str(file), base_dir=base_dir) for file in files]
        return tuple(row for part in parts for row in part)
    data = await read_bytes(uri, base_dir)
    name = uri.rsplit("/", 1)[-1]
    if data.startswith(_LFS):
        raise DatasetError(
            f"the rows at {uri} are not here",
            [Problem(name, "", "a pointer of Git LFS, in place of the file itself")],
            fix="run `git lfs pull` in its repository, or download the file",
        )
    abandoned = threading.Event()
    rows = takewhile(lambda _: not abandoned.is_set(), _parse(name, data))
    try:
        found = await asyncio.to_thread(tuple, rows)
    finally:
        # A cancelled caller must not wait for the rest of a large file.
        abandoned.set()
    of_file = [each for each in found if isinstance(each, Problem) and each.place == name]
    if len(of_file) == len(found):
        raise DatasetError(
            f"there are no rows in {uri}",
            of_file,
            fix=f"write rows into it, or name another file ({_FILE_TYPES}); "
            "docs/how-to/datasets.md has the fields of a row",
        )
    return found


async def read_bytes(uri: str, base_dir: Path, *, field: str = "dataset.swebench.uri") -> bytes:
    """Read a dataset file: a path, a `file://` address or an object; `field` is its field in a job.

    Raises DatasetError.
    """
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)", uri)
    try:
        match scheme[0].lower() if scheme else "file":
            case "file":
                path = unquote(uri.removeprefix("file://")) if scheme else uri
                return await asyncio.to_thread(_read_local, path, base_dir)
            case "s3" | "gs" | "az":
                return await read_object(uri)
            case other:
                problem = Problem(field, "", f"{other}:// can't be read")
                raise DatasetError(
                    f"{uri} is not an address of a file of rows",
                    [problem],
                    fix="use a path, file://, s3://, gs:// or az://, organisation/name for a "
                    "dataset on the hub, or download the file first",
                )
    except FileNotFoundError as error:
        raise _no_file(field, uri, _why_missing(uri, base_dir), base_dir) from error
    except OSError as error:
        raise _no_file(field, uri, error.strerror or str(error), base_dir) from error


def _why_missing(uri: str, base_dir: Path) -> str:
    is_path = "://" not in uri
    return (is_path and why_missing(base_dir / expanded(uri))) or "no such file"


def _no_file(field: str, uri: str, why: str, base_dir: Path) -> DatasetError:
    return DatasetError(
        f"the {'rows' if field.endswith('uri') else 'file'} at {uri} can't be read",
        [Problem(field, uri, why)],
        fix=f"{_file_meant(uri, base_dir)}relative paths start at {base_dir}",
    )


def _file_meant(uri: str, base_dir: Path) -> str:
    """Return a hint at the file or name that may have been meant; empty if there is none."""
    if "://" in uri:
        return ""
    if get_close_matches(uri, ["release-pairs"]):
        return "did you mean release-pairs? "
    meant = file_meant(base_dir / expanded(uri), _FILE_ENDINGS)
    return f"did you mean {Path(uri).with_name(meant.name)}? " if meant else ""


def _read_local(name: str, base_dir: Path) -> bytes:
    path = base_dir / expanded(name)
    if is_special(path):  # a pipe may never end, and a device never does
        raise OSError("a device or a pipe; write the rows into a file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise OSError(f"the file has more than {MAX_FILE_BYTES >> 30} GiB; split it")
    return path.read_bytes()


def is_on_hub(uri: str, base_dir: Path) -> bool:
    """Return whether this names a dataset on a hub: it looks like one and no such file exists."""
    is_name = _HUB_NAME.fullmatch(uri) and not uri.lower().endswith(_FILE_ENDINGS)
    return bool(is_name) and not (base_dir / uri).exists()


def _parse(name: str, data: bytes) -> Iterator[Row | Problem]:
    if not data:
        yield Problem(name, "", "the file is empty")
        return
    try:
        data, lower = _decompressed(name.lower(), data)
    except (zstandard.ZstdError, OSError, EOFError, zlib.error) as error:
        yield Problem(name, "", f"can't be decompressed: {error}")
        return
    match lower.rsplit(".", 1)[-1]:
        case "jsonl" | "ndjson":
            yield from _json_lines(name, data)
        case "json":
            yield from _json_list(name, data)
        case "parquet":
            yield from _parquet(name, data)
        case _:
            yield Problem(
                name, "", f"unknown file type: expected {_FILE_TYPES}; convert it to one of them"
            )


def _decompressed(name: str, data: bytes) -> tuple[bytes, str]:
    """Return the decompressed content of a file, and its name without `.zst` or `.gz`."""
    if name.endswith(".zst"):
        return _unzstd(data), name.removesuffix(".zst")
    return (_gunzip(data), name.removesuffix(".gz")) if name.endswith(".gz") else (data, name)


def _unzstd(data: bytes) -> bytes:
    # A stream reader would mistake a truncated file for a shorter one.
    parts: list[bytes] = []
    size = 0
    frame = zstandard.ZstdDecompressor().decompressobj()
    for start in range(0, len(data), _ZSTD_CHUNK):
        chunk = data[start : start + _ZSTD_CHUNK]
        while chunk:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            parts.append(frame.decompress(chunk))
            size += len(parts[-1])
            chunk = frame.unused_data if frame.eof else b""
        if size > MAX_FILE_BYTES:
            raise OSError(_TOO_BIG)
    if not frame.eof:
        raise EOFError("it ends inside a frame")
    return b"".join(parts)


def _gunzip(data: bytes) -> bytes:
    # Read in pieces: a single call would allocate the whole limit at once.
    parts: list[bytes] = []
    size = 0
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        while part := stream.read(_GZIP_PART):
            parts.append(part)
            size += len(part)
            if size > MAX_FILE_BYTES:
                raise OSError(_TOO_BIG)
    return b"".join(parts)


def _json_lines(name: str, data: bytes) -> Iterator[Row | Problem]:
    found = False
    for number, line in enumerate(io.BytesIO(data), start=1):
        if line.isspace():
            continue
        found = True
        yield _json_value(f"{name}:{number}", line, limit=MAX_ROW_BYTES)
    if not found:
        yield Problem(name, "", "the file has no rows")


def _json_list(name: str, data: bytes) -> Iterator[Row | Problem]:
    whole = _json_value(name, data, limit=MAX_FILE_BYTES)
    match whole:
        case Problem():
            yield whole
        case Row(content=list() as rows) if rows:
            for number, row in enumerate(rows, start=1):
                yield Row(f"{name}: row {number}", row)
        case Row(content=list()):
            yield Problem(name, "", "the file has no rows")
        case Row(content=dict() as row):
            yield Row(f"{name}: row 1", row)
        case Row():
            yield Problem(name, "", "expected a list of rows, or one row")


def _json_value(place: str, text: bytes, *, limit: int) -> Row | Problem:
    if len(text) > limit:
        return Problem(place, "", f"a row of {len(text)} bytes; at most {limit} are read")
    try:
        return Row(place, json.loads(text.decode("utf-8-sig")))
    except UnicodeDecodeError as error:
        return Problem(
            place, "", f"invalid UTF-8 at byte {error.start} (0x{text[error.start]:02x})"
        )
    except json.JSONDecodeError as error:
        column = f"line {error.lineno} column {error.colno}" if error.lineno > 1 else error.colno
        return Problem(place, "", f"invalid JSON: {error.msg} (column {column})")
    except RecursionError:
        return Problem(place, "", "JSON that is nested too deep")
    except ValueError as error:
        return Problem(place, "", f"invalid JSON: {str(error)[:80]}")


def _parquet(name: str, data: bytes) -> Iterator[Row | Problem]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        number = 0
        for batch in file.iter_batches(batch_size=64):
            for index in range(batch.num_rows):
                number += 1
                yield _parquet_row(f"{name}: row {number}", batch.slice(index, 1))
        if not number:
            yield Problem(name, "", "the file has no rows")
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        words = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
        yield Problem(name, "", f"not a readable Parquet file: {words[:120]}")


def _parquet_row(place: str, batch: pa.RecordBatch) -> Row | Problem:
    try:
        return Row(place, batch.to_pylist()[0])
    except UnicodeDecodeError as error:
        return Problem(place, "", f"invalid UTF-8: {error.reason} at byte {error.start}")
    except (ValueError, OverflowError) as error:  # such as a time that Python can't hold
        return Problem(place, "", f"a value that can't be read: {str(error)[:80]}")
