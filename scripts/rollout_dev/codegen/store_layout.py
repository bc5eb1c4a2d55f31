"""Write the reference page of a store: every key, who writes it, when, and on which condition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rollout_dev.codegen.reference import table
from swe_rollout.store import layout
from swe_rollout.types.episode import EpisodeId

_INTRO: Final = """\
<!-- Made by scripts/generate; change scripts/rollout_dev/codegen/store_layout.py instead. -->
# Store layout

What lies in a store (`spec.store.uri`), whether it is a folder or a bucket. Keys are relative to
it. Names of jobs, instances and trainers are one path segment each: letters, digits and `. _ + -`.

Nothing is ever overwritten. *Created once* is a conditional write: of those that write a key at the
same time, one is first, and the others read what it wrote. S3 and its relatives do it by
`If-None-Match: *`, Google by generation 0, folders by a hard link from a staged file. The first
write tries whether the store keeps to it; one that does not is refused
([stores](../how-to/stores.md)).
"""
_READ: Final = """\
## Read it without this package

A trajectory is JSON, compressed by zstd; [its fields](trajectory.md) are stable within one
number of `schema`. To know what is committed, list `<job>/episodes/`: a trajectory that is there is
complete. `plan.json` and the highest of `plans/` say how many there will be. Objects of other names
are left alone, and `swe-rollout status` names those among the episodes.

To copy a job, copy its folder; to delete it, delete its folder. `datasets/` and `extensions/` hold
what several jobs may share, each under the digest of its content, so that a copy needs them too.
"""
JOB, INSTANCE, SAMPLE, TRAINER = "JOB", "INSTANCE", 7654321, "TRAINER"
_EPISODE: Final = EpisodeId(JOB, INSTANCE, SAMPLE)
_SHA: Final = "5" * 64
_JOURNAL, _CHUNK, _STEP, _REVISION = 7654322, 7654323, 7654324, 7654325
_SHOWN: Final = {
    JOB: "<job>",
    INSTANCE: "<instance>",
    TRAINER: "<trainer>",
    _SHA: "<sha256>",
    _SHA[:16]: "<sha256:16>",
    str(SAMPLE): "<sample>",
    str(_JOURNAL): "<journal>",
    str(_CHUNK): "<chunk>",
    str(_STEP): "<step>",
    str(_REVISION): "<n>",
    "UNIQUE": "<id>",
    "NAME": "<name>",
}
ONCE: Final = "created once"
MOVED: Final = "moved here"


@dataclass(frozen=True, slots=True)
class Key:
    """A kind of object."""

    function: str
    """Of `store.layout`, which makes its key."""
    key: str
    content: str
    writer: str
    when: str
    how: str
    home: str
    """The module that writes it, below `swe_rollout`."""


KEYS: Final = (
    Key(
        "job_key",
        layout.job_key(JOB),
        "the resolved job, as YAML",
        "whoever begins the job: `run`, a worker, a session",
        "after the plan, when the job begins; it stays as it first ran",
        ONCE,
        "store/store.py",
    ),
    Key(
        "plan_key",
        layout.plan_key(JOB),
        "the tasks with digests of their content, the samples, the spec",
        "whoever begins the job",
        "before the first episode",
        ONCE,
        "store/store.py",
    ),
    Key(
        "plan_key",
        layout.plan_key(JOB, _REVISION),
        "the plan after the job has grown, from 2 on; the highest one counts",
        "whoever begins the job with more tasks or samples",
        "before the first new episode",
        ONCE,
        "store/store.py",
    ),
    Key(
        "owner_key",
        layout.owner_key(JOB),
        "the cluster and namespace that the job belongs to",
        "the first worker on a cluster",
        "when the job begins there; never for a job of `run` alone",
        ONCE,
        "store/owner.py",
    ),
    Key(
        "trajectory_key",
        layout.trajectory_key(_EPISODE),
        "one committed episode",
        "whoever played it",
        "when it has ended and was graded, or was masked after its last attempt",
        ONCE,
        "store/store.py",
    ),
    Key(
        "log_key",
        layout.log_key(_EPISODE, _SHA),
        "the whole log of a test run, compressed; named by its content",
        "whoever graded the episode",
        "before the trajectory that names it",
        ONCE,
        "store/test_logs.py",
    ),
    Key(
        "kept_journal_key",
        layout.kept_journal_key(_EPISODE, _SHA),
        "the journal of a committed episode, for `fork`; named by its content",
        "whoever played it, if `spec.store.keepJournals` says so",
        "before the trajectory that names it",
        ONCE,
        "store/kept_journals.py",
    ),
    Key(
        "chunk_key",
        layout.chunk_key(_EPISODE, _JOURNAL, _CHUNK),
        "a part of the journal of an episode that runs; journals count from 1, chunks from 0",
        "whoever plays it, unless `spec.retry.resume` is `never`",
        "during the episode; deleted when it is committed",
        ONCE,
        "store/journals.py",
    ),
    Key(
        "damaged_key",
        layout.damaged_key(_EPISODE, "UNIQUE"),
        "a trajectory that can't be read",
        "`run --rerun-damaged`, `set_aside_damaged()`",
        "before its episode is played again",
        MOVED,
        "store/store.py",
    ),
    Key(
        "damaged_chunk_key",
        layout.damaged_chunk_key(_EPISODE, "UNIQUE", _JOURNAL, _CHUNK),
        "a chunk of a journal that can't be read",
        "whoever goes on with the episode",
        "before it begins anew",
        MOVED,
        "store/journals.py",
    ),
    Key(
        "refills_key",
        layout.refills_key(JOB),
        "how often a failed sample is replaced",
        "a trainer's `stream(refills=…)`",
        "when the stream is first opened",
        ONCE,
        "store/store.py",
    ),
    Key(
        "claim_key",
        layout.claim_key(JOB, TRAINER, INSTANCE, _STEP),
        "one step of what a trainer did with a group: claimed, trained, skipped, released",
        "the trainer that reads the groups",
        "at each such step, numbered from 1",
        ONCE,
        "store/claims.py",
    ),
    Key(
        "dataset_key",
        layout.dataset_key(_SHA, ".jsonl"),
        "rows that were in memory or in a local file; the ending is the file's",
        "`launch`, `RolloutJob.from_rows(…)`",
        "before the job is created or begun",
        ONCE,
        "launcher/uploads.py",
    ),
    Key(
        "extension_key",
        layout.extension_key(_SHA, "NAME.py"),
        "user code that travels with a job; a bundle of tools ends in `.bundle`",
        "`--with FILE.py`, `files=[…]`, bundles in `spec.agent.tools`",
        "before the job is created or begun",
        ONCE,
        "launcher/uploads.py",
    ),
)


def store_layout_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    rows = (
        (f"`{_shown(each.key)}`", each.content, each.writer, each.when, each.how) for each in KEYS
    )
    yield from table(("key", "content", "written by", "when", "how"), rows)
    yield _READ.rstrip()


def _shown(key: str) -> str:
    for value, name in _SHOWN.items():
        key = key.replace(value, name)
    return key
