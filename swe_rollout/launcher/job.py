"""RolloutJob, the class that users import: the job file's model, and ways to create and run it.

job = RolloutJob.from_yaml("job.yaml").launch()
job.wait()
for trajectory in job.trajectories(): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import structlog
from pydantic import PrivateAttr

from swe_rollout.events import Events, Subscriber
from swe_rollout.launcher.group_stream import GroupStream
from swe_rollout.launcher.logged_progress import log_progress
from swe_rollout.launcher.sync import run_sync
from swe_rollout.spec import job as models
from swe_rollout.spec.load import load_job, parse_spec
from swe_rollout.text.logs import log_to_stderr
from swe_rollout.text.notebook_html import card

if TYPE_CHECKING:
    from swe_rollout.engine.base import TokenEngine
    from swe_rollout.export.frame import FrameLibrary
    from swe_rollout.launcher.bring import Extensions
    from swe_rollout.launcher.launched_job import LaunchedJob
    from swe_rollout.launcher.notebook import NotebookProgress
    from swe_rollout.launcher.stored_job import RunResult, StoredJob
    from swe_rollout.launcher.uploads import LocalFile, LocalRows
    from swe_rollout.spec.model import OneOf
    from swe_rollout.training.sample_bounds import Staleness
    from swe_rollout.worker.live_groups import LiveGroups, StreamOptions
    from swe_rollout.worker.session import Session

log = structlog.get_logger()
log_to_stderr()


class RolloutJob(models.RolloutJob):
    """A job: tasks × samples, rolled out by a policy, graded, stored.

    Fields and validation come from `swe_rollout.spec.job.RolloutJob`.
    """

    def __repr__(self) -> str:
        spec = self.spec
        episodes = f"{_chosen(spec.dataset)} × {spec.samples}"
        where = f"{_chosen(spec.policy)} in {_chosen(spec.sandbox)}"
        return f"<RolloutJob {self.metadata.name}: {episodes}, {where}, to {spec.store.uri}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Show the job as a card in a notebook; nothing is read."""
        spec, limits = self.spec, self.spec.limits
        facts = {
            "tasks": f"{_chosen(spec.dataset)} × {spec.samples} samples",
            "policy": _chosen(spec.policy),
            "agent": str(spec.agent),
            "sandbox": _chosen(spec.sandbox),
            "parallelism": str(spec.parallelism),
            "limits": f"{limits.turns} turns",
            "store": f"{spec.store.uri}/{self.metadata.name}",
            "digest": self.digest,
        }
        return card(f"RolloutJob {self.metadata.name}", facts)

    _base_dir: Path = PrivateAttr(default_factory=Path.cwd)
    """The folder at which relative dataset paths start."""
    _rows: LocalRows | None = PrivateAttr(default=None)
    """Rows in memory, written to the store when the job starts."""
    _files: tuple[LocalFile, ...] = PrivateAttr(default=())
    """Files of user code, written to the store when the job starts."""

    @classmethod
    def from_yaml(
        cls,
        path: str | Path,
        overrides: Sequence[str] = (),
        *,
        files: Sequence[str | Path] = (),
        **extensions: Unpack[Extensions],
    ) -> Self:
        """Read a job file and apply `a.b=c` overrides; raises SpecError with all problems by line.

        `files` are Python files that travel with the job. The other arguments are extensions, as
        objects or names: `tools` are added to the file's, `reward` is a term or a sequence of
        terms; `agent`, `dataset`, `engine`, `log_parser`, `reward` and `sandbox` replace the file's
        field. Raises UsageError for an unusable extension.

        RolloutJob.from_yaml("job.yaml", overrides=["spec.samples=8"], tools=[lint])
        """
        job = load_job(Path(path), overrides)
        made = cls._of(job, base_dir=Path(path).absolute().parent).with_files(files)
        if extensions:
            from swe_rollout.launcher.bring import bring

            made = made._with(bring(made, extensions))  # noqa: SLF001 - its own class
        return made._with_bundles()  # noqa: SLF001 - its own class

    @classmethod
    def from_rows(
        cls, rows: Iterable[Mapping[str, object]], *, name: str, spec: Mapping[str, object]
    ) -> Self:
        """Create a job over rows in memory, in SWE-bench's format.

        `spec` is the content of a job file's `spec:`, without a dataset source. The rows are
        written to the store when the job starts. Raises SpecError, or DatasetError listing every
        row that can't be read.

        RolloutJob.from_rows(rows, name="mine", spec={"policy": {"sglang": {"url": "http://…"}}})
        """
        dataset = {**_mapping(spec.get("dataset")), "swebench": {"uri": "rows.jsonl"}}
        job = parse_spec({**spec, "dataset": dataset}, name=name, source="from_rows")
        made = cls._of(job, base_dir=Path.cwd()).with_rows(rows)
        return made._with_bundles()  # noqa: SLF001 - its own class

    def with_rows(self, rows: Iterable[Mapping[str, object]]) -> Self:
        """Return the job over other rows. Raises DatasetError listing every unreadable row."""
        from swe_rollout.launcher import remote, uploads

        found = uploads.rows_of(rows, store_uri=self.spec.store.uri)
        return self._with(remote.with_dataset(self, found), rows=found)

    def with_files(self, files: Sequence[str | Path]) -> Self:
        """Return the job with files of user code. Raises UsageError if one can't be sent along."""
        from swe_rollout.launcher.uploads import name_files, read_files

        found = read_files(files)
        return self._with(name_files(self, found), files=found)

    def _with_bundles(self) -> Self:
        """Return the job with the tool bundles that it names by folder."""
        from swe_rollout.launcher.uploads import pack_bundles

        job, found = pack_bundles(self, base_dir=self._base_dir)
        return self._with(job, files=found)

    def launch(self, namespace: str | None = None, context: str | None = None) -> LaunchedJob:
        """Create the job on the cluster, or update it if it exists: committed episodes stay.

        `namespace` defaults to the file's, then to the context's; `context` names a kubeconfig
        context.
        """
        return run_sync(self._launch(namespace, context))

    def run(
        self,
        *,
        progress: Subscriber | None = None,
        observer: Subscriber | None = None,
        rerun_damaged: bool = False,
        rerun_masked: bool = False,
        join: bool = False,
    ) -> RunResult:
        """Roll out the job in this process; episodes committed earlier are not repeated.

        Iterate over the result to read the trajectories, those of earlier runs included. With
        `rerun_damaged`, unreadable records are moved aside and their episodes run again; with
        `rerun_masked`, those of masked ones are. With `join`, another process may run it, too.
        Progress is shown in a notebook's cell, or logged; `observer` receives every event, too.

        for trajectory in job.run(): ...
        """
        shown = progress or self._notebook_progress() or log_progress
        flags = {"rerun_damaged": rerun_damaged, "rerun_masked": rerun_masked, "join": join}
        return run_sync(self._run(shown, observer, flags))

    def frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the episodes in the job's store as a data frame, like `StoredJob.frame`."""
        return self._stored().frame(library)

    def _stored(self) -> StoredJob:
        from swe_rollout.launcher.stored_job import StoredJob

        return StoredJob(self.spec.store.uri, self.metadata.name)

    def _notebook_progress(self) -> NotebookProgress | None:
        from swe_rollout.launcher.notebook import notebook_progress
        from swe_rollout.live.progress import LiveTitle

        about, samples = (_chosen(self.spec.policy),), self.spec.samples
        title = LiveTitle(self.metadata.name, about, group_size=lambda _: samples)
        return notebook_progress(title)

    @asynccontextmanager
    async def session(
        self,
        *,
        engine: TokenEngine | None = None,
        progress: Subscriber | None = None,
        observer: Subscriber | None = None,
        first_sample: int = 0,
        stored: bool = False,
    ) -> AsyncIterator[Session]:
        """Open the job to play single episodes, whose records are returned but not stored.

        With `stored` they are committed as by `run`: an episode that is in the store is not played
        again, and one that a killed process was playing goes on at its last turn.

        `engine`, such as a trainer's own, replaces the one that `spec.policy` names; it is not
        closed at the end. Samples are numbered from `first_sample`: sessions that are open at the
        same time need separate ranges, because a sample's number is part of its sandbox's name and
        its seed. `observer` receives every event (docs/how-to/observe.md).

        async with job.session() as session:
            trajectory = await session.run_episode("sqlparse-0.5.2", sample=3)
        """
        from swe_rollout.store.store import Store
        from swe_rollout.worker.session import open_session

        await self._put()
        store = Store.open(self.spec.store.uri) if stored else None
        async with open_session(
            self,
            base_dir=self._base_dir,
            publish=Events(progress or log_progress, observer),
            on_note=_note,
            engine=engine,
            first_sample=first_sample,
            logs=store,
        ) as session:
            if store is not None:
                await session.commit_to(store)
            yield session

    def stream(
        self,
        trainer: str = "trainer",
        *,
        epoch: int = 0,
        trained: Iterable[str] = (),
        ahead: int | None = None,
        refills: int | None = None,
        staleness: Staleness | None = None,
        engine: TokenEngine | None = None,
        progress: Subscriber | None = None,
    ) -> GroupStream:
        """Play the job in this process, and pass its groups to a trainer as they complete.

        Records are committed as by `run`; stored episodes are not played again. At most `ahead`
        groups are in play or waiting beyond those taken. A sample that failed for good is replaced,
        up to `refills` times, by default `spec.retry.refills`. `trainer`, `epoch`, `trained` and
        `staleness` are as in `StoredJob.groups`.

        with job.stream("t1") as groups:
            for group in groups:
                train(group.samples, group.advantages())
                groups.ack(group)
        """
        from swe_rollout.store.claims import Claimant
        from swe_rollout.worker.live_groups import StreamOptions

        claimant = Claimant(trainer, epoch)
        options = StreamOptions(claimant, tuple(trained), ahead, refills, staleness)
        shown = progress or log_progress
        return GroupStream(lambda: self._stream(options, engine, shown))

    @asynccontextmanager
    async def _stream(
        self, options: StreamOptions, engine: TokenEngine | None, progress: Subscriber
    ) -> AsyncIterator[LiveGroups]:
        from swe_rollout.worker.live_groups import open_groups

        await self._put()
        async with open_groups(
            self,
            options,
            base_dir=self._base_dir,
            publish=Events(progress),
            on_note=_note,
            engine=engine,
        ) as groups:
            yield groups

    async def _launch(self, namespace: str | None, context: str | None) -> LaunchedJob:
        from swe_rollout.launcher import remote
        from swe_rollout.launcher.bring import require_shippable
        from swe_rollout.launcher.launched_job import LaunchedJob

        require_shippable(self)
        async with remote.open_jobs(context) as jobs:
            remote.for_cluster(self, on_note=_note)
            await self._put()
            found = await remote.submit(
                jobs, self, namespace=namespace, base_dir=self._base_dir, on_note=_note
            )
        return LaunchedJob.of(found, context=context)

    async def _run(
        self, progress: Subscriber, observer: Subscriber | None, flags: Mapping[str, bool]
    ) -> RunResult:
        from swe_rollout.launcher.notebook import NotebookProgress
        from swe_rollout.launcher.stored_job import RunResult
        from swe_rollout.worker.job import run_job

        await self._put()
        async with progress.updating() if isinstance(progress, NotebookProgress) else nullcontext():
            found = await run_job(
                self,
                base_dir=self._base_dir,
                publish=Events(progress, observer),
                on_note=_note,
                **flags,
            )
        return RunResult(found, self._stored())

    async def _put(self) -> None:
        """Upload this process's rows and files to the store."""
        if self._rows is not None:
            await self._rows.put()
        for file in self._files:
            await file.put(self.spec.store.uri)

    def _with(
        self,
        job: models.RolloutJob,
        *,
        rows: LocalRows | None = None,
        files: Sequence[LocalFile] = (),
    ) -> Self:
        """Return the job with another spec, and with additional uploads for its start."""
        copy = self._of(job, base_dir=self._base_dir)
        copy._rows = rows or self._rows  # noqa: SLF001 - its own class
        copy._files = (*self._files, *files)  # noqa: SLF001 - its own class
        return copy

    @classmethod
    def _of(cls, job: models.RolloutJob, *, base_dir: Path) -> Self:
        """Convert the job to this class, keeping fields unset that its file leaves unset."""
        copy = cls.model_construct(job.model_fields_set, **dict(job))
        copy._base_dir = base_dir  # noqa: SLF001 - its own class
        return copy


def _chosen(one: OneOf) -> str:
    return next(name for name in one.variants() if getattr(one, name) is not None)


def _note(text: str) -> None:
    log.info("launch_noted", note=text)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
