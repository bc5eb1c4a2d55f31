"""The dataset source `swebench`: instances from rows of SWE-bench and datasets modelled on it.

`swe-rollout datasets rows` writes such rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from swe_rollout.datasets.formats import FORMATS, recognised
from swe_rollout.datasets.row_fields import Fault, WrongRowError, columns_of, problem_of
from swe_rollout.datasets.row_files import Row, read_rows
from swe_rollout.datasets.source import paced
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.types.instance import Instance

AUTO = "auto"
"""Recognise the format of each row by its columns."""


async def load(
    uri: str,
    *,
    base_dir: Path,
    format: str = AUTO,  # noqa: A002 - the name in job files
    split: str = "",
    log_parser: str | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[Instance | Problem, ...]:
    """Return an instance for every row, with a problem in place of a bad one, in file order.

    `format` is the name of a row format, and `split` the part of a dataset on a hub. `log_parser`
    overrides the parsers that rows name, which may then be unknown here. Raises DatasetError for an
    unknown format and when there are no rows.
    """
    if format not in (AUTO, *FORMATS):
        known = ", ".join((AUTO, *FORMATS))
        problem = Problem("dataset.swebench.format", format, f"no such format; known are {known}")
        raise DatasetError(f"there is no row format {format}", [problem])
    rows = await read_rows(uri, base_dir=base_dir, split=split, on_progress=on_progress)
    places: dict[str, str] = {}
    results: list[Instance | Problem] = []
    async for row in paced(rows):
        result = row if isinstance(row, Problem) else instance_of(row, format, log_parser)
        if isinstance(row, Row) and isinstance(result, Instance):
            first = places.setdefault(result.instance_id, row.place)
            if first != row.place:
                duplicate = Fault("instance_id", f"{result.instance_id} is already at {first}")
                result = problem_of(row, [duplicate])
        results.append(result)
    return tuple(results)


def instance_of(row: Row, name: str = AUTO, log_parser: str | None = None) -> Instance | Problem:
    """Make the instance of a row in the named format, or in the one that its columns indicate."""
    try:
        columns = columns_of(row.content)
        if log_parser is not None:
            columns = _without_parser(columns)
        made = FORMATS[name if name != AUTO else recognised(columns)](columns)
    except WrongRowError as error:
        return problem_of(row, error.faults)
    return made if log_parser is None else replace(made, log_parser=log_parser)


def _without_parser(columns: dict[str, object]) -> dict[str, object]:
    """Leave out the parser that a row names, which may be unknown here."""
    kept = {name: value for name, value in columns.items() if name != "log_parser"}
    match kept.get("install_config"):
        case dict() as config:
            kept["install_config"] = {**config, "log_parser": "pytest"}
        case _:
            pass
    return kept
