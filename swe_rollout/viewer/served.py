"""Serve the page of jobs in stores to a browser on this machine; nothing is written.

The page opens at once; rows follow while the store is read, and records when they are opened. The
server listens on loopback only and answers only requests with the token in its address: neither
other users of the machine nor pages of other sites get a response.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final

from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.export.job_comparison import JobSide, compare_jobs
from swe_rollout.store.store import Store
from swe_rollout.store.summary import JobTally
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.viewer.data import episode_record, packed, row_of
from swe_rollout.viewer.page import PageContent, PageJob, counts, damages, shell
from swe_rollout.viewer.token_text import TokenTexts

_TWO: Final = 2
_HOST: Final = "127.0.0.1"
_REQUEST_BYTES: Final = 16 << 10
_REQUEST_S: Final = 10.0
_CONNECTIONS: Final = 32
_ROWS: Final = re.compile(r"rows/(\d{1,3})/(\d{1,9})")
_EPISODE: Final = re.compile(r"episode/(\d{1,3})/([A-Za-z0-9._+-]+)/(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status and its body as text."""

    status: HTTPStatus
    body: str
    content_type: str = "text/plain; charset=utf-8"


_NOT_FOUND: Final = Answer(HTTPStatus.NOT_FOUND, "not found")


@dataclass(slots=True)
class ServedJob:
    """A job that is read from its store while it is viewed."""

    store: Store
    page: PageJob
    texts: Callable[[str], TokenTexts | None]
    """The vocabulary of a policy, if it is on this machine."""
    number: int
    side: JobSide = field(default_factory=JobSide)
    """The job as one side of a comparison."""

    async def read(self) -> None:
        """Read all episodes to make their rows, and summarise the job."""
        tally = JobTally(self.store, self.page.name)
        try:
            async for trajectory in tally.read_new():
                self.page.rows.append(row_of(trajectory, self._path(trajectory)))
                self.side.add(trajectory)
            summary = await tally.summary()
        except SweRolloutError as error:
            self.page = replace(self.page, complete=True, damaged=(str(error),))
            return
        self.page = replace(
            self.page, complete=True, summary=counts(summary), damaged=damages(summary)
        )

    def _path(self, trajectory: Trajectory) -> str:
        return f"episode/{self.number}/{trajectory.episode.instance}/{trajectory.episode.sample}"

    def news(self, start: int, comparison: object) -> str:
        """Return, packed, the rows from `start` on and the comparison with the other job."""
        page = self.page
        return packed(
            {
                "rows": page.rows[start:],
                "complete": page.complete,
                "summary": page.summary,
                "damaged": page.damaged,
                "comparison": comparison,
            }
        )

    async def record(self, instance: str, sample: int) -> str:
        """Return the packed record of an episode. Raises the errors of `Store.read`."""
        trajectory = await self.store.read(EpisodeId(self.page.name, instance, sample))
        return packed(episode_record(trajectory, self.texts(trajectory.policy)))


class PageServer:
    """Serves the page, its rows and its records."""

    def __init__(self, title: str, jobs: Sequence[ServedJob], *, start: str = "") -> None:
        self._title = title
        self._jobs = jobs
        self._start = start
        self._compared: dict[str, object] | None = None
        self._token = secrets.token_urlsafe(24)
        self._hosts: frozenset[str] = frozenset()
        self._open = asyncio.Semaphore(_CONNECTIONS)
        self.address = ""
        """The address of the page, with its token; empty until it is served."""

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[None]:
        """Serve while the block runs, and read the jobs. Port 0 means any free port."""
        try:
            server = await asyncio.start_server(self._converse, _HOST, port, limit=_REQUEST_BYTES)
        except OSError as error:
            raise UsageError(
                f"port {port} can't be listened on", why=str(error), fix="choose another --port"
            ) from error
        bound = server.sockets[0].getsockname()[1]
        self._hosts = frozenset({f"{_HOST}:{bound}", f"localhost:{bound}"})
        self.address = f"http://{_HOST}:{bound}/{self._token}/"
        readers = [asyncio.create_task(job.read()) for job in self._jobs]
        try:
            async with server:
                yield
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def answer(self, method: str, path: str, host: str) -> Answer:
        """Answer one request."""
        if method != "GET":
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        if host not in self._hosts:  # another site's name that resolves to this machine
            return Answer(HTTPStatus.FORBIDDEN, "open the address that was printed")
        token, slash, rest = path.removeprefix("/").partition("/")
        known = secrets.compare_digest(token.encode(errors="replace"), self._token.encode())
        if not (known and slash):
            return _NOT_FOUND
        if not rest:
            pages = [job.page for job in self._jobs]
            content = PageContent(pages, self._start, self._comparison())
            page = shell(self._title, content, is_served=True)
            return Answer(HTTPStatus.OK, page, "text/html; charset=utf-8")
        return await self._part(rest)

    def _comparison(self) -> object:
        """Compare two jobs once both have been read."""
        if len(self._jobs) == _TWO and all(job.page.complete for job in self._jobs):
            first, second = self._jobs
            self._compared = self._compared or compare_jobs(first.side, second.side).to_dict()
        return self._compared

    async def _part(self, path: str) -> Answer:
        if match := _ROWS.fullmatch(path):
            number, start = map(int, match.groups())
            if number < len(self._jobs):
                return Answer(HTTPStatus.OK, self._jobs[number].news(start, self._comparison()))
        elif (match := _EPISODE.fullmatch(path)) and int(match[1]) < len(self._jobs):
            try:
                record = await self._jobs[int(match[1])].record(match[2], int(match[3]))
            except SweRolloutError as error:
                return Answer(HTTPStatus.NOT_FOUND, str(error))
            return Answer(HTTPStatus.OK, record)
        return _NOT_FOUND

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on a connection and close it."""
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with self._open:
                try:
                    async with asyncio.timeout(_REQUEST_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                    method, path, host = _parse(head)
                except asyncio.LimitOverrunError:
                    answer = Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too long")
                else:
                    answer = await self.answer(method, path, host)
                writer.write(_encode(answer))
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _parse(head: bytes) -> tuple[str, str, str]:
    """Return the method, path and host of a request. Raises ValueError for anything else."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _version = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    host = next((value.strip() for name, _, value in pairs if name.lower() == "host"), "")
    return method, path, host


def _encode(answer: Answer) -> bytes:
    body = answer.body.encode(errors="replace")
    headers = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin",
        "Connection: close",
    )
    return "\r\n".join(headers).encode() + b"\r\n\r\n" + body
