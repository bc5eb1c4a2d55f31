"""Buckets: objects by their address, on servers that behave in every way."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from swe_rollout.errors import PrerequisiteError, SweRolloutError, UnreachableError, UsageError
from swe_rollout.store import bucket as bucket_module
from swe_rollout.store.bucket import Bucket, create_object, read_object
from swe_rollout.store.faults import fix_of_folder
from unit.store.storage_server import (
    CLOUDS,
    CREDENTIALS,
    Environment,
    Memory,
    Request,
    Response,
    Serve,
    error,
    storage,
)


@pytest.mark.threat(point=20)
async def test_a_folder_lists_files_of_any_name_and_no_staged_ones(tmp_path: Path) -> None:
    bucket = Bucket.open(f"file://{tmp_path}")
    assert await bucket.create("job/a b", b"")
    assert await bucket.create("job/deep/ü", b"")
    (tmp_path / "job" / "new\nline").touch()
    (tmp_path / "job" / os.fsdecode(b"\xff")).touch()
    (tmp_path / "job" / "half#1").touch()
    found = {key async for key in bucket.keys("job")}
    assert found == {"job/a b", "job/deep/ü", "job/new\nline", os.fsdecode(b"job/\xff")}
    assert await bucket.folders() == ("job",)
    await bucket.move("job/a b", "elsewhere/c")
    assert await bucket.get("elsewhere/c") == b""


async def test_a_folder_that_is_emptied_while_it_is_listed_has_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process commits an episode, and removes the journal and its folder."""
    bucket = Bucket.open(f"file://{tmp_path}")
    for name in ("a", "b"):
        await bucket.create(f"folder/{name}/object", b"")
    scandir = os.scandir

    def emptied(path: str) -> object:
        if path.endswith("/a"):
            (tmp_path / "folder/a/object").unlink()
            (tmp_path / "folder/a").rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", emptied)
    assert [key async for key in bucket.keys("folder")] == ["folder/b/object"]


@pytest.mark.threat(point=19)
@pytest.mark.parametrize("uri", CLOUDS)
async def test_of_many_writers_on_any_cloud_one_creates_the_object(uri: str, serve: Serve) -> None:
    with serve(Memory(), uri) as server:
        buckets = [Bucket.open(uri) for _ in range(12)]
        data = [str(number).encode() for number in range(12)]
        won = await asyncio.gather(
            *(bucket.create("key", each) for bucket, each in zip(buckets, data, strict=True))
        )
        assert won.count(True) == 1
        assert await buckets[0].get("key") == data[won.index(True)]
        with pytest.raises(FileNotFoundError):
            await buckets[0].get("other")
        assert all(_is_conditional(each) for each in server.requests if each.method == "PUT")


def _is_conditional(request: Request) -> bool:
    headers = request.headers
    return headers.get("if-none-match") == "*" or headers.get("x-goog-if-generation-match") == "0"


@pytest.mark.threat(point=19)
@pytest.mark.parametrize("uri", CLOUDS)
async def test_a_server_that_ignores_conditions_is_no_store(uri: str, serve: Serve) -> None:
    refusing = pytest.raises(UsageError, match="can't be a store")
    with serve(Memory(keeps_conditions=False), uri), refusing as caught:
        await Bucket.open(uri).create("key", b"data")
    assert "overwrites" in caught.value.why or "replaces" in caught.value.why


@pytest.mark.parametrize("call", ["get", "create", "keys"])
async def test_a_clock_that_is_wrong_is_named(call: str, serve: Serve) -> None:
    """Issue 16, 6: a machine that was suspended signs with the time of then, until NTP sets it."""
    skewed = error(403, "RequestTimeTooSkewed", "The difference is too large.")
    with serve(lambda _: skewed) as server:
        caught = await _failure(Bucket.open("s3://bucket/folder"), call)
        assert len(server.requests) > 1
    assert "this machine's clock is wrong: " in caught.why
    assert "403 RequestTimeTooSkewed: The difference is too large." in caught.why
    assert "timedatectl" in caught.fix


