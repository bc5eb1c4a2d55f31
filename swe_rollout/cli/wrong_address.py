"""Say what an address is that names no job and no store, and which one may be meant.

Used where jobs and stores are looked for; only folders of this machine are looked at.
"""

from __future__ import annotations

import re
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from swe_rollout.cli.options import LOCAL_RUNS
from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.store.layout import JobRef
from swe_rollout.text.paths import expanded, file_meant, why_missing

_PLAN = "plan.json"
_MOST_SEEN = 2000
_MOST_NAMED = 5


def job_named_wrongly(address: str) -> UsageError | None:
    """Return an error that says what the address is, if it is clearly not a job's."""
    if (better := _spelt(address)) and better != address:
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
        fix=f"name one of its jobs: {' or '.join(jobs[:_MOST_NAMED])}; "
        f"`swe-rollout view --serve {address}` shows them all",
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
    """Return the job of this name in a similarly named local folder; empty if there is none."""
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
    """Return the corrected form of the address; empty if it is correct."""
    stripped = address.strip()
    if stripped != address:
        return stripped
    if address.startswith("~"):
        return str(expanded(address))
    if scheme := re.match(r"(file|s3|gs|az):/(?!/)", address):
        return f"{scheme[1]}://{'/' if scheme[1] == 'file' else ''}{address[scheme.end() :]}"
    rest = address.removeprefix("file://")
    if rest != address and not rest.startswith("/") and (Path("/", rest) / _PLAN).is_file():
        return f"file:///{rest}"
    return ""


def local_job(address: str) -> Path | None:
    """Return the folder of a job on this machine, or None if it is elsewhere."""
    path = Path(address.removeprefix("file://"))
    return path if "/" in address and (path / _PLAN).is_file() else None


def _job_file(path: Path) -> UsageError:
    from swe_rollout.spec.load import load_job

    try:
        job = load_job(path)
    except SweRolloutError:
        fix = "write the store, a slash, and the job's name: runs/demo"
    else:
        fix = f"its job is at {address_here(JobRef(job.spec.store.uri, job.metadata.name))}"
    return UsageError(f"{path} is a job's file, and not where the job is stored", fix=fix)


def address_here(ref: JobRef) -> str:
    """Return the address of a job in its shortest form: a relative path in the current folder."""
    path = Path(str(ref).removeprefix("file://"))
    if not ref.store_uri.startswith("file://"):
        return str(ref)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


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


def no_store(address: str) -> UsageError:
    """Return the error for an address at which `find_store` finds none."""
    with suppress(UsageError):
        job = address_here(JobRef.parse(address))
        if local_job(job) is not None:
            fix = f"`swe-rollout status {job}` shows it"
            return UsageError(f"{address} is a job, and no store", fix=fix)
    path = Path(address.removeprefix("file://"))
    why = why_missing(path) or ("" if path.exists() or "://" in address else f"there is no {path}")
    better, meant = job_named_wrongly(address), file_meant(path, ("",))
    fix = "name a folder with jobs in it, such as runs, or s3://…"
    if better is not None:
        fix = better.fix
    elif meant is not None and not path.exists():
        fix = f"did you mean {meant}?"
    return UsageError(f"{address} is no store", why=why or "it has no job", fix=fix)
