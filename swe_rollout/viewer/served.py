"""Serve the page of jobs to a browser on this machine; nothing is written.

The page opens at once; rows follow while the store is read, and records when they are opened. The
server listens on loopback only and answers only requests with the token in its address: neither
other users of the machine nor pages of other sites get a response.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.export.job_comparison import compare_jobs
from swe_rollout.types.episode import EpisodeId
from swe_rollout.viewer.data import packed
from swe_rollout.viewer.gold import GoldPatches
from swe_rollout.viewer.page import PageContent, content_policy, shell
from swe_rollout.viewer.search import search
from swe_rollout.viewer.served_jobs import Reading, ServedJob, ServedStore

_TWO: Final = 2
_HOST: Final = "127.0.0.1"
_REQUEST_BYTES: Final = 16 << 10
_REQUEST_S: Final = 10.0
_CONNECTIONS: Final = 32
_SEARCHED: Final = 200
"""The most characters of a text that is searched for."""
_LOOPBACK: Final = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
"""The names of this machine in a request, on whichever port it was forwarded from."""
_NAME: Final = re.compile(r"[A-Za-z0-9._+-]+")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status and its body as text."""

    status: HTTPStatus
    body: str
    content_type: str = "text/plain; charset=utf-8"
    policy: str = "default-src 'none'; sandbox"
    """The content security policy."""


_NOT_FOUND: Final = Answer(HTTPStatus.NOT_FOUND, "not found")


class PageServer:
    """Serves the page of one or two jobs, or of all jobs of a store."""

    def __init__(
        self,
        title: str,
        jobs: Sequence[ServedJob] = (),
        *,
        start: str = "",
        store: ServedStore | None = None,
    ) -> None:
        self._title = title
        self._store = store
        self._jobs = jobs if store is None else store.jobs
        self._listing = None if store is None else Reading(store.read)
        self._start = start
        self._compared: dict[str, object] | None = None
        self._compared_rows = 0
        self._gold: tuple[ServedJob, GoldPatches] | None = None
        """The fixes of the job whose episodes were opened last."""
        self._token = secrets.token_urlsafe(24)
        self._open = asyncio.Semaphore(_CONNECTIONS)
        self._conversations: set[asyncio.Task[None]] = set()
        self.address = ""
        """The address of the page, with its token; empty until it is served."""

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[None]:
        """Serve while the block runs. Port 0 means any free port."""
        try:
            server = await asyncio.start_server(self._accept, _HOST, port, limit=_REQUEST_BYTES)
        except OSError as error:
            raise UsageError(
                f"port {port} can't be listened on", why=str(error), fix="choose another --port"
            ) from error
        bound = server.sockets[0].getsockname()[1]
        self.address = f"http://{_HOST}:{bound}/{self._token}/"
        for reading in self._readings():
            reading.refresh()
        try:
            async with server:
                yield
        finally:
            for conversation in self._conversations:
                conversation.cancel()
            await asyncio.gather(*self._conversations, return_exceptions=True)
            for reading in (*self._readings(), *(job.reading for job in self._jobs)):
                await reading.stop()

    def _readings(self) -> Sequence[Reading]:
        """Return what is read without being asked for."""
        return [job.reading for job in self._jobs] if self._listing is None else [self._listing]

    async def answer(self, method: str, path: str, host: str) -> Answer:
        """Answer one request."""
        if method != "GET":
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET")
        if not _LOOPBACK.fullmatch(host):  # another site's name that resolves to this machine
            return Answer(HTTPStatus.FORBIDDEN, "open the address that was printed")
        token, slash, rest = path.removeprefix("/").partition("/")
        known = secrets.compare_digest(token.encode(errors="replace"), self._token.encode())
        if not (known and slash):
            return _NOT_FOUND
        if not rest:
            address = "" if self._store is None else self._store.address
            pages = [] if self._store is not None else [job.page for job in self._jobs]
            content = PageContent(pages, self._start, None, store=address, is_served=True)
            html = "".join(shell(self._title, content, packed(content)))
            policy = content_policy(is_served=True)
            return Answer(HTTPStatus.OK, html, "text/html; charset=utf-8", policy)
        try:
            return await self._part(rest)
        except SweRolloutError as error:
            return Answer(HTTPStatus.NOT_FOUND, str(error))

    async def _part(self, path: str) -> Answer:
        """Answer a request of the page's script. Raises UsageError for any other."""
        match path.split("/"):
            case ["jobs"] if self._store is not None and self._listing is not None:
                self._listing.refresh()
                return Answer(HTTPStatus.OK, self._store.news())
            case ["rows", number, generation, start]:
                job = self._job(number)
                if self._store is not None:
                    self._store.make_room(job)
                news = job.news(_whole(generation), _whole(start), self._comparison())
                return Answer(HTTPStatus.OK, news)
            case ["episode", number, instance, sample]:
                episode = _episode(self._job(number), instance, sample)
                return Answer(HTTPStatus.OK, await self._job(number).record(episode))
            case ["gold", number, instance, sample]:
                job = self._job(number)
                trajectory = await job.store.read(_episode(job, instance, sample))
                return Answer(HTTPStatus.OK, packed(await self._gold_of(job).beside(trajectory)))
            case ["search", number, text, *after] if len(after) in (0, _TWO):
                job = self._job(number)
                wanted = unquote(text, errors="replace")[:_SEARCHED]
                last = _episode(job, *after) if after else None
                found = await search(job.store, job.page.name, wanted, last)
                return Answer(HTTPStatus.OK, packed(found))
            case _:
                raise _no_such_part()

    def _job(self, number: str) -> ServedJob:
        if _whole(number) >= len(self._jobs):
            raise _no_such_part()
        return self._jobs[int(number)]

    def _gold_of(self, job: ServedJob) -> GoldPatches:
        if self._gold is None or self._gold[0] is not job:
            self._gold = job, GoldPatches(job.store, job.page.name)
        return self._gold[1]

    def _comparison(self) -> object:
        """Compare two jobs once both have been read, and again when they have grown."""
        if self._store is not None or len(self._jobs) != _TWO:
            return None
        first, second = self._jobs
        rows = len(first.rows) + len(second.rows)
        is_old = self._compared is None or rows != self._compared_rows
        if is_old and first.page.complete and second.page.complete:
            self._compared = compare_jobs(first.side, second.side).to_dict()
            self._compared_rows = rows
        return self._compared

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.create_task(self._converse(reader, writer))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on a connection and close it."""
        try:
            with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
                async with self._open:
                    answer = await self._answer_to(reader)
                    writer.write(_encode(answer))
                    await writer.drain()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer_to(self, reader: asyncio.StreamReader) -> Answer:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too long")
        return await self.answer(*_parse(head))


def _no_such_part() -> UsageError:
    return UsageError("not found", fix="open the address that was printed")


def _whole(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise _no_such_part()
    return int(text)


def _episode(job: ServedJob, instance: str, sample: str) -> EpisodeId:
    if _NAME.fullmatch(instance) is None:
        raise _no_such_part()
    return EpisodeId(job.page.name, instance, _whole(sample))


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
        f"Content-Security-Policy: {answer.policy}; frame-ancestors 'none'",
        "X-Frame-Options: DENY",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin",
        "Connection: close",
    )
    return "\r\n".join(headers).encode() + b"\r\n\r\n" + body
