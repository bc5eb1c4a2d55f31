"""Upload local inputs to the job's store: rows, files of user code, bundles of tools.

Objects are named by the digest of their content, so launching the same job again reuses them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pydantic import ValidationError

from swe_rollout.errors import DatasetError, Problem, UsageError
from swe_rollout.spec.agent import ToolUse
from swe_rollout.spec.dataset import SwebenchDataset
from swe_rollout.spec.job import ExtensionFile, RolloutJob
from swe_rollout.store.bucket import create_object
from swe_rollout.store.layout import dataset_key, extension_key
from swe_rollout.text.paths import expanded, why_missing

MAX_FILE_BYTES = 1 << 20
_LOCAL = "file://"
_BUNDLE = "bundle"


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows and their address in the store."""

    uri: str
    data: bytes

    async def put(self) -> None:
        """Write the object unless it exists. Raises UnreachableError."""
        await create_object(self.uri, self.data)


def rows_of(rows: Iterable[Mapping[str, object]], *, store_uri: str) -> LocalRows:
    """Format the rows as JSON Lines. Raises DatasetError with all their problems."""
    rows = _listed(rows)
    found = list(_lines(rows))
    problems = [line for line in found if isinstance(line, Problem)]
    if problems:
        raise DatasetError(
            f"{len(problems)} of {len(rows)} rows can't be read",
            problems,
            fix="correct these rows; docs/how-to/datasets.md has the fields of a row",
        )
    data = "".join(line for line in found if isinstance(line, str)).encode()
    return _object(data, ".jsonl", store_uri)


