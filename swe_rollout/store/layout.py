"""The layout of a store: build and parse the key of each object. Pure; no I/O.

<job>/job.yaml                                            the resolved job, as it first ran
<job>/plan.json                                           its tasks, samples and spec
<job>/plans/<n>.json                                      the plan after it grew, from 2 on
<job>/owner.json                                          the cluster and namespace it belongs to
<job>/episodes/<instance>/<sample>/trajectory.json.zst    one committed episode
<job>/episodes/<instance>/<sample>/test-<id>.log.zst      the whole log of its test run
<job>/episodes/<instance>/<sample>/journal-<id>.msgpack.zst    what forks of it begin from
<job>/journals/<instance>/<sample>/<n>/<chunk>.msgpack.zst    journal n of an episode that runs
<job>/damaged/<instance>/<sample>/<id>                    a damaged one that was moved aside
<job>/masked/<instance>/<sample>/<id>                     a masked one that was run again
<job>/refills.json                                        how often a failed sample is replaced
<job>/consumed/<trainer>/<instance>/<n>.json              what a trainer did with a group, step n
datasets/<sha256>.jsonl                                   rows launched from memory or a file
extensions/<sha256>/<name>.py                             user code that travels with a job
extensions/<sha256>/<name>.bundle                         a bundle of tools that does
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import NamedTuple, Self

from swe_rollout.errors import UsageError
from swe_rollout.types.episode import EpisodeId

TRAJECTORY = "trajectory.json.zst"

_NAME = r"[A-Za-z0-9._+-]+"
_COUNT = r"(?:0|[1-9][0-9]{0,8})"
_NUMBER = r"[1-9][0-9]{0,8}"
_SAMPLE = rf"(?P<instance>{_NAME})/(?P<sample>{_COUNT})"
_EPISODE_KEY = re.compile(rf"(?P<job>[^/]+)/episodes/{_SAMPLE}/{re.escape(TRAJECTORY)}")
_CHUNK_KEY = re.compile(
    rf"[^/]+/journals/{_SAMPLE}/(?P<journal>{_NUMBER})/(?P<chunk>{_COUNT})\.msgpack\.zst"
)
_LOG_KEY = re.compile(rf"[^/]+/episodes/{_SAMPLE}/test-[0-9a-f]{{16}}\.log\.zst")
_KEPT_KEY = re.compile(rf"[^/]+/episodes/{_SAMPLE}/journal-[0-9a-f]{{16}}\.msgpack\.zst")
_CLAIM_KEY = re.compile(rf"[^/]+/consumed/[^/]+/(?P<instance>{_NAME})/(?P<number>{_NUMBER})\.json")
_PLAN_KEY = re.compile(rf"[^/]+/plans/(?P<revision>{_NUMBER})\.json")


class ChunkKey(NamedTuple):
    """The position of a chunk among the journals of a job."""

    instance: str
    sample: int
    journal: int
    chunk: int


def segment(name: str) -> str:
    """Return `name` if it is a single safe path segment. Raises UsageError otherwise."""
    if not re.fullmatch(_NAME, name) or name in (".", ".."):
        better = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip(".-") or "my-name"
        raise UsageError(
            f"{name!r} can't be the name of a folder in a store",
            why="such names consist of letters, digits and . _ + -",
            fix=f"rename it, such as to {better}",
        )
    return name


def _folder(episode: EpisodeId, kind: str) -> str:
    """Return the folder of an episode's objects of one kind."""
    return f"{segment(episode.job)}/{kind}/{segment(episode.instance)}/{episode.sample}"


def job_key(job: str) -> str:
    """Return the key of the resolved job, as YAML."""
    return f"{segment(job)}/job.yaml"


def plan_key(job: str, revision: int = 1) -> str:
    """Return the key of the plan, as JSON; each growth of the job adds a revision."""
    return f"{segment(job)}/plan.json" if revision == 1 else f"{plans_prefix(job)}/{revision}.json"


def plans_prefix(job: str) -> str:
    """Return the folder of the plan's revisions after the first."""
    return f"{segment(job)}/plans"


def parse_plan_key(key: str) -> int | None:
    """Return the revision of the plan at `key`, or None for any other object."""
    match = _PLAN_KEY.fullmatch(key)
    return None if match is None else int(match["revision"])


def owner_key(job: str) -> str:
    """Return the key of the job's owner, as JSON."""
    return f"{segment(job)}/owner.json"


def episodes_prefix(job: str) -> str:
    """Return the folder of all committed episodes of a job."""
    return f"{segment(job)}/episodes"


def trajectory_key(episode: EpisodeId) -> str:
    """Return the key under which the episode is committed."""
    return f"{_folder(episode, 'episodes')}/{TRAJECTORY}"