PERMANENT = {
    "key": (error(403, "InvalidAccessKeyId"), "403 InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
    "signature": (error(403, "SignatureDoesNotMatch"), "SignatureDoesNotMatch", "credentials"),
    "denied": (error(403, "AccessDenied"), "403 AccessDenied", "permissions"),
    "bucket": (error(404, "NoSuchBucket"), "the bucket does not exist", "correct its name"),
    "region": (error(400, "AuthorizationHeaderMalformed"), "the region is wrong", "AWS_REGION"),
    "redirect": (error(301, "PermanentRedirect"), "the region is wrong", "AWS_REGION"),
    "header": (error(501, "NotImplemented"), "501 NotImplemented", "address"),
}
"""What a server says, the reason, and part of the fix."""


@pytest.mark.threat(point=19)
@pytest.mark.parametrize("call", ["get", "create", "keys"])
@pytest.mark.parametrize("case", PERMANENT)
async def test_what_can_t_succeed_is_asked_once_and_explained(
    case: str, call: str, serve: Serve
) -> None:
    response, why, fix = PERMANENT[case]
    with serve(lambda _: response) as server:
        caught = await _failure(Bucket.open("s3://bucket/folder"), call)
        assert len(server.requests) == 1
    assert why in caught.why
    assert fix in caught.fix
    assert "s3://bucket/folder" in caught.what


@pytest.mark.parametrize(
    ("uri", "create", "right"),
    [
        ("s3://bucket/folder", "aws s3 mb s3://bucket", "s3:PutObject"),
        ("gs://bucket/folder", "gcloud storage buckets create gs://bucket", "storage.objects.cre"),
        ("az://bucket/folder", "az storage container create --name bucket", "Blob Data Contrib"),
    ],
)
async def test_each_cloud_has_a_command_for_a_bucket_and_a_right_for_a_call(
    uri: str, create: str, right: str, serve: Serve
) -> None:
    refusals = iter([error(404, "NoSuchBucket"), error(403, "AccessDenied")])
    with serve(lambda _: next(refusals), uri):
        missing = await _failure(Bucket.open(uri), "create")
        denied = await _failure(Bucket.open(uri), "create")
    assert f"`{create}`" in missing.fix
    assert right in denied.fix


async def _failure(bucket: Bucket, call: str) -> SweRolloutError:
    with pytest.raises(UnreachableError) as caught:
        await _called(bucket, call)
    return caught.value


async def _called(bucket: Bucket, call: str) -> None:
    match call:
        case "get":
            await bucket.get("key")
        case "create":
            await bucket.create("key", b"data")
        case _:
            assert [key async for key in bucket.keys("folder")]


@pytest.mark.threat(point=19)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (429, "SlowDown"),
        (500, "SlowDown"),
        (503, "SlowDown"),
        (409, "ConditionalRequestConflict"),  # of two writers, of whom both may fail
        (403, "RequestTimeTooSkewed"),  # until NTP sets the clock
    ],
)
async def test_what_may_succeed_later_is_tried_again(status: int, code: str, serve: Serve) -> None:
    memory = Memory()
    failures = iter([error(status, code)] * 2)
    with serve(lambda request: next(failures, None) or memory(request)):
        assert await Bucket.open("s3://bucket").create("key", b"data")
    assert list(memory.objects.values()) == [b"data"]


