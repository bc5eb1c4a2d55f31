"""No secret that is given by reference comes out anywhere, in any form that redaction knows.

Whoever is called with a secret may repeat it: an engine, a server of tools, a store, a proxy. Each
property takes a secret and a form of it, puts that into every text, and reads what comes out.
"""

from __future__ import annotations

import asyncio
import base64
import html
import io
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import msgspec
import pyarrow.parquet as pq
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from pages import contents
from swe_rollout.agent.tools.mcp import options as mcp_options
from swe_rollout.cluster.api_error import api_error
from swe_rollout.engine.chat.errors import error_from_response as chat_error
from swe_rollout.engine.sglang import protocol
from swe_rollout.engine.sglang.connection import _authorization
from swe_rollout.errors import DatasetError, EngineError, EpisodeError, Problem, SweRolloutError
from swe_rollout.export import files
from swe_rollout.export.parquet import export_parquet
from swe_rollout.journal import entries
from swe_rollout.journal.writer import _packed
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.sandbox.session.walk import delta_of
from swe_rollout.text import redaction
from swe_rollout.text.escaping import printable
from swe_rollout.text.logs import _StderrLogger, processors
from swe_rollout.text.redaction import redact_log
from swe_rollout.types.episode import Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import to_json
from swe_rollout.viewer.page import Page
from swe_rollout.viewer.timeline import timeline_page
from unit.viewer.records import trajectory

pytestmark = pytest.mark.threat(point=9)

LEAST = 12
"""Characters from which records are searched; see the docstring of `redaction`."""
letters = st.sampled_from("abcXYZ0189-_.~+/=%&<>'\"\\$#é日 ")
secrets = st.text(letters, min_size=26, max_size=60).filter(lambda text: len(text.strip()) >= 24)
FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: secret,
    "lower case": str.lower,
    "percent-encoded": lambda secret: quote(secret, safe=""),
    "JSON": json.dumps,
    "HTML": html.escape,
    "hexadecimal": lambda secret: secret.encode().hex(),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 of a header": lambda secret: base64.b64encode(f"me:{secret}".encode()).decode(),
    "in Python": repr,
}
forms = st.sampled_from(sorted(FORMS))
FEW = settings(max_examples=25)


