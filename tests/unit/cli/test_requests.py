"""The requests of each verb that reads a whole job, as docs/reference/store-layout.md has them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from swe_rollout.store.objects import FolderObjects
from unit.cli.cli_parts import Cli
from unit.cli.store_parts import EPISODES

VERBS = {
    "ls": (0, "ls {0}/runs"),
    "status": (1, "status {0}/runs/demo"),
    "stats": (1, "stats {0}/runs/demo"),
    "logs": (1, "logs {0}/runs/demo"),
    "view": (1, "view {0}/runs/demo"),
    "diff": (2, "diff {0}/runs/demo {0}/again/demo"),
    "export": (1, "export {0}/runs/demo"),
}
"""How often each of them reads a record."""


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_lists_the_episodes_once_and_reads_each_record_once(
    verb: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "again").symlink_to("runs")
    count = Counter[str]()
    for name in ("read", "pages", "written_at", "folders"):
        _count(monkeypatch, name, count)
    reads, line = VERBS[verb]
    cli(*line.format(tmp_path).split())
    records = [number for name, number in count.items() if "trajectory" in name]
    listings = count.pop("pages demo/episodes")
    assert records == [reads] * len(EPISODES if reads else [])
    assert listings == max(reads, 1)
    assert sum(number for name, number in count.items() if " demo/" in name) - sum(records) <= 8


def _count(monkeypatch: pytest.MonkeyPatch, name: str, count: Counter[str]) -> None:
    real = getattr(FolderObjects, name)

    def counted(objects: FolderObjects, *arguments: str) -> object:
        count[" ".join([name, *filter(None, arguments)])] += 1
        return real(objects, *arguments)

    monkeypatch.setattr(FolderObjects, name, counted)
