"""Build one HTML file for jobs or an episode that contains data, style sheet and scripts.

All data is base64 in elements that browsers do not run. A content security policy allows the only
script and the only style sheet by hash, and forbids making markup from text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from tempfile import TemporaryFile
from typing import Any, Final

from swe_rollout.export.job_comparison import JobSide, compare_jobs
from swe_rollout.store.summary import JobSummary
from swe_rollout.text.escaping import escaped
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.viewer.data import (
    PackedRows,
    encoded,
    episode_record,
    packed,
    packed_json,
    row_of,
)
from swe_rollout.viewer.token_text import TokenTexts

DATA_BYTES: Final = 48 << 20
"""The most bytes of encoded episodes in a page, which browsers still open at once."""
_TWO: Final = 2
_SCRIPTS: Final = (
    *("base", "inflate", "tokens", "branches", "episode"),
    *("plots", "job", "compare", "main"),
)
_SERVED_SCRIPTS: Final = ("store", "live")
"""Further ones of a page that asks a server."""
_DATA: Final = "application/octet-stream;base64"


@dataclass(frozen=True, slots=True)
class PageJob:
    """A job in a page."""

    name: str
    address: str
    """The address of the job, as the command line accepts it."""
    rows: tuple[()] = ()
    """Their place in the JSON: a page has them packed, and a served one fetches them."""
    summary: dict[str, Any] | None = None
    damaged: tuple[str, ...] = ()
    tools: object = None
    """The tools of the job's spec, if it lists any."""
    complete: bool = True
    """Whether all rows are there; false if the page is served and more will follow."""


@dataclass(frozen=True, slots=True)
class PageContent:
    """The index of a page; records are separate elements or are fetched."""

    jobs: Sequence[PageJob]
    start: str = ""
    """The address inside the page that is shown first."""
    comparison: object = None
    """The comparison of two jobs (`JobComparison.to_dict`); None while their records are read."""
    store: str = ""
    """The address of the store, if the page shows all its jobs, which are then fetched."""
    is_served: bool = False


class _Blobs:
    """Lines of a page, in a file without a name."""

    def __init__(self) -> None:
        self._file = TemporaryFile("w+", encoding="ascii")  # noqa: SIM115 - closed with the page

    def append(self, line: str) -> None:
        self._file.write(line)

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        return iter(self._file)

    def __del__(self) -> None:
        self._file.close()


@dataclass(slots=True)
class Page:
    """A page to which jobs and episodes are added; only their packed form is kept."""

    data_bytes: int = DATA_BYTES
    jobs: list[PageJob] = field(default_factory=list)
    _sides: list[JobSide] = field(default_factory=list)
    _rows: list[PackedRows] = field(default_factory=list)
    _blobs: _Blobs = field(default_factory=_Blobs)
    shown: int = 0
    """The number of episodes in full."""

    def add_job(self, name: str, address: str, job: dict[str, Any] | None = None) -> PageJob:
        """Add a job without episodes; `job` is the resolved job in its plan."""
        added = PageJob(name, address, tools=tools_of(job or {}))
        self.jobs.append(added)
        self._rows.append(PackedRows())
        self._sides.append(JobSide(job or {}))
        return added

    def add(self, job: PageJob, trajectory: Trajectory, texts: TokenTexts | None) -> None:
        """Add an episode: in full while there is room, after that only as a row of the table."""
        rows = self._rows[self._place(job)]
        self._sides[self._place(job)].add(trajectory)
        name = f"e{self.shown}"
        is_shown = self.data_bytes > 0
        blob = packed(episode_record(trajectory, texts)) if is_shown else ""
        self.data_bytes -= len(blob)
        if not is_shown or (self.data_bytes < 0 and self.shown):
            self.data_bytes = min(self.data_bytes, 0)
            rows.append(row_of(trajectory, None))
            return
        self._blobs.append(f'<script type="{_DATA}" id="{name}">{blob}</script>\n')
        self.shown += 1
        rows.append(row_of(trajectory, name))

    def summarise(self, job: PageJob, summary: JobSummary) -> None:
        """Add the numbers of a job, all of whose episodes have been added."""
        self.jobs[self._place(job)] = PageJob(
            job.name, job.address, (), counts(summary), damages(summary), job.tools
        )

    def html(self, *, episodes: Sequence[EpisodeId] = ()) -> str:
        """Return the page. It opens at the given episode, or at two of them side by side."""
        return "".join(self.parts(episodes=episodes))

    def parts(self, *, episodes: Sequence[EpisodeId] = ()) -> Iterator[str]:
        """Yield the page in parts, as `html` returns it."""
        title = " · ".join(map(str, episodes) if episodes else (job.name for job in self.jobs))
        start = start_at(episodes, jobs=len(self.jobs))
        compared = None
        if len(self._sides) == _TWO and not episodes:
            compared = compare_jobs(*self._sides).to_dict()
        content = PageContent(self.jobs, start, compared)
        return shell(title, content, packed_json(self._json(content)), blobs=self._blobs)

    def _json(self, content: PageContent) -> Iterator[bytes]:
        """Yield the index as JSON, with the rows in their places."""
        head, jobs = _split(encoded(replace(content, jobs=())), "jobs")
        yield head
        for number, (job, rows) in enumerate(zip(content.jobs, self._rows, strict=True)):
            before, after = _split(encoded(job), "rows")
            yield b"," + before if number else before
            yield from rows.json()
            yield after
        yield jobs

    def _place(self, job: PageJob) -> int:
        return next(i for i, each in enumerate(self.jobs) if each is job)


