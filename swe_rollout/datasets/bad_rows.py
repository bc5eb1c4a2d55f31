"""Leave out the rows that an audit has found to be bad."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swe_rollout.datasets.row_files import read_bytes
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.types.bad_rows import BadRow
from swe_rollout.types.instance import Instance

_NAMED = 5
_MOST_PROBLEMS = 20
"""The most problems reported for a file; a file of another kind has one in each line."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """The tasks that are not in quarantine, and what was left out."""

    kept: tuple[Instance, ...]
    left_out: Mapping[str, str]
    """The checks that each row failed, by the id of the row."""
    changed: tuple[str, ...] = ()
    """Ids of tasks that are kept because their rows have changed since the audit."""

    def notes(self, name: str) -> Iterator[str]:
        """Describe for people what was left out; `name` is the name of the file."""
        if self.left_out:
            reasons = Counter(self.left_out.values())
            listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(_NAMED))
            total = len(self.kept) + len(self.left_out)
            yield (
                f"quarantine: {name} leaves out {len(self.left_out)} of {total} tasks ({listed}): "
                f"{_names(tuple(self.left_out))}"
            )
        if self.changed:
            yield (
                f"quarantine: {len(self.changed)} tasks have changed since {name} was written, "
                f"and are kept: {_names(self.changed)}"
            )


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The content of a quarantine file."""

    reasons: Mapping[tuple[str, str], str]
    """The checks that each row failed, by the id and digest of the row."""

    @classmethod
    async def load(cls, uri: str, *, base_dir: Path) -> Quarantine:
        """Read the file. Raises DatasetError, which shows the first invalid lines."""
        data = await read_bytes(uri, base_dir, field="dataset.quarantine")
        return await asyncio.to_thread(cls.of, data, uri.rsplit("/", 1)[-1])

    @classmethod
    def of(cls, data: bytes, name: str) -> Quarantine:
        """Parse the content of a file. Raises DatasetError, which shows the first invalid lines."""
        reasons, problems = dict[tuple[str, str], str](), list[Problem]()
        for number, line in enumerate(data.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                row = BadRow.of_line(line)
            except ValueError as error:
                problems.append(Problem(f"{name}:{number}", "", str(error)))
                if len(problems) == _MOST_PROBLEMS:
                    break
            else:
                reasons[row.instance_id, row.digest] = row.reason
        if problems:
            raise DatasetError(
                f"the quarantine file {name} can't be read",
                problems,
                fix="correct or remove these lines, or write it anew with `swe-rollout audit`",
            )
        return cls(reasons)

    def sort(self, instances: Sequence[Instance]) -> Sorted:
        """Leave out the tasks that are in quarantine."""
        known = {name for name, _ in self.reasons}
        kept, left_out, changed = list[Instance](), dict[str, str](), list[str]()
        for each in instances:
            name = each.instance_id
            # A digest takes a moment, so it is computed only for ids with a finding.
            reason = self.reasons.get((name, each.digest)) if name in known else None
            if reason is not None:
                left_out[name] = reason
                continue
            kept.append(each)
            if name in known:
                changed.append(name)
        return Sorted(tuple(kept), left_out, tuple(changed))


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