async def test_an_observer_hears_of_refusals_and_of_what_takes_long_until_it_succeeds(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket that may be read and not written, then one that is slow."""
    monkeypatch.setattr(bucket_module, "SLOW_S", 3600.0)
    heard: list[tuple[str, str]] = []
    memory = Memory()
    is_readonly = True

    def respond(request: Request) -> Response | None:
        if request.method == "PUT" and is_readonly:
            return error(403, "AccessDenied")
        return memory(request)

    with serve(respond) as server:
        bucket = Bucket.open("s3://bucket/folder")
        bucket.observe(lambda kind, failed: heard.append((kind, failed.why if failed else "")))
        with pytest.raises(UnreachableError):
            await bucket.create("key", b"data")
        with pytest.raises(FileNotFoundError):
            await bucket.get("key")
        is_readonly = False
        assert await bucket.create("key", b"data")
        monkeypatch.setattr(bucket_module, "SLOW_S", 0.05)
        server.delay_s = 0.3
        assert await bucket.get("key") == b"data"
    assert [kind for kind, _ in heard] == ["write", "read", "write", "write", "read", "read"]
    assert "AccessDenied" in heard[0][1]
    assert [why for _, why in heard[1:4]] == ["", "", ""]
    assert heard[4][1] == "no response for 0.05 s"
    assert heard[5][1] == ""


@pytest.mark.threat(point=19)
async def test_a_listing_that_breaks_between_pages_is_never_short(
    serve: Serve,
) -> None:
    pages = Pages()
    with serve(pages):
        keys = [key async for key in Bucket.open("s3://bucket").keys("p")]
    assert sorted(keys) == ["p/1", "p/2"]
    assert pages.broken


@pytest.mark.threat(point=19)
async def test_a_page_that_fails_is_asked_for_again_alone(serve: Serve) -> None:
    memory = Memory()
    memory.objects = {f"/bucket/p/{number:04}": b"" for number in range(2_500)}
    failures = [error(503, "SlowDown")]

    def respond(request: Request) -> Response:
        is_later = "continuation-token" in request.path
        return failures.pop() if is_later and failures else memory(request)

    with serve(respond) as server:
        keys = [key async for key in Bucket.open("s3://bucket").keys("p")]
    assert keys == [f"p/{number:04}" for number in range(2_500)]
    assert len(server.requests) == 4
    assert "start-after=p%2F0999" in server.requests[2].path


class Pages:
    """A listing of two pages, whose second one fails the first time."""

    broken = False

    def __call__(self, request: Request) -> Response:
        if "continuation-token" not in request.path:
            return _page("p/1", "<NextContinuationToken>two</NextContinuationToken>")
        if not self.broken:
            self.broken = True
            return error(503, "SlowDown")
        return _page("p/2", "")


def _page(key: str, following: str) -> Response:
    text = (
        f"<ListBucketResult>{following}<Contents><Key>{key}</Key><Size>1</Size>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
        "</ListBucketResult>"
    )
    return Response(200, text.encode())


@pytest.mark.threat(point=19)
@pytest.mark.parametrize("uri", CLOUDS)
def test_missing_credentials_are_named_before_anything_is_contacted(
    uri: str, environment: Environment
) -> None:
    every = CLOUDS[uri]("http://127.0.0.1:1")
    environment({n: v for n, v in every.items() if "ENDPOINT" in n or "URL" in n or "NAME" in n})
    with pytest.raises(PrerequisiteError, match="there are no credentials") as caught:
        Bucket.open(uri)
    assert "export" in caught.value.fix


@pytest.mark.threat(point=19)
@pytest.mark.parametrize("missing", CREDENTIALS)
def test_half_a_pair_of_credentials_is_named(missing: str, environment: Environment) -> None:
    values = {name: value for name, value in CREDENTIALS.items() if name != missing}
    environment({**values, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    with pytest.raises(PrerequisiteError) as caught:
        Bucket.open("s3://bucket")
    assert missing in caught.value.fix


@pytest.mark.threat(point=19)
async def test_a_metadata_address_is_never_the_reason(environment: Environment) -> None:
    """Without an endpoint the machine itself may have an identity, so the cloud is asked: once."""
    refusal = Response(403, b"denied by a proxy")
    with storage(lambda _: refusal) as server:
        environment({"AWS_METADATA_ENDPOINT": server.url, "AWS_REGION": "eu-central-1"})
        caught = await _failure(Bucket.open("s3://bucket"), "get")
        assert len(server.requests) == 1
    assert caught.why == "there are no credentials, and this machine has no identity"
    assert "AWS_ACCESS_KEY_ID" in caught.fix


@pytest.mark.threat(point=19)
async def test_a_name_without_an_address_is_not_retried(environment: Environment) -> None:
    environment({**CREDENTIALS, "AWS_ENDPOINT_URL": "https://no-such-host.invalid"})
    caught = await _failure(Bucket.open("s3://bucket"), "get")
    assert caught.why == "https://no-such-host.invalid: its name can't be resolved"


@pytest.mark.threat(point=19)
async def test_a_closed_port_and_https_on_a_plain_one_say_so(environment: Environment) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        environment({**CREDENTIALS, "AWS_ENDPOINT_URL": url})
        caught = await _failure(Bucket.open("s3://bucket"), "get")
        assert caught.why == f"{url}: it refuses connections"
    with storage(Memory()) as server:
        url = server.url.replace("http:", "https:")
        environment({**CREDENTIALS, "AWS_ENDPOINT_URL": url})
        caught = await _failure(Bucket.open("s3://bucket"), "get")
        assert caught.why == f"{url}: it does not speak https"


@pytest.mark.threat(point=19)
@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"AWS_ENDPOINT_URL": "minio:9000"}, "AWS_ENDPOINT_URL is no address"),
        ({"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ALLOW_HTTP": "false"}, "plain http"),
    ],
)
def test_an_endpoint_that_can_t_be_used_is_named(
    values: dict[str, str], what: str, environment: Environment
) -> None:
    environment({**CREDENTIALS, **values})
    with pytest.raises(UsageError, match=what):
        Bucket.open("s3://bucket")


@pytest.mark.threat(point=19)
@pytest.mark.parametrize(
    "uri",
    [
        *("s3://", "s3:///x", "s3a://b/x", "gcs://b", "abfs://c/x", "memory://x", "ftp://h/x"),
        *(f"file:///a/{'é' * 128}/b", f"s3://{'b' * 64}/x", f"gs://a.{'b' * 64}"),
        *("https://bucket.s3.amazonaws.com/x", "http://h/x", "runs", "", "S3://b", "s3://?x"),
    ],
)
def test_other_addresses_are_no_stores(uri: str, environment: Environment) -> None:
    """Some that obstore opens have no conditional create."""
    environment(CREDENTIALS)
    with pytest.raises(UsageError, match="can't be opened as a store"):
        Bucket.open(uri)


@pytest.mark.threat(point=9)
async def test_credentials_are_neither_taken_from_an_address_nor_shown(
    environment: Environment,
) -> None:
    secret = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    environment(CREDENTIALS)
    with pytest.raises(UsageError) as caught:
        Bucket.open(f"s3://me:{secret}@bucket/x")
    assert secret not in f"{caught.value} {caught.value.fix}"

    def echo(request: Request) -> Response:
        said = json.dumps([request.headers, *CREDENTIALS.values()])
        return error(403, "AccessDenied", message=said)

    with storage(echo) as server:
        environment({**CREDENTIALS, "AWS_ENDPOINT_URL": server.url})
        failure = await _failure(Bucket.open("s3://bucket"), "get")
    for value in CREDENTIALS.values():
        assert value not in f"{failure} {failure.fix}"


async def test_an_object_is_created_at_its_own_address(serve: Serve) -> None:
    with serve(Memory()):
        assert await create_object("s3://bucket/folder/rows.jsonl", b"{}")
        assert await read_object("s3://bucket/folder/rows.jsonl") == b"{}"
    with pytest.raises(UsageError, match="does not name an object"):
        await create_object("s3://bucket", b"")


@pytest.mark.threat(point=22)
async def test_a_folder_that_can_t_be_made_is_unreachable_and_a_missing_one_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnreachableError, match="can't write"):
        await Bucket.open(f"file://{tmp_path}/file/runs").create("key", b"")
    with pytest.raises(UnreachableError, match="can't write"):
        await Bucket.open("file:///proc/no-such/runs").create("key", b"")
    missing = Bucket.open(f"file://{tmp_path}/nowhere/runs")
    assert missing.why_missing("key") == f"the folder {tmp_path}/nowhere does not exist"
    assert Bucket.open(f"file://{tmp_path}").why_missing("key") == "key does not exist"


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("No space left on device", "free space on its disk"),
        ("Read-only file system", "mount it for writing"),
        ("Permission denied", "give this user access"),
    ],
)
def test_a_folder_that_fails_has_its_fix(error: str, fix: str) -> None:
    assert fix_of_folder(OSError(error)).startswith(fix)


FORK = """
import asyncio, os, signal, sys
from swe_rollout.errors import UsageError
from swe_rollout.store.bucket import Bucket

bucket = Bucket.open(sys.argv[1])
asyncio.run(bucket.create("key", b"data"))
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
signal.alarm(20)
print(asyncio.run(bucket.get("key")))
for other in (bucket, Bucket.open("s3://bucket")):
    try:
        asyncio.run(other.create("other", b""))
    except UsageError as error:
        print(error.fix)
"""


def test_a_fork_reads_a_folder_and_is_refused_what_would_never_return(
    tmp_path: Path, environment: Environment
) -> None:
    environment({**CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    command = (sys.executable, "-c", FORK, f"file://{tmp_path}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("spawn or forkserver")) == (0, 2), done
    assert "b'data'" in done.stdout
