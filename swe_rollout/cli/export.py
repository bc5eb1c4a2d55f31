"""`export`: a job's trajectories, or one of them, in the formats that others read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from swe_rollout.cli.files import require_new, writing
from swe_rollout.cli.job_address import JobLocation, ViewTarget, find_target
from swe_rollout.cli.job_tables import write_left_out, write_not_shown
from swe_rollout.cli.options import (
    Context,
    Namespace,
    OtherDatasetName,
    Overwrite,
    StoredAddress,
    WithFiles,
    option,
)
from swe_rollout.cli.output import say, write_lines
from swe_rollout.cli.stored_work import named_other
from swe_rollout.errors import InternalError, UsageError
from swe_rollout.text.escaping import printable

if TYPE_CHECKING:
    from swe_rollout.export.files import Exported, FileFormat, FolderFormat
    from swe_rollout.export.library_layout import JobFacts
    from swe_rollout.spec.job import RolloutJobSpec
    from swe_rollout.store.damage import DamagedRecord
    from swe_rollout.store.store import Store
    from swe_rollout.types.episode import EpisodeId

ExportPath = Annotated[
    Path | None,
    option("--output-file", "-O", help="The file or folder. Default: named after JOB."),
]
Sample = Annotated[int | None, option(min=0, help="Only this sample of each instance.")]
DropPaths = Annotated[
    list[str] | None,
    option(
        "--drop-path",
        metavar="GLOB",
        help="Leave matching files out of patches: pyproject.toml, 'tests/*'. Repeatable.",
    ),
]
ModelName = Annotated[
    str | None, option(help="model_name_or_path of predictions. Default: the policy.")
]


class ExportFormat(StrEnum):
    """The format of an export."""

    PARQUET = "parquet"
    JSON = "json"
    JSONL = "jsonl"
    TXT = "txt"
    MESSAGES = "messages"
    ATIF = "atif"
    VERIFIERS = "verifiers"
    PREDICTIONS = "predictions"
    PATCHES = "patches"
    ROLLOUT_LIBRARY = "rollout-library"
    CHROME_TRACE = "chrome-trace"
    TIMELINE = "timeline"
    TIMELINE_SVG = "timeline-svg"


@dataclass(frozen=True, slots=True)
class _Kind:
    """The name and the needs of an export in one format."""

    ending: str
    """Suffix of the output's name, after the job's."""
    of_one: str = ""
    """The same for one episode, if its output is a file and a job's is a folder."""
    is_folder: bool = False
    """Whether it writes several files, into a new folder."""
    has_patches: bool = False
    has_prompts: bool = False
    """Whether it needs prompts, which are rebuilt from the job's dataset."""


_KINDS = {each: _Kind(f".{each}") for each in ExportFormat} | {
    ExportFormat.MESSAGES: _Kind(".messages.jsonl", has_prompts=True),
    ExportFormat.ATIF: _Kind("-atif", is_folder=True, has_prompts=True),
    ExportFormat.VERIFIERS: _Kind(".traces.jsonl", has_prompts=True),
    ExportFormat.PREDICTIONS: _Kind(".preds.jsonl", has_patches=True),
    ExportFormat.PATCHES: _Kind("-patches", is_folder=True, has_patches=True),
    ExportFormat.ROLLOUT_LIBRARY: _Kind(
        "-library", is_folder=True, has_patches=True, has_prompts=True
    ),
    ExportFormat.CHROME_TRACE: _Kind(".trace.json"),
    ExportFormat.TIMELINE: _Kind("-timeline", ".timeline.html", is_folder=True),
    ExportFormat.TIMELINE_SVG: _Kind("-timeline-svg", ".timeline.svg", is_folder=True),
}

To = Annotated[ExportFormat, option(help="What to write.")]


@dataclass(frozen=True, slots=True)
class _Options:
    to: ExportFormat
    output: Path | None
    sample: int | None
    drop_paths: tuple[str, ...]
    model_name: str | None
    dataset: str | None
    with_files: tuple[Path, ...]
    overwrite: bool


