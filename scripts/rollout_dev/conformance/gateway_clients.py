"""The vendors' own clients, over HTTP: do they play, and are tokens exact?

Each plays an episode with one call, two at a time and an end; asks what is refused, and has to
raise its own error; leaves streams and asks again, and has to get the same answer; and waits as it
is told. Without them, there are rows that say how to install them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, TypeAlias
from unittest.mock import patch

from aiohttp import web
from aiohttp.test_utils import TestServer

from rollout_dev.conformance.gateway_scene import Speaking, conversations, problems, trained
from rollout_dev.conformance.gateway_speakers import SPEAKERS, Speaker
from rollout_dev.peers.environment import HOW
from rollout_dev.report import Report, Row
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import EngineError
from swe_rollout.gateway import server
from swe_rollout.gateway.conversations import Conversations
from swe_rollout.gateway.harness import OneEpisode, OneSession
from swe_rollout.gateway.server import MAX_BODY_BYTES, MOST_RUNNING, Api
from swe_rollout.spec.limits import Limits
from swe_rollout.types.turn import Generation

_KEY: Final = "the key of the episode"
_FAILED: Final = 503
_RETRY_S: Final = 0.99
"""`Retry-After` says 1 s, and clocks may differ by a little."""


def _call(command: str) -> str:
    body = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"<tool_call>\n{body}\n</tool_call>"


_SAYS: Final = (
    f"<think>\nHm.\n</think>\n\nI look.\n{_call('ls')}",
    f"{_call('cat a')}\n{_call('cat b')}",
    "Done.",
)


class _Engine(Speaking):
    """Says the script in turn, once it may."""

    def __init__(self) -> None:
        texts = iter(_SAYS)
        super().__init__(lambda: next(texts, "More."))
        self.began, self.may = asyncio.Event(), asyncio.Event()
        self.may.set()
        self.fails_s = 0.0

    async def generate(self, request: GenerateRequest) -> Generation:
        if self.fails_s:
            await asyncio.sleep(self.fails_s)
            raise EngineError("the engine is gone")
        self.began.set()
        await self.may.wait()
        return await super().generate(request)


class _Episode(OneSession):
    """A session that is busy for its first requests, and knows when it was asked."""

    busy = 0

    def __init__(self, played: Conversations) -> None:
        super().__init__(_KEY, played)
        self.asked = list[float]()

    def by_key(self, key: str) -> OneSession | None:
        """Return this session, if the key is its own."""
        if OneEpisode(self).by_key(key) is None:
            return None
        if self.busy:
            self.running = MOST_RUNNING if len(self.asked) < self.busy else 0
        self.asked.append(time.monotonic())
        return self


@dataclass(slots=True)
class _Scene:
    """One client and one episode."""

    kind: type[Speaker]
    url: str
    engine: _Engine
    session: _Episode
    streams: bool
    figures: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    opened: list[Speaker] = field(default_factory=list)

    def speaker(self, key: str = _KEY, *, retries: int = 0) -> Speaker:
        self.opened.append(self.kind(self.url, key, retries=retries))
        return self.opened[-1]

    def expect(self, what: str, *, holds: bool) -> None:
        if not holds:
            self.wrong.append(what)


async def _plays(scene: _Scene) -> None:
    speaker, streams = scene.speaker(), scene.streams
    talk = [speaker.user("It fails.")]
    for text, commands in (("I look.", ["ls"]), ("", ["cat a", "cat b"]), ("Done.", [])):
        said = await speaker.ask(talk, streams=streams)
        told = [(call.name, call.arguments) for call in said.calls]
        wanted = [("bash", {"command": each}) for each in commands]
        scene.expect(f"it read {said}", holds=(said.text, told) == (text, wanted))
        again = await speaker.ask(talk, streams=not streams)
        scene.expect(f"it got another answer when it asked again: {again}", holds=said == again)
        results = speaker.results(said.calls, [f"$ {each}" for each in commands])
        talk += [*said.items, *(results if commands else ())]
    played = scene.session.conversations
    scene.expect(
        f"branches were opened: {played.state.differences}", holds=len(played.branches()) == 1
    )


async def _is_refused(scene: _Scene) -> None:
    speaker = scene.speaker()
    hello = [speaker.user("Hello.")]
    await speaker.ask(hello, streams=scene.streams)
    attempts: list[tuple[int, Speaker, list[object], Mapping[str, object]]] = [
        (400, speaker, [speaker.user("word " * 9000)], {}),
        *((400, speaker, hello, bad) for bad in speaker.bad),
        (401, scene.speaker("another key"), hello, {}),
        (403, speaker, [speaker.user("One turn more.")], {}),
        (_FAILED, speaker, hello, {}),
    ]
    for status, asking, talk, more in attempts:
        if status == _FAILED:
            scene.session.conversations.fail(EngineError("the engine is gone"))
        try:
            await asking.ask(talk, streams=scene.streams, **more)
        except asking.error(status) as error:
            found = getattr(error, "status_code", getattr(error, "code", None))
            scene.expect(f"{status} came as {found}: {error}", holds=found == status)
        else:
            scene.expect(f"{status} was no error", holds=False)
    scene.figures["errors"] = float(len(attempts))


async def _wants_no_calls(scene: _Scene) -> None:
    speaker = scene.speaker()
    talk = [speaker.user("It fails.")]
    for text in ("I look.", "cat a"):
        said = await speaker.ask(talk, streams=scene.streams, **speaker.calls_none)
        scene.expect(f"it read {said}", holds=text in said.text and not said.calls)
        talk += [*said.items, speaker.user("Go on.")]
    opened = len(scene.session.conversations.branches())
    scene.expect(f"{opened} branches were opened", holds=opened == 1)


async def _leaves(scene: _Scene) -> None:
    speaker, engine = scene.speaker(), scene.engine
    hello = [speaker.user("Hello.")]
    engine.may.clear()
    asking = asyncio.create_task(speaker.ask(hello, streams=scene.streams))
    await engine.began.wait()
    asking.cancel()
    await asyncio.wait([asking])
    scene.expect("it could not leave", holds=asking.cancelled())
    engine.may.set()
    first = await speaker.ask(hello, streams=scene.streams)
    await speaker.leave(hello)
    again = await speaker.ask(hello, streams=scene.streams)
    scene.expect("who left got another answer", holds=first == again and len(engine.calls) == 1)


async def _waits(scene: _Scene) -> None:
    scene.session.busy = 1
    speaker = scene.speaker(retries=1)
    await speaker.ask([speaker.user("Hello.")], streams=scene.streams)
    first, second = scene.session.asked
    scene.figures["waited_s"] = round(second - first, 2)
    heeds = second - first >= _RETRY_S or not speaker.heeds_retry_after
    scene.expect("it did not wait as it was told", holds=heeds)


async def _lists(scene: _Scene) -> None:
    speaker = scene.speaker()
    hello = [speaker.user("Hello.")]
    models = await speaker.models()
    scene.expect(f"the models are {models}", holds=models in (["policy"], ["models/policy"]))
    counted = 0 if speaker.counts is None else await speaker.count(hello)
    await speaker.ask(hello, streams=scene.streams, **(speaker.counts or {}))
    ((_, sent, _),) = scene.engine.calls
    scene.expect(f"it counted {counted}, not {len(sent)}", holds=counted in (0, len(sent)))
    if counted:
        scene.figures["counted"] = float(counted)


async def _fails_late(scene: _Scene) -> None:
    speaker, scene.engine.fails_s = scene.speaker(), 0.05
    with patch.object(server, "_PING_S", 0.01):
        try:
            said = await speaker.ask([speaker.user("Hello.")], streams=True)
        except speaker.late():
            return
    scene.expect(f"it took a failure for {said}", holds=False)


_Part: TypeAlias = Callable[[_Scene], Awaitable[None]]
_PARTS: Final[Mapping[str, tuple[_Part, Limits]]] = {
    "plays, with calls": (_plays, Limits()),
    "wants no calls": (_wants_no_calls, Limits()),
    "is refused": (_is_refused, Limits(turns=1, context_tokens=4096, max_new_tokens=64)),
    "leaves, and asks again": (_leaves, Limits()),
    "waits": (_waits, Limits()),
    "lists models, and counts": (_lists, Limits()),
    "fails in a stream": (_fails_late, Limits()),
}


async def played() -> Report:
    """Let all clients that are installed play."""
    rows, notes = list[Row](), list[str]()
    for kind in SPEAKERS:
        try:
            import_module(kind.package)
        except ImportError:
            rows.append(Row(kind.name, skipped=HOW))
            continue
        for name, (part, limits) in _PARTS.items():
            for streams in (True,) if part is _fails_late else (False, True):
                async with _scene(kind, limits, streams=streams) as scene:
                    try:
                        await part(scene)
                    except Exception as error:  # noqa: BLE001 - whatever a client raises
                        scene.wrong.append(f"it raised {error!r}")
                row, wrong = _row(f"{kind.name}{', streamed' * streams}: {name}", scene)
                rows.append(row)
                notes += wrong
    return Report("clients", tuple(rows), ok=not notes, notes=tuple(notes))


@asynccontextmanager
async def _scene(kind: type[Speaker], limits: Limits, *, streams: bool) -> AsyncIterator[_Scene]:
    engine = _Engine()
    session = _Episode(conversations(engine, limits))
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes(Api(session).routes())
    async with TestServer(app) as served:
        scene = _Scene(kind, str(served.make_url("")).rstrip("/"), engine, session, streams)
        yield scene
        for speaker in scene.opened:
            await speaker.aclose()
    await session.conversations.close()


def _row(subject: str, scene: _Scene) -> tuple[Row, list[str]]:
    talk, engine = scene.session.conversations, scene.engine
    broken = problems(talk, engine)
    figures = {
        "requests": float(len(scene.session.asked)),
        "turns": float(len(talk.episode_turns)),
        "branches": float(len(talk.branches())),
        "breaks": float(len(broken)),
        **scene.figures,
    }
    if engine.sampled:
        figures["trained_share"] = trained(talk) / engine.sampled
    return Row(subject, figures), [f"{subject}: {each}" for each in (*scene.wrong, *broken)]
