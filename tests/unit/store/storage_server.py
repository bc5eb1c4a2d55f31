"""A server of object storage on loopback whose responses a test chooses."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import parse_qs, unquote

PAGE = 1000
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "a-key-of-tests", "AWS_SECRET_ACCESS_KEY": "a-secret-of-tests"}


AZURE_KEY = "YS1zZWNyZXQtb2YtdGVzdHM="
"""`a-secret-of-tests` in base64."""
CLOUDS: dict[str, Callable[[str], dict[str, str]]] = {
    "s3://bucket/folder": lambda url: {**CREDENTIALS, "AWS_ENDPOINT_URL": url},
    "gs://bucket/folder": lambda url: {
        "GOOGLE_BASE_URL": url,
        "GOOGLE_BEARER_TOKEN": "a-token-of-tests",
    },
    "az://bucket/folder": lambda url: {
        "AZURE_STORAGE_ACCOUNT_NAME": "tests",
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
        "AZURE_ENDPOINT": url,
    },
}
"""The variables of each cloud, by the address of a bucket in it."""
Environment = Callable[[dict[str, str]], None]


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes


@dataclass(frozen=True)
class Response:
    """One response."""

    status: int
    body: bytes = b""


Respond = Callable[[Request], Response | None]
"""What to respond; nothing closes the connection."""


@dataclass
class Storage:
    """A running server, and what it was asked."""

    respond: Respond
    delay_s: float = 0.0
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"


class Serve(Protocol):
    """Serves object storage while a block runs."""

    def __call__(
        self, respond: Respond, uri: str = "s3://bucket/folder"
    ) -> AbstractContextManager[Storage]: ...


def error(status: int, code: str, message: str = "as the test wants it") -> Response:
    """An error in the form of S3, which the other clouds share."""
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Response(status, text.encode())


class Memory:
    """Objects in memory, with conditional creates as all three clouds have them."""

    def __init__(self, *, keeps_conditions: bool = True) -> None:
        self.objects: dict[str, bytes] = {}
        self._keeps_conditions = keeps_conditions
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Response:
        path, _, query = request.path.partition("?")
        with self._lock:
            if "list-type=2" in query:
                return self._list(path, query)
            if request.method == "POST" and "delete" in query:
                return self._delete(path, request.body.decode())
            if request.method == "DELETE":
                return Response(204 if self.objects.pop(path, None) is not None else 404)
            if request.method == "PUT":
                return self._put(request, path)
            if path in self.objects:
                return Response(200, self.objects[path])
        return error(404, "NoSuchKey")

    def _list(self, bucket: str, query: str) -> Response:
        """List as S3 does, a thousand on one page."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        prefix = unquote(asked.get("prefix", ""))
        after = asked.get("continuation-token", asked.get("start-after", ""))
        every = sorted(path.removeprefix(f"{bucket}/") for path in self.objects)
        keys = [key for key in every if key.startswith(prefix) and key > after]
        found = "".join(
            f"<Contents><Key>{key}</Key><Size>1</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys[:PAGE]
        )
        more = len(keys) > PAGE and f"<NextContinuationToken>{keys[PAGE - 1]}"
        head = f"<Prefix>{prefix}</Prefix>{more}</NextContinuationToken>" if more else ""
        return Response(200, f"<ListBucketResult>{head}{found}</ListBucketResult>".encode())

    def _delete(self, bucket: str, body: str) -> Response:
        """Delete several objects, as S3 does."""
        keys = re.findall(r"<Key>(.*?)</Key>", body)
        for key in keys:
            self.objects.pop(f"{bucket}/{key}", None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return Response(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _put(self, request: Request, path: str) -> Response:
        is_create = (
            request.headers.get("if-none-match") == "*"
            or request.headers.get("x-goog-if-generation-match") == "0"
        )
        if is_create and self._keeps_conditions and path in self.objects:
            return error(412, "PreconditionFailed")
        self.objects[path] = request.body
        return Response(200)


@contextmanager
def storage(respond: Respond, *, delay_s: float = 0.0) -> Iterator[Storage]:
    """Serve on a free port."""
    state = Storage(respond, delay_s)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, body)
            state.requests.append(request)
            time.sleep(state.delay_s)
            response = state.respond(request)
            if response is None:
                self.close_connection = True
                return
            self.send_response(response.status)
            self.send_header("ETag", '"1"')
            self.send_header("x-goog-generation", "1")
            self.send_header("Last-Modified", "Wed, 01 Jul 2026 00:00:00 GMT")
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815 - the base's names

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the base's

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