def export(
    address: StoredAddress,
    to: To = ExportFormat.PARQUET,
    output_file: ExportPath = None,
    namespace: Namespace = None,
    context: Context = None,
    *,
    sample: Sample = None,
    drop_paths: DropPaths = None,
    model_name: ModelName = None,
    dataset: OtherDatasetName = None,
    with_files: WithFiles = None,
    overwrite: Overwrite = False,
) -> None:
    """Write trajectories for trainers, graders, viewers and people.

    parquet: a row for each episode. json, jsonl: the records. txt: to read. messages: chats for
    fine-tuning. atif: Harbor's format. verifiers: traces of Prime Intellect's verifiers.
    predictions: SWE-bench's. patches: .patch files. rollout-library: the folders of the Agentic
    Rollout Library. chrome-trace, timeline, timeline-svg: where the time went.

    swe-rollout export runs/demo --to parquet

    swe-rollout export s3://rollouts/demo --to predictions --sample 0
    """
    options = _Options(
        to,
        output_file,
        sample,
        tuple(drop_paths or ()),
        model_name,
        dataset,
        tuple(with_files or ()),
        overwrite,
    )
    _require_meaning(options)
    asyncio.run(_export(address, JobLocation(namespace, context), options))


def _require_meaning(options: _Options) -> None:
    if options.drop_paths and not _KINDS[options.to].has_patches:
        raise UsageError(
            f"--drop-path has no meaning for {options.to}",
            why="records are exported as they are",
            fix="use it with --to "
            + ", ".join(sorted(to for to, kind in _KINDS.items() if kind.has_patches)),
        )
    if options.model_name and options.to is not ExportFormat.PREDICTIONS:
        raise UsageError(
            "--model-name has a meaning for --to predictions only",
            fix="leave it out, or write --to predictions",
        )


async def _export(address: str, location: JobLocation, options: _Options) -> None:
    target = await find_target(address, location)
    ending = (target.episode and _KINDS[options.to].of_one) or _KINDS[options.to].ending
    path = options.output or Path(target.name + ending)
    store = target.open_store()
    plan = await store.plan(target.ref.job)
    if target.episode is not None:
        if options.sample not in (None, target.episode.sample):
            fix = f"leave --sample out, or export {target.ref}"
            raise UsageError(f"{address} is sample {target.episode.sample}", fix=fix)
        episodes, strays = [target.episode], tuple[str, ...]()
        await store.read(target.episode)
    else:
        listing = await store.listing(target.ref.job)
        strays = listing.strays
        episodes = _chosen(listing.episodes, target.ref.job, options.sample, plan.episodes)
    if not _is_folder(options.to, target):
        path = require_new(path, overwrite=options.overwrite)
    form = await _format(target, store, options)
    what = _what(target, options)
    with suppress(FileNotFoundError):  # a job that was deleted and made anew is another one
        what["beginning of the job"] = (await store.begun_at(target.ref.job)).isoformat()
    with writing(path):
        done, damaged = await _write(episodes, path, form, store, what)
    say(f"{done.episodes} episodes")
    write_not_shown(done.left_out)
    write_left_out(damaged, strays)
    write_lines([str(path)])


async def _write(
    episodes: Sequence[EpisodeId],
    path: Path,
    form: FileFormat | FolderFormat,
    store: Store,
    what: Mapping[str, str],
) -> tuple[Exported, Sequence[DamagedRecord]]:
    """Write the episodes, or go on with an export that was killed."""
    from swe_rollout.export.files import export as write
    from swe_rollout.export.progress import Progress, part_of

    progress = Progress.open(path, what, episodes, resumes=form.resumes)
    if progress.written:
        say(f"going on after {progress.written} episodes that {part_of(path)} has already")
    if added := len(set(episodes).difference(progress.episodes)):
        say(f"{added} episodes were committed since this export was begun, and are not in it")
    try:
        done = await write(progress.records(store), path, form, progress=progress)
    finally:
        if part_of(path).exists():
            say(f"{part_of(path)} keeps what is written: the same command goes on with it")
    return done, progress.damaged


def _what(target: ViewTarget, options: _Options) -> dict[str, str]:
    """Describe the export: a part of one is no part of another."""
    from swe_rollout import __version__

    return {
        "source": "/".join([str(target.ref), *(str(target.episode or "").split("/")[1:])]),
        "format": options.to.value,
        "sample": "" if options.sample is None else str(options.sample),
        "dropped paths": " ".join(options.drop_paths),
        "model name": options.model_name or "",
        "dataset": options.dataset or "",
        "version of swe-rollout": __version__,
    }


def _is_folder(to: ExportFormat, target: ViewTarget) -> bool:
    """Whether the export is a folder of files; a timeline of one episode is a single file."""
    return _KINDS[to].is_folder and not (_KINDS[to].of_one and target.episode is not None)


