"""Keep the results of an audit, so that an interrupted audit resumes where it stopped.

The journal has one line per audited row, appended when the row is done. The quarantine file, which
lists the rows that failed a check, is written from it in one go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from swe_rollout.errors import UsageError
from swe_rollout.grading.audit import Audit
from swe_rollout.text.paths import behind_links, is_special, unused_name
from swe_rollout.types.bad_rows import MAX_LINE_BYTES, BadRow
from swe_rollout.types.instance import Instance

Key = tuple[str, str]
"""The id and digest of a row."""


@dataclass(frozen=True, slots=True)
class AuditJournal:
    """The results of audits, kept beside the quarantine file that is made from them."""

    quarantine: Path
    runs: int
    """How often the gold patch is run; results of audits with another number are ignored."""

    @property
    def path(self) -> Path:
        """The path of the journal."""
        return self.quarantine.with_name(f"{self.quarantine.name}.audited")

    def open(self) -> frozenset[Key]:
        """Open the journal for appending and return the rows that are in it.

        An incomplete last line is cut off. Raises UsageError when a file of another kind is in the
        place of the quarantine file, and OSError when the journal can't be written.
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
        """Yield the last result of each row; skip damaged lines."""
        yield from self._newest().values()

    def write_quarantine(self, rows: Collection[Key]) -> int:
        """Replace the quarantine file with the bad rows among these; return how many there are."""
        target = behind_links(self.quarantine)
        count, part = 0, unused_name(target)
        with part.open("wb") as file:
            for each in self.results():
                if each.is_bad and _key(each) in rows:
                    file.write(each.bad_row().to_line())
                    count += 1
        part.replace(target)
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
        """Refuse to overwrite a file of another kind, such as the rows themselves, or a device."""
        if is_special(self.quarantine):
            raise UsageError(
                f"{self.quarantine} is no file",
                why="the quarantine file is a file of its own",
                fix="name one: -O quarantine.jsonl",
            )
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
    """Return the keys of the rows in a journal."""
    return frozenset((each.instance_id, each.digest) for each in instances)


def _key(result: Audit) -> Key:
    return result.instance_id, result.digest
