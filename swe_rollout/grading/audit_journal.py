"""Keep the results of an audit, so that one that was interrupted goes on where it was.

The journal has a line for each row that was audited, appended when the row is done. The quarantine
file is written from it: the rows that failed a check, all at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from swe_rollout.errors import UsageError
from swe_rollout.grading.audit import Audit
from swe_rollout.types.bad_rows import MAX_LINE_BYTES, BadRow
from swe_rollout.types.instance import Instance

Key = tuple[str, str]
"""The id and the digest of a row."""


@dataclass(frozen=True, slots=True)
class AuditJournal:
    """The results of audits beside the quarantine file that is made of them."""

    quarantine: Path
    runs: int
    """How often the gold patch is run; results of audits with another number do not count."""

    @property
    def path(self) -> Path:
        """The journal's own file."""
        return self.quarantine.with_name(f"{self.quarantine.name}.audited")

    def open(self) -> frozenset[Key]:
        """Make the journal ready and return the rows that are in it.

        A line that was not written to its end is cut off. Raises UsageError when the place of the
        quarantine file has another file, and OSError when the journal can't be written.
        """
        self._require_own()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        return frozenset(self._newest())

    def add(self, result: Audit) -> None:
        """Append a result. Raises OSError."""
        line = msgspec.json.encode(result) + b"\n"
        with self.path.open("ab") as file:
            file.write(line)

    def results(self) -> Iterator[Audit]:
        """Yield each result once, the last one of each row; damaged lines are passed over."""
        yield from self._newest().values()

    def write_quarantine(self, rows: Collection[Key]) -> int:
        """Write the bad ones of these rows, in place of the file that is there; return how many."""
        count, part = 0, self.quarantine.with_name(f"{self.quarantine.name}.part")
        with part.open("wb") as file:
            for each in self.results():
                if each.is_bad and _key(each) in rows:
                    file.write(each.bad_row().to_line())
                    count += 1
        part.replace(self.quarantine)
        return count

    def _newest(self) -> dict[Key, Audit]:
        found: dict[Key, Audit] = {}
        for line in self.path.read_bytes().split(b"\n"):
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                result = msgspec.json.decode(line[:MAX_LINE_BYTES], type=Audit)
                if result.runs == self.runs:
                    found.pop(_key(result), None)
                    found[_key(result)] = result
        return found

    def _require_own(self) -> None:
        """Never write over a file of another kind, such as the rows themselves."""
        try:
            with self.quarantine.open("rb") as file:
                line = file.readline(MAX_LINE_BYTES + 1)
        except FileNotFoundError:
            return
        try:
            if line.strip():
                BadRow.of_line(line)
        except ValueError as error:
            raise UsageError(
                f"{self.quarantine} is no quarantine file",
                why=str(error),
                fix="name another file: -O quarantine.jsonl",
            ) from error


def keys_of(instances: Collection[Instance]) -> frozenset[Key]:
    """Return what names the rows in a journal."""
    return frozenset((each.instance_id, each.digest) for each in instances)


def _key(result: Audit) -> Key:
    return result.instance_id, result.digest