def _chosen(
    committed: frozenset[EpisodeId], job: str, sample: int | None, planned: int
) -> list[EpisodeId]:
    """Return the episodes to export, in order; report those still missing.

    Raises UsageError if there is none.
    """
    chosen = [each for each in committed if sample in (None, each.sample)]
    if not chosen and committed:
        raise UsageError(
            f"{job} has no episode with sample {sample}",
            why=f"its samples are 0 to {max(each.sample for each in committed)}",
            fix="leave --sample out, or name one of these",
        )
    if not chosen:
        raise UsageError(
            f"{job} has no episode to export yet",
            why=f"0 of {planned} episodes are committed",
            fix="run the job (`swe-rollout run job.yaml`), and export it when it has ended",
        )
    if len(committed) < planned:
        say(f"the job is not finished: {len(committed)} of {planned} episodes are committed")
    return sorted(chosen, key=lambda each: (each.instance, each.sample))


async def _format(target: ViewTarget, store: Store, options: _Options) -> FileFormat | FolderFormat:
    if options.to is ExportFormat.PARQUET:
        from swe_rollout.export.parquet import parquet_format

        return parquet_format()
    if _KINDS[options.to].has_prompts:
        return await _form_with_prompts(store, target, options)
    return _form(options, is_one=target.episode is not None)


def _form(options: _Options, *, is_one: bool) -> FileFormat | FolderFormat:
    """Return a format that needs only the records."""
    from swe_rollout.export import files, patches, profile
    from swe_rollout.export.patches import PatchFilter
    from swe_rollout.viewer.timeline import PAGES, PICTURES

    dropped = PatchFilter(options.drop_paths)
    form: FileFormat | FolderFormat
    match options.to:
        case ExportFormat.JSON:
            form = files.JSON
        case ExportFormat.JSONL:
            form = files.JSONL
        case ExportFormat.TXT:
            form = files.text_format(printable)
        case ExportFormat.PREDICTIONS:
            form = patches.predictions_format(dropped, model_name=options.model_name)
        case ExportFormat.PATCHES:
            form = patches.patches_format(dropped)
        case ExportFormat.CHROME_TRACE:
            form = profile.chrome_trace_format()
        case ExportFormat.TIMELINE | ExportFormat.TIMELINE_SVG:
            drawings = PAGES if options.to is ExportFormat.TIMELINE else PICTURES
            form = drawings.file() if is_one else drawings.folder()
        case _:
            raise InternalError(f"{options.to} is written elsewhere")
    return form


async def _form_with_prompts(
    store: Store, target: ViewTarget, options: _Options
) -> FileFormat | FolderFormat:
    """Return a format that shows prompts, after loading the job's tasks."""
    from swe_rollout.cli.dataset_argument import import_files
    from swe_rollout.export.atif import atif_format
    from swe_rollout.export.chat import messages_format
    from swe_rollout.export.library_layout import LibraryLayout
    from swe_rollout.export.patches import PatchFilter
    from swe_rollout.export.verifiers import verifiers_format
    from swe_rollout.viewer.timeline import timeline_page
    from swe_rollout.worker.stored_tasks import load_tasks, stored_job
    from swe_rollout.worker.task_prompts import reading_of

    import_files(options.with_files)
    job = await stored_job(store, target.ref.job)
    other = named_other(options.dataset)
    # An export runs no code from the store: --with names files that may run.
    tasks = await load_tasks(job, base_dir=Path.cwd(), on_note=say, other=other)
    reading = reading_of(tasks, on_note=say)
    match options.to:
        case ExportFormat.MESSAGES:
            return messages_format(reading)
        case ExportFormat.ATIF:
            return atif_format(reading)
        case ExportFormat.VERIFIERS:
            return verifiers_format(reading)
        case _:
            dropped = PatchFilter(options.drop_paths)
            return LibraryLayout(reading, dropped, timeline_page, _facts(job.spec)).format()


def _facts(spec: RolloutJobSpec) -> JobFacts:
    from swe_rollout.export.library_layout import JobFacts

    return JobFacts(
        timeout_seconds=spec.limits.episode_seconds,
        max_tokens=spec.limits.max_new_tokens,
        max_concurrent=spec.parallelism,
        base_url=spec.policy.sglang.address if spec.policy.sglang else "",
    )