def parse_trajectory_key(key: str) -> EpisodeId | None:
    """Return the episode that is committed at `key`, or None for any other object."""
    match = _EPISODE_KEY.fullmatch(key)
    if match is None or match["instance"] in (".", ".."):
        return None
    # Many episodes share these texts, which are held once.
    return EpisodeId(intern(match["job"]), intern(match["instance"]), int(match["sample"]))


def log_key(episode: EpisodeId, sha256: str) -> str:
    """Return the key of a test log with this digest, beside the episode's record."""
    return f"{_folder(episode, 'episodes')}/test-{sha256[:16]}.log.zst"


def is_log_key(key: str) -> bool:
    """Whether the key is that of a test log."""
    return _LOG_KEY.fullmatch(key) is not None


def kept_journal_key(episode: EpisodeId, sha256: str) -> str:
    """Return the key of a kept journal with this digest, beside its episode's record."""
    return f"{_folder(episode, 'episodes')}/journal-{sha256[:16]}.msgpack.zst"


def is_kept_journal_key(key: str) -> bool:
    """Whether the key is that of a kept journal."""
    return _KEPT_KEY.fullmatch(key) is not None


def damaged_key(episode: EpisodeId, unique: str) -> str:
    """Return a key to which a damaged trajectory moves, to make room for the next one."""
    return f"{_folder(episode, 'damaged')}/{segment(unique)}-{TRAJECTORY}"


def masked_key(episode: EpisodeId, unique: str) -> str:
    """Return a key to which a masked trajectory moves when its episode is run again."""
    return f"{_folder(episode, 'masked')}/{segment(unique)}-{TRAJECTORY}"


def damaged_chunk_key(episode: EpisodeId, unique: str, journal: int, chunk: int) -> str:
    """Return a key to which a chunk of an unreadable journal moves."""
    name = f"{segment(unique)}-journal-{journal}-{chunk}.msgpack.zst"
    return f"{_folder(episode, 'damaged')}/{name}"


def journals_prefix(job: str) -> str:
    """Return the folder of all journals of a job."""
    return f"{segment(job)}/journals"


def journals_of(episode: EpisodeId) -> str:
    """Return the folder of the journals of an episode."""
    return _folder(episode, "journals")


def chunk_key(episode: EpisodeId, journal: int, chunk: int) -> str:
    """Return the key of a chunk (from 0) of an episode's journal (from 1)."""
    return f"{journals_of(episode)}/{journal}/{chunk}.msgpack.zst"


def parse_chunk_key(key: str) -> ChunkKey | None:
    """Parse a chunk's key; return None for any other object."""
    match = _CHUNK_KEY.fullmatch(key)
    if match is None or match["instance"] in (".", ".."):
        return None
    return ChunkKey(
        match["instance"], int(match["sample"]), int(match["journal"]), int(match["chunk"])
    )


def refills_key(job: str) -> str:
    """Return the key of the number of replacements of a failed sample, as JSON."""
    return f"{segment(job)}/refills.json"


def claims_prefix(job: str, trainer: str) -> str:
    """Return the folder of a trainer's steps with the groups of a job."""
    return f"{segment(job)}/consumed/{segment(trainer)}"


def claim_key(job: str, trainer: str, instance: str, number: int) -> str:
    """Return the key of a trainer's step `number` with a group, as JSON."""
    return f"{claims_prefix(job, trainer)}/{segment(instance)}/{number}.json"


def parse_claim_key(key: str) -> tuple[str, int] | None:
    """Return the instance and number of the step at `key`, or None for any other object."""
    match = _CLAIM_KEY.fullmatch(key)
    return None if match is None else (match["instance"], int(match["number"]))


def dataset_key(sha256: str, suffix: str) -> str:
    """Return the key of rows with this digest; `suffix` is their format."""
    return f"datasets/{sha256}{suffix}"


def extension_key(sha256: str, name: str) -> str:
    """Return the key of a file of user code with this digest."""
    return f"extensions/{sha256}/{segment(name)}"


def store_uri(address: str) -> str:
    """Return the address of a store, which may be given as a path."""
    return address.rstrip("/") if "://" in address else f"file://{Path(address).absolute()}"


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job and its store, parsed from one address."""

    store_uri: str
    job: str

    @classmethod
    def parse(cls, address: str) -> Self:
        """Parse `file:///data/runs/demo`, `s3://bucket/runs/demo` or the path `runs/demo`."""
        scheme, separator, rest = address.rstrip("/").rpartition("://")
        parent, slash, name = rest.rpartition("/")
        is_path = not separator
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) or not (slash or is_path):
            raise UsageError(
                f"{address!r} does not name a job in a store",
                why="the last part is the job's name (63 characters at most), the others the store",
                fix="write it as runs/my-job, file:///data/runs/my-job or s3://bucket/runs/my-job",
            )
        if is_path:
            return cls(store_uri((parent or "/") if slash else "."), name)
        return cls(f"{scheme}://{parent}", name)

    def __str__(self) -> str:
        return f"{self.store_uri}/{self.job}"