def _listed(rows: Iterable[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
    """Return the rows as a list; a generator can be read only once."""
    # A data frame would be a list of the names of its columns.
    if isinstance(rows, Mapping | str) or hasattr(rows, "columns"):
        raise DatasetError(
            "rows are no list",
            [Problem("rows", "", f"expected a list of rows, found {type(rows).__name__}")],
            fix="put the row into a list: [row]; a data frame has frame.to_dict('records'), and a "
            "file of rows is named in a job file",
        )
    if not (found := [*(rows or ())]):
        raise DatasetError(
            "there are no rows",
            [Problem("rows", "", "the list is empty")],
            fix="give at least one row; a filter may have left none",
        )
    return found


async def local_rows(
    dataset: SwebenchDataset, *, base_dir: Path, store_uri: str
) -> LocalRows | None:
    """Return rows that workers can't read themselves: from a local file or a dataset on a hub.

    Returns None for an object in a store. Raises DatasetError if they can't be read.
    """
    from swe_rollout.datasets.row_fields import plain
    from swe_rollout.datasets.row_files import Row, is_on_hub, read_rows

    if not is_on_hub(dataset.uri, base_dir):
        return rows_in_file(dataset.uri, base_dir=base_dir, store_uri=store_uri)
    found = await read_rows(dataset.uri, base_dir=base_dir, split=dataset.split)
    if problems := [row for row in found if isinstance(row, Problem)]:
        raise DatasetError(f"{len(problems)} rows of {dataset.uri} can't be read", problems)
    contents = [plain(row.content) for row in found if isinstance(row, Row)]
    data = "".join(f"{json.dumps(content)}\n" for content in contents).encode()
    return _object(data, ".jsonl", store_uri)


def quarantine_in_file(uri: str, *, base_dir: Path, store_uri: str) -> LocalRows | None:
    """Return the unchanged bytes of a local quarantine file; None for an object in a store.

    Raises DatasetError, listing each invalid line, if the file can't be read.
    """
    from swe_rollout.datasets.bad_rows import Quarantine

    field = "spec.dataset.quarantine"
    found = rows_in_file(uri, base_dir=base_dir, store_uri=store_uri, field=field)
    if found is not None:
        Quarantine.of(found.data, uri.rsplit("/", 1)[-1])
    return found


def rows_in_file(
    uri: str, *, base_dir: Path, store_uri: str, field: str = "spec.dataset.swebench.uri"
) -> LocalRows | None:
    """Read a local file unchanged; return None for an object in a store. Raises DatasetError."""
    if "://" in uri and not uri.startswith(_LOCAL):
        return None
    name = unquote(uri.removeprefix(_LOCAL)) if uri.startswith(_LOCAL) else uri
    path = base_dir / expanded(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        problem = Problem(field, uri, str(error.strerror))
        raise DatasetError(
            f"the file at {uri} can't be read", [problem], fix=f"relative paths start at {base_dir}"
        ) from error
    suffix = re.search(r"\.[a-z]+(\.zst|\.gz)?$", path.name.lower())
    return _object(data, suffix[0] if suffix else "", store_uri)


def _lines(rows: Sequence[Mapping[str, object]]) -> Iterator[str | Problem]:
    """Yield a line for each row, or its problem."""
    from swe_rollout.datasets.row_files import Row
    from swe_rollout.datasets.swebench import instance_of

    for index, row in enumerate(rows):
        place = f"rows[{index}]"
        try:
            line = json.dumps(dict(row), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            yield Problem(place, "", f"not plain JSON: {error}")
            continue
        record = instance_of(Row(place, json.loads(line)))
        yield record if isinstance(record, Problem) else f"{line}\n"


def _object(data: bytes, suffix: str, store_uri: str) -> LocalRows:
    if store_uri.startswith(_LOCAL):
        # Relative dataset paths start at the job file, store paths at the working directory.
        store_uri = f"{_LOCAL}{Path(store_uri.removeprefix(_LOCAL)).absolute()}"
    key = dataset_key(hashlib.sha256(data).hexdigest(), suffix)
    return LocalRows(f"{store_uri}/{key}", data)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of user code on this machine, and its entry in the spec."""

    entry: ExtensionFile
    code: bytes

    async def put(self, store_uri: str) -> None:
        """Write the file to the store unless it exists. Raises UnreachableError."""
        key = extension_key(self.entry.sha256, self.entry.name)
        await create_object(f"{store_uri}/{key}", self.code)


def read_files(paths: Sequence[str | Path]) -> tuple[LocalFile, ...]:
    """Read files of user code. Raises UsageError if one can't travel with a job."""
    if isinstance(paths, str | Path):
        raise UsageError("files are no list", fix=f"put it into a list: [{str(paths)!r}]")
    return tuple(read_file(Path(path)) for path in paths)


def read_file(path: Path) -> LocalFile:
    """Read a file of user code. Raises UsageError if it can't travel with a job."""
    try:
        with path.open("rb") as file:
            code = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{path} can't be read",
            why=why_missing(path) or str(error.strerror),
            fix=f"name a Python file that exists; relative paths start at {Path.cwd()}",
        ) from error
    if len(code) > MAX_FILE_BYTES:
        raise UsageError(
            f"{path} is too large to travel with a job",
            why=f"it has more than {MAX_FILE_BYTES >> 20} MiB",
            fix="install the package in the worker's image, and name its parts as module:attr",
        )
    try:
        compile(code, str(path), "exec", dont_inherit=True)
        entry = ExtensionFile(name=path.name, sha256=hashlib.sha256(code).hexdigest())
    except (SyntaxError, ValueError) as error:
        is_name = isinstance(error, ValidationError)
        raise UsageError(
            f"{path} is no Python module",
            why="its name is no Python name ending in .py" if is_name else str(error),
            fix="name it like my_extensions.py" if is_name else f"python {path} shows more",
        ) from error
    return LocalFile(entry, code)


def name_files(job: RolloutJob, files: Sequence[LocalFile]) -> RolloutJob:
    """Add the files to the job's spec, replacing those of the same name."""
    names = {file.entry.name for file in files}
    kept = tuple(entry for entry in job.spec.extensions if entry.name not in names)
    entries = (*kept, *(file.entry for file in files))
    return job.with_spec(extensions=entries)


def pack_bundles(job: RolloutJob, *, base_dir: Path) -> tuple[RolloutJob, tuple[LocalFile, ...]]:
    """Pack each folder that a tool `{use: bundle, with: {path: …}}` names, under `base_dir`.

    Returns the job with the digests of the bundles, and the files to put into its store. If there
    is no such folder, an existing digest is kept. Raises UsageError for a folder that is not a
    bundle.
    """
    packed: dict[str, LocalFile] = {}
    tools = tuple(_packed(use, base_dir, packed) for use in job.spec.agent.tools)
    if not packed:
        return job, ()
    named = job.with_spec(agent=job.spec.agent.model_copy(update={"tools": tools}))
    files = tuple(packed.values())
    return name_files(named, files), files


def _packed(use: ToolUse, base_dir: Path, packed: dict[str, LocalFile]) -> ToolUse:
    path = use.with_.get("path")
    if use.use != _BUNDLE or not isinstance(path, str):
        return use
    from swe_rollout.agent.tools.bundle.archive import SUFFIX, pack

    folder = (base_dir / expanded(path)).resolve()
    if not folder.is_dir():
        if "sha256" in use.with_:
            return use
        what, fix = f"there is no bundle of tools at {path}", f"relative paths start at {base_dir}"
        raise UsageError(what, why=f"{folder} is no folder", fix=fix)
    data = pack(folder)
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"{folder.name}{SUFFIX}"
    if packed.setdefault(name, LocalFile(_entry(name, sha256), data)).entry.sha256 != sha256:
        what = f"two bundles of tools are named {folder.name}"
        raise UsageError(what, fix="rename one of the folders")
    return use.model_copy(update={"with_": {**use.with_, "sha256": sha256}})


def _entry(name: str, sha256: str) -> ExtensionFile:
    try:
        return ExtensionFile(name=name, sha256=sha256)
    except ValueError as error:
        raise UsageError(
            f"a bundle can't be named {name}", fix="name its folder with letters, digits, - and _"
        ) from error
