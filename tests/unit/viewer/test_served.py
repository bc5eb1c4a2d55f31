"""The served page: loopback only, for who knows its address, read as it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pages import contents, unpacked
from swe_rollout.store.store import Store
from swe_rollout.viewer.page import PageJob
from swe_rollout.viewer.served import PageServer
from swe_rollout.viewer.served_jobs import ServedJob
from unit.cli.store_parts import damage, stored


@asynccontextmanager
async def serving(address: str) -> AsyncIterator[tuple[PageServer, str, str]]:
    """The server of a stored job, its host, and the path of its page."""
    page = PageJob("demo", address, (), complete=False)
    store = Store.open(f"file://{Path(address).parent}")
    server = PageServer("demo", [ServedJob(store, page, number=0)])
    async with server.serving():
        parts = urlsplit(server.address)
        yield server, parts.netloc, parts.path


async def rows(server: PageServer, host: str, path: str) -> dict[str, object]:
    """What the server says of the job once it is read."""
    while True:
        answer = await server.answer("GET", f"{path}rows/0/0/0", host)
        news: dict[str, object] = unpacked(answer.body)
        if news["complete"]:
            return news
        await asyncio.sleep(0.01)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return stored(tmp_path)


async def test_the_page_opens_before_the_store_is_read_and_rows_follow(address: str) -> None:
    async with serving(address) as (server, host, path):
        page = await server.answer("GET", path, host)
        (index,) = contents(page.body)
        news = await rows(server, host, path)

    assert page.status is HTTPStatus.OK
    assert "connect-src 'self'" in page.body
    assert index["jobs"][0]["complete"] is False
    found = news["rows"]
    assert isinstance(found, list)
    assert [row["blob"] for row in found] == ["episode/0/a/0", "episode/0/a/1"]
    assert isinstance(news["summary"], dict)


async def test_two_jobs_are_compared_once_both_are_read(address: str) -> None:
    store = Store.open(f"file://{Path(address).parent}")
    jobs = [
        ServedJob(store, PageJob("demo", address, (), complete=False), number=n) for n in range(2)
    ]
    server = PageServer("demo", jobs)
    async with server.serving():
        parts = urlsplit(server.address)
        page = await server.answer("GET", parts.path, parts.netloc)
        assert contents(page.body)[0]["comparison"] is None
        for job in jobs:
            while not job.page.complete:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        news = await rows(server, parts.netloc, parts.path)

    found = news["comparison"]
    assert isinstance(found, dict)
    assert found["flips"] == {"same": 1}


async def test_a_record_is_read_when_it_is_asked_for(address: str) -> None:
    async with serving(address) as (server, host, path):
        answer = await server.answer("GET", f"{path}episode/0/a/1", host)
        absent = await server.answer("GET", f"{path}episode/0/a/7", host)

    assert unpacked(answer.body)["episode"] == "demo/a/1"
    assert absent.status is HTTPStatus.NOT_FOUND
    assert "is not in the store" in absent.body


async def test_a_damaged_record_is_named_and_the_others_are_shown(address: str) -> None:
    damage(address, 0)

    async with serving(address) as (server, host, path):
        news = await rows(server, host, path)
        answer = await server.answer("GET", f"{path}episode/0/a/0", host)

    assert "is damaged" in str(news["damaged"])
    assert len(list(news["rows"] or [])) == 1  # type: ignore[call-overload]
    assert answer.status is HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/wrong/",
        "/wrong/rows/0/0/0/0",
        "{page}../",
        "{page}rows/9/0/0",
        "{page}rows/0/0/-1",
        "{page}episode/0/../0",
        "{page}episode/0/%2e%2e/0",
        "{page}episode/0/a/1/",
        "{page}etc/passwd",
        "{page}?x",
        "\ud800",
    ],
)
async def test_nothing_but_the_page_is_answered(address: str, path: str) -> None:
    async with serving(address) as (server, host, page):
        answer = await server.answer("GET", path.format(page=page), host)
    assert answer.status is HTTPStatus.NOT_FOUND


async def test_it_is_read_alone_and_under_names_of_this_machine(address: str) -> None:
    async with serving(address) as (server, host, path):
        port = host.partition(":")[2]
        for other in (
            *("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example"),
            *(f"localhost.evil.example:{port}", "127.0.0.1:x", "127.0.0.1:1:2", "[::]"),
        ):
            assert (await server.answer("GET", path, other)).status is HTTPStatus.FORBIDDEN
        for name in ("127.0.0.1", "localhost", "localhost:8080"):  # any forwarded port
            assert (await server.answer("GET", path, name)).status is HTTPStatus.OK
        written = await server.answer("POST", path, host)
    assert written.status is HTTPStatus.METHOD_NOT_ALLOWED


async def talk(host: str, request: bytes) -> bytes:
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET / HTTP/1.1 x\r\n\r\n"]
)
async def test_what_is_no_request_ends_its_connection_only(address: str, request_: bytes) -> None:
    async with serving(address) as (_, host, path):
        assert await talk(host, request_) == b""
        whole = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        answer = await talk(host, whole)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"Cache-Control: no-store" in head
    assert body.startswith(b"<!doctype html>")


async def test_endless_headers_are_refused(address: str) -> None:
    async with serving(address) as (_, host, _path):
        answer = await talk(host, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 4000 + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431") or answer == b""