def content_policy(*, is_served: bool) -> str:
    """Return the content security policy of a page."""
    style, script = _assets(is_served=is_served)
    connect = "'self'" if is_served else "'none'"
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _split(data: bytes, name: str) -> tuple[bytes, bytes]:
    """Split JSON inside an empty array, which no string before it can look like."""
    before, _, after = data.partition(b'"%s":[]' % name.encode())
    return before + b'"%s":[' % name.encode(), b"]" + after


def shell(
    title: str, content: PageContent, data: str, *, blobs: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the HTML around the data, which is the packed `content`."""
    style, script = _assets(is_served=content.is_served)
    policy = content_policy(is_served=content.is_served)
    yield (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<header id="top"></header>\n<main id="main">Reading …</main>\n'
        "<noscript>This page needs JavaScript to unpack its data; it loads nothing.</noscript>\n"
        '<button id="keys" type="button">? keys</button>\n<dialog id="help"></dialog>\n'
        f'<script type="{_DATA}" id="page">{data}</script>\n'
    )
    yield from blobs
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def counts(summary: JobSummary) -> dict[str, Any]:
    """Return a job's numbers without those of its tasks, which the page computes from rows."""
    return {name: value for name, value in summary.to_dict().items() if name != "instances"}


def damages(summary: JobSummary) -> tuple[str, ...]:
    """Describe the records that can't be read."""
    return tuple(str(each) for each in summary.damaged)


def tools_of(job: dict[str, Any]) -> object:
    """Return the tools that a resolved job lists; None if it uses the agent's own."""
    spec = job.get("spec")
    agent = spec.get("agent") if isinstance(spec, dict) else None
    return agent.get("tools") if isinstance(agent, dict) else None


def start_at(episodes: Sequence[EpisodeId], *, jobs: int) -> str:
    """Return the address inside the page of one episode, of two side by side, or of the job."""
    match episodes:
        case [first, second]:
            return f"#/compare/0/{_part(first)}/{jobs - 1}/{_part(second)}"
        case [one]:
            return f"#/0/{_part(one)}"
        case _:
            return ""


def _part(episode: EpisodeId) -> str:
    # Names of instances are path segments of letters, digits and the characters ._+-
    return f"{episode.instance.replace('+', '%2B')}/{episode.sample}"


@cache
def _assets(*, is_served: bool) -> tuple[str, str]:
    """Return the style sheet and the script, whose names do not clash with the browser's."""
    folder = resources.files("swe_rollout.viewer") / "assets"
    style = (folder / "style.css").read_text(encoding="utf-8")
    names = (*(_SERVED_SCRIPTS if is_served else ()), *_SCRIPTS)
    parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in names]
    return style, '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
