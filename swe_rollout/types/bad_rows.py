"""Rows that failed a check: the lines of a quarantine file.

`audit` writes such a file, and a job's dataset reads it.

The file is JSON Lines with one line per bad row and the evidence against it. A row is identified by
its id and the digest of its content, so an old finding does not hide a row that has changed since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from swe_rollout.types.verdict import TestStatus

SCHEMA: Final = 1
MAX_LINE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One check that a row failed, with the evidence."""

    check: str
    """The name of the check, such as `gold` or `base`."""
    message: str
    statuses: dict[str, TestStatus] = field(default_factory=dict)
    """The statuses of some tests that differ from what the row expects."""
    log_tail: str = ""
    """The end of the run's log."""


@dataclass(frozen=True, slots=True)
class GoldTimes:
    """Seconds that the tests took with the gold patch."""

    min_s: float
    median_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class BadRow:
    """One line of a quarantine file."""

    instance_id: str
    digest: str
    """The digest of the row's content."""
    findings: tuple[Finding, ...]
    flaky: tuple[str, ...] = ()
    """Tests whose status differed among runs of the gold patch."""
    gold: GoldTimes | None = None
    """None if no tests ran with the gold patch."""
    software: str = ""
    """The version that wrote the line."""
    schema: int = SCHEMA

    @property
    def reason(self) -> str:
        """The checks that the row failed, such as `base, skip`."""
        return ", ".join(dict.fromkeys(each.check for each in self.findings)) or "unnamed"

    def to_line(self) -> bytes:
        """Return the line with its line end; control characters are escaped."""
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> BadRow:
        """Read a line. Raises ValueError, which says what is wrong."""
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
        try:
            version = msgspec.json.decode(line, type=_Version).schema
            if version != SCHEMA:
                raise ValueError(
                    f"expected schema {SCHEMA}, found {version}; a newer swe-rollout may have "
                    "written it"
                )
            return msgspec.json.decode(line, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"no line of a quarantine file: {error}") from error


class _Version(msgspec.Struct):
    schema: int
