"""Parse logs of `cargo test` and `cargo nextest`."""

from __future__ import annotations

from collections.abc import Iterator

from swe_rollout.grading.parsers.base import Result
from swe_rollout.grading.parsers.text import claim, lines, worst_wins
from swe_rollout.types.verdict import TestStatus

_STATUSES = {
    "ok": TestStatus.PASSED,
    "FAILED": TestStatus.FAILED,
    "ignored": TestStatus.SKIPPED,
}


@worst_wins
def cargo(log: str) -> Iterator[Result]:
    """Read `test module::name ... ok`; names with spaces are documentation's, and left out."""
    for line in lines(log):
        if not line.lstrip().startswith("test "):
            continue
        match line.split(maxsplit=5):
            case ["test", name, "...", word]:
                yield from claim(name, word, _STATUSES)
            case ["test", name, "...", "ignored,", *_]:
                yield from claim(name, "ignored", _STATUSES)
            case _:
                pass
