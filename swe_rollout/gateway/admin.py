"""Open and close sessions over HTTP, with a key of its own: for whoever runs the harnesses."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from aiohttp import web

from swe_rollout.errors import SweRolloutError, UsageError
from swe_rollout.gateway.server import MAX_BODY_BYTES, Api
from swe_rollout.gateway.sessions import OpenSession, Sessions
from swe_rollout.types.trajectory import Trajectory

_NOTES: Final = 200
"""The most differences that a response lists."""


class _Open(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task: str
    sample: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] | None = None


class _Close(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    patch: str = ""


@dataclass(frozen=True, slots=True)
class Admin:
    """The routes by which sessions are opened and closed."""

    sessions: Sessions
    key: str

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post("/sessions", self._open),
            web.get("/sessions", self._list),
            web.post("/sessions/{task}/{sample}/close", self._close),
        ]

    async def _open(self, http: web.Request) -> web.Response:
        self._check(http)
        try:
            wanted = msgspec.json.decode(await http.read(), type=_Open)
            opened = self.sessions.open(wanted.task, wanted.sample)
        except (msgspec.DecodeError, UsageError) as error:
            return _refused(error, 400)
        base = f"{http.scheme}://{http.host}"
        urls = {"openai": f"{base}/v1", "anthropic": base, "google": base}
        return web.json_response(
            {"session": opened.id, "key": opened.key, "urls": urls}, status=201
        )

    async def _list(self, http: web.Request) -> web.Response:
        self._check(http)
        return web.json_response([_shown(opened) for opened in self.sessions])

    async def _close(self, http: web.Request) -> web.Response:
        self._check(http)
        name = f"{http.match_info['task']}/{http.match_info['sample']}"
        try:
            wanted = msgspec.json.decode(await http.read() or b"{}", type=_Close)
            opened = self.sessions.by_id(name)
            if opened is not None:
                record = await self.sessions.close(opened, wanted.patch)
            elif (found := await self.sessions.stored(name)) is not None:
                record = found
                if wanted.patch and not found.patch:
                    late = UsageError(f"{name} had ended by itself, and was recorded without it")
                    return _refused(late, 409)
            else:
                return _refused(UsageError(f"there is no session {name}"), 404)
        except msgspec.DecodeError as error:
            return _refused(error, 400)
        except SweRolloutError as error:
            return _refused(error, 503)
        return web.json_response(_summary(record))

    def _check(self, http: web.Request) -> None:
        given = http.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(errors="surrogatepass"), self.key.encode()):
            raise web.HTTPUnauthorized(text="the gateway's own key is needed here\n")


def application(sessions: Sessions, key: str) -> web.Application:
    """Return the application: the chat APIs, and the sessions behind `key`."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes([*Api(sessions).routes(), *Admin(sessions, key).routes()])
    return app


def _shown(opened: OpenSession) -> dict[str, object]:
    played = opened.conversations
    return {
        "session": opened.id,
        "turns": len(played.episode_turns),
        "branches": len(played.state.branches),
    }


def _summary(record: Trajectory) -> dict[str, object]:
    sampled = sum(turn.completion_tokens for turn in record.turns)
    trained = sum(record.loss_mask) + sum(sum(each.loss_mask) for each in record.branches)
    notes = [
        {"turn": note.turn, "branch": note.branch, "reason": note.reason}
        for note in record.differences
    ]
    return {
        "episode": str(record.episode),
        "turns": len(record.turns),
        "branches": len(record.branches) + 1,
        "sampled_tokens": sampled,
        "trained_share": round(trained / sampled, 6) if sampled else None,
        "stop_reason": record.stop_reason,
        "failure": record.failure.message if record.failure else None,
        "verdict": record.verdict.status if record.verdict else None,
        "reward": record.reward.value if record.reward else None,
        "differences": notes[:_NOTES],
    }


def _refused(error: Exception, status: int) -> web.Response:
    return web.json_response({"error": str(error)}, status=status)