@contextmanager
def in_use(secret: str) -> Iterator[None]:
    """A process that was given the secret, and forgets it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_ALL", redaction.Redactor())
        patch.setattr(redaction, "_IN_USE", redaction.Redactor())
        redaction.register(secret)
        yield


def leaks(secret: str, text: str) -> list[str]:
    """Name the forms of which a piece is left that says something of the secret."""
    kept = text.lower()
    found = []
    for name, form in FORMS.items():
        whole = form(secret.strip()).lower()
        middle = whole[len(whole) // 4 : -(len(whole) // 4)]
        if len(middle) >= LEAST and middle in kept:
            found.append(name)
    return found


def texts_in(value: object) -> Iterator[str]:
    """Every text of plain values, names too."""
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():
                yield str(key)
                yield from texts_in(inner)
        case list() | tuple():
            for inner in value:
                yield from texts_in(inner)


def check(secret: str, *values: object) -> None:
    for text in texts_in(values):
        assert not leaks(secret, text), text[:500]


def record(text: str) -> Trajectory:
    made = trajectory(text=text)
    failure = Failure.of(EngineError(text, why=text, fix=text))
    [turn] = made.turns
    turn = replace(turn, message=text)
    return replace(made, turns=(turn,), failure=failure, stop_evidence=text)


@given(secret=secrets, form=forms)
def test_errors_and_what_is_made_of_them(secret: str, form: str) -> None:
    with in_use(secret):
        text = f"the server says {FORMS[form](secret)}!"
        made: list[SweRolloutError] = [
            EngineError(text, why=text, fix=text),
            DatasetError(text, [Problem(text, text, text)], fix=text),
            api_error("read", 403, json.dumps({"message": text, "reason": text}).encode()),
            api_error("read", 502, text.encode()),
            protocol.error_from_response(500, text.encode()),
            protocol.error_from_response(400, json.dumps({"error": {"message": text}}).encode()),
            chat_error(400, json.dumps({"error": {"message": text, "code": text}}).encode()),
            chat_error(500, text.encode()),
        ]
        for error in made:
            failures = [Failure.of(error)] if isinstance(error, EpisodeError) else []
            check(secret, str(error), repr(error), error.why, error.fix, *map(repr, failures))


@given(secret=secrets, form=forms)
def test_log_lines_with_tracebacks(secret: str, form: str) -> None:
    text = FORMS[form](secret)
    with in_use(secret), redirect_stderr(io.StringIO()) as lines:
        logger = structlog.wrap_logger(_StderrLogger(), processors=processors())
        cause = ValueError(text)
        logger.warning("failed", why=text, exc_info=cause, headers={"Authorization": text})
        assert "failed" in lines.getvalue()
        check(secret, lines.getvalue())


@given(secret=secrets, form=forms)
@FEW
def test_records_pages_and_timelines(secret: str, form: str) -> None:
    text = f"x {FORMS[form](secret)} y"
    with in_use(secret):
        made = record(text)
        stored = to_json(made)
        check(secret, msgspec.json.decode(stored))
        page = Page()
        page.add(page.add_job("demo", "runs/demo"), made, None)
        check(secret, *contents(page.html())[1:])
        check(secret, printable(timeline_page(made)))


@given(secret=secrets, form=forms)
@FEW
def test_exports(secret: str, form: str) -> None:
    async def one(made: Trajectory) -> AsyncIterator[Trajectory]:
        yield made

    async def written(folder: Path, made: Trajectory) -> None:
        await files.export(one(made), folder / "a.json", files.JSON)
        await files.export(one(made), folder / "a.txt", files.text_format(printable))
        await export_parquet(one(made), folder / "a.parquet")

    text = f"x {FORMS[form](secret)} y"
    with in_use(secret), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(written(folder, record(text)))
        check(secret, json.loads((folder / "a.json").read_bytes()))
        check(secret, (folder / "a.txt").read_text())
        check(secret, pq.read_table(folder / "a.parquet").to_pylist())


@given(secret=secrets, form=forms)
def test_test_logs(secret: str, form: str) -> None:
    with in_use(secret):
        text = f"PASSED a::b\n{FORMS[form](secret)}\nFAILED c::d"
        kept = redact_log(text.encode()).decode()
        check(secret, kept)
        assert kept.startswith("PASSED a::b")


@given(secret=secrets, form=forms)
def test_journals(secret: str, form: str) -> None:
    """A turn that holds a secret ends the journal: what was sampled can't be changed."""
    data = FORMS[form](secret).encode()
    ran = entries.Ran(0, data, b"", timed_out=False, stdout_bytes=1, stderr_bytes=0, duration_s=0)
    file = delta_of(ExecResult(0, b"F/app/x\0" + data * 3, bytes(40)), 1)
    with in_use(secret):
        for chunk in (
            entries.Chunk("w", entries=(entries.Entry(0, "run:x", ran),)),
            entries.Chunk("w", delta=entries.Delta.of(file)),
        ):
            with pytest.raises(ValueError, match="credential"):
                _packed(entries.encode(chunk), chunk.delta)
    # It is the secret that is refused, and nothing else.
    with in_use("another-secret-of-this-process"):
        delta = entries.Delta.of(file)
        chunk = entries.Chunk("w", delta=delta)
        assert entries.decode(_packed(entries.encode(chunk), delta)) == chunk


@pytest.mark.parametrize("header", ["Authorization", "x-api-key"])
def test_an_engine_key_is_known_from_its_first_use(
    monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    monkeypatch.setenv("ENGINE_KEY", "an-engine-key-0123456789")
    assert any("an-engine-key" in each for each in _authorization("ENGINE_KEY", header).values())
    check("an-engine-key-0123456789", str(EngineError("it says an-engine-key-0123456789")))


def test_headers_of_tool_servers_are_known_from_their_first_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("mcp_types", reason="pip install 'swe-rollout[mcp]' to run these tests")
    from swe_rollout.agent.tools.mcp.http import HttpServer  # noqa: PLC0415 - an extra

    monkeypatch.setenv("TOOL_KEY", "a-tool-key-0123456789")
    monkeypatch.setenv("OTHER", "a-header-0123456789")
    HttpServer(
        mcp_options.McpOptions.model_validate(
            {
                "url": "http://tools.example/mcp",
                "apiKeyEnv": "TOOL_KEY",
                "headersEnv": {"X-Other": "OTHER"},
            }
        )
    )
    said = str(EngineError("a-tool-key-0123456789 and a-header-0123456789"))
    assert said == f"{redaction.MARK} and {redaction.MARK}"


@given(secret=secrets)
def test_a_search_that_finds_nothing_would_fail(secret: str) -> None:
    """The check itself sees every form that is left."""
    for name, form in FORMS.items():
        assert leaks(secret, f"x {form(secret.strip())} y"), name
