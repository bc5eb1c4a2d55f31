"""The page of a store's layout: every key that the code can make, and who writes it."""

from __future__ import annotations

import re
from collections.abc import Callable

from checkout import ROOT
from swe_rollout.store import layout
from swe_rollout.types.episode import EpisodeId

PACKAGE = ROOT / "swe_rollout"
PAGE = (ROOT / "docs" / "reference" / "store-layout.md").read_text("utf-8")
SHA = "5" * 64
EPISODE = EpisodeId("JOB", "INSTANCE", 7654321)
SHOWN = {
    "JOB": "<job>",
    "INSTANCE": "<instance>",
    "TRAINER": "<trainer>",
    SHA: "<sha256>",
    SHA[:16]: "<sha256:16>",
    "7654321": "<sample>",
    "7654322": "<journal>",
    "7654323": "<chunk>",
    "7654324": "<step>",
    "7654325": "<n>",
    "UNIQUE": "<id>",
    "NAME": "<name>",
}
KEYS: dict[Callable[..., str], list[tuple[object, ...]]] = {
    layout.job_key: [("JOB",)],
    layout.plan_key: [("JOB",), ("JOB", 7654325)],
    layout.owner_key: [("JOB",)],
    layout.trajectory_key: [(EPISODE,)],
    layout.log_key: [(EPISODE, SHA)],
    layout.kept_journal_key: [(EPISODE, SHA)],
    layout.chunk_key: [(EPISODE, 7654322, 7654323)],
    layout.damaged_key: [(EPISODE, "UNIQUE")],
    layout.masked_key: [(EPISODE, "UNIQUE")],
    layout.damaged_chunk_key: [(EPISODE, "UNIQUE", 7654322, 7654323)],
    layout.refills_key: [("JOB",)],
    layout.claim_key: [("JOB", "TRAINER", "INSTANCE", 7654324)],
    layout.dataset_key: [(SHA, ".jsonl")],
    layout.extension_key: [(SHA, "NAME.py")],
}
WRITERS = {
    *("store/store.py", "store/plans.py", "store/kept.py", "store/journals.py"),
    *("store/claims.py", "launcher/uploads.py"),
}
"""The modules whose keys the page explains. A new one is a reason to look at it."""


def shown(key: str) -> str:
    for value, name in SHOWN.items():
        key = key.replace(value, name)
    return key


def test_every_key_is_on_the_page_and_none_that_is_gone() -> None:
    names = {name for name in vars(layout) if name.endswith("_key")}
    assert {make.__name__ for make in KEYS} == {
        name for name in names if not name.startswith(("_", "parse_", "is_"))
    }
    made = [shown(make(*each)) for make, calls in KEYS.items() for each in calls]
    assert re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE) == made
    doc = layout.__doc__ or ""
    for key in made:
        folders = [part for part in key.split("/")[:-1] if part.islower() and part.isalpha()]
        assert all(folder in doc for folder in folders), key


def test_no_other_module_writes_to_a_store() -> None:
    call = re.compile(r"\b_?bucket\.(create|move)\(|\bcreate_object\(")
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if call.search(path.read_text("utf-8"))
    }
    assert found - {"store/bucket.py"} == WRITERS
