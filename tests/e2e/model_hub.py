"""A hub of models on loopback: one repository that all may read, and one for those with a token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from swe_rollout.testing.tiny import tokenizer_path

TOKEN = "hf_a-token-of-tests"
_OPEN, _GATED = "/my-org/open", "/my-org/gated"


class Hub(BaseHTTPRequestHandler):
    """Has the files of the tiny tokenizer in both, and refuses as the real hub does."""

    def do_GET(self) -> None:
        """Send a file."""
        self.answer()

    def answer(self) -> None:
        """Send a file of this hub, or why it has none."""
        repository, _, name = self.path.partition("/resolve/main/")
        may_read = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository == _GATED and not may_read:
            self.respond(401, {"X-Error-Code": "GatedRepo"})
        elif repository not in (_OPEN, _GATED) and not name:
            self.respond(404, {"X-Error-Code": "EntryNotFound"})
        elif repository not in (_OPEN, _GATED):
            self.respond(401, {"X-Error-Code": "RepoNotFound"})
        elif (path := tokenizer_path() / name).is_file():
            data = path.read_bytes()
            headers = {"ETag": f'"{sha256(data).hexdigest()}"', "X-Repo-Commit": "a" * 40}
            self.respond(200, headers, data)
        else:
            self.respond(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": "a" * 40})

    do_HEAD = do_GET  # noqa: N815 - the base's name

    def respond(self, status: int, headers: dict[str, str], data: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@contextmanager
def model_hub(kind: type[Hub] = Hub) -> Iterator[str]:
    """Serve a hub; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
