"""Say what an address is that names no job: an episode, an instance, a store, a job's file.

Only folders of this machine are looked into.
"""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from swe_rollout.cli.options import LOCAL_RUNS
from swe_rollout.errors import SweRolloutError, UsageError

_PLAN = "plan.json"
_MOST_SEEN = 2000
_MOST_NAMED = 5


def job_named_wrongly(address: str) -> UsageError | None:
    """Return an error that says what the address is instead of a job's; none where that is open."""
    if better := _spelt(address):
        return UsageError(f"{address!r} is no address of a job", fix=f"write {better}")
    if "://" in address and not address.startswith("file://"):
        return None
    path = Path(address.removeprefix("file://"))
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return _job_file(path)
    if job := next((each for each in path.parents if (each / _PLAN).is_file()), None):
        return _inside(address, job, path)
    return _store(address, path) or _without_store(path)


def _store(address: str, path: Path) -> UsageError | None:
    if not (jobs := _jobs_in(path)):
        return None
    return UsageError(
        f"{address} is a store and no job",
        why=f"it has {len(jobs)} jobs" if len(jobs) > 1 else "it has 1 job",
        fix=f"name one of its jobs: {' or '.join(jobs[:_MOST_NAMED])}",
    )


def _without_store(path: Path) -> UsageError | None:
    if len(path.parts) != 1 or not (Path(LOCAL_RUNS, path) / _PLAN).is_file():
        return None
    return UsageError(
        f"{path} is the name of a job in the folder {LOCAL_RUNS}",
        why="an address is the store, a slash, and the job's name",
        fix=f"write {LOCAL_RUNS}/{path}",
    )


def job_in_other_folder(address: str) -> str:
    """Return the job of that name in a folder here that is spelt alike; empty: there is none."""
    path = Path(address.removeprefix("file://"))
    folder = path.parent
    if "://" in str(path) or folder.exists() or not folder.parent.is_dir():
        return ""
    with suppress(OSError):
        beside = islice((each.name for each in folder.parent.iterdir()), _MOST_SEEN)
        for name in get_close_matches(folder.name, list(beside)):
            if (folder.parent / name / path.name / _PLAN).is_file():
                return f"{folder.parent / name / path.name}"
    return ""


def _spelt(address: str) -> str:
    """Return the address as it is meant to be written; empty: its form is right."""
    stripped = address.strip()
    if stripped != address:
        return stripped
    if address.startswith("~"):
        return str(Path(address).expanduser())
    if scheme := re.match(r"(file|s3|gs|az):/(?!/)", address):
        return f"{scheme[1]}://{'/' if scheme[1] == 'file' else ''}{address[scheme.end() :]}"
    rest = address.removeprefix("file://")
    if rest != address and not rest.startswith("/") and (Path("/", rest) / _PLAN).is_file():
        return f"file:///{rest}"
    return ""


def local_job(address: str) -> Path | None:
    """Return the folder of the job that is in a folder of this machine; none for any other."""
    path = Path(address.removeprefix("file://"))
    return path if "/" in address and (path / _PLAN).is_file() else None


def _job_file(path: Path) -> UsageError:
    from swe_rollout.spec.load import load_job

    try:
        job = load_job(path)
    except SweRolloutError:
        fix = "write the store, a slash, and the job's name: runs/demo"
    else:
        store = job.spec.store.uri.removeprefix("file://").rstrip("/")
        fix = f"its job is at {store}/{job.metadata.name}"
    return UsageError(f"{path} is a job's file, and not where the job is stored", fix=fix)


def _inside(address: str, job: Path, path: Path) -> UsageError:
    rest = path.relative_to(job).parts
    known = [each.name for each in islice((job / "episodes").glob("*"), _MOST_SEEN)]
    close = get_close_matches(rest[0], known, n=1) if rest else []
    if len(rest) == 1 and not path.exists():
        instance = rest[0] if rest[0] in known else (close[0] if close else "INSTANCE")
        return UsageError(
            f"{address} names an instance of the job {job}, and none of its episodes",
            why="an episode is JOB/INSTANCE/SAMPLE",
            fix=f"write {job}/{instance}/0 for its first sample, or {job} for the whole job",
        )
    if rest and path.parent == job / rest[0] and not rest[-1].isdecimal() and rest[0] != "episodes":
        return UsageError(
            f"{address} names no episode: {rest[-1]} is no number of a sample",
            why="an episode is JOB/INSTANCE/SAMPLE, and samples are counted from 0",
            fix=f"write {job}/{close[0] if close else 'INSTANCE'}/0, or {job} for the whole job",
        )
    return UsageError(
        f"{address} names an episode of the job {job}, or something in its folder",
        why="a job is expected here",
        fix=f"write {job}; `swe-rollout view` and `swe-rollout export` take episodes",
    )


def _jobs_in(folder: Path) -> list[str]:
    try:
        return sorted(str(each.parent) for each in islice(folder.glob(f"*/{_PLAN}"), _MOST_SEEN))
    except OSError:
        return []
