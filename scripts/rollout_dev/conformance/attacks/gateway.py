"""Attacks on the gateway by a harness: bounded and refused, and the sessions beside it play on."""

from __future__ import annotations

import asyncio
import re
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from aiohttp import ClientSession

from rollout_dev.conformance.attacks.attack import GatewayAttack
from rollout_dev.conformance.attacks.trials import Site, Trial, watched
from swe_rollout.events import Events
from swe_rollout.gateway.admin import Admin
from swe_rollout.gateway.door import Door
from swe_rollout.gateway.server import Api, serving
from swe_rollout.gateway.sessions import Sessions
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.store.store import Store
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.session import open_session

_KEY: Final = "the gateway's own key"
_TURNS: Final = 12
"""Of the session that plays beside an attack."""
_MOST_KIB: Final = 400 << 10
"""What the worker may need more than before, for bodies of 32 MiB in several forms."""
_ATTACK_S: Final = 60.0
_HEAD: Final = Path(__file__).with_name("gateway_harness.py").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class GatewayScene:
    """A gateway with sessions."""

    sessions: Sessions
    port: int
    task: str

    async def attack(self, site: Site, attack: GatewayAttack) -> Trial:
        """Let the harness of a session attack, while another one plays."""
        return await watched(self._attack(site, attack))

    async def _attack(self, site: Site, attack: GatewayAttack) -> tuple[str, bool]:
        ended, own, other = (self.sessions.open(self.task) for _ in range(3))
        await self.sessions.close(ended)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        playing = asyncio.create_task(self._play(other.key))
        names = {"KEY": own.key, "ENDED": ended.key, "OTHER": other.id}
        said = await self._run(site, attack, names)
        problem = await playing
        kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        mine, others = [await self.sessions.close(each) for each in (own, other)]
        if found := re.search(r"^BREACH.*$", said, re.MULTILINE):
            return found[0][:200], False
        if attack.tells and "tried" not in said:
            return f"not tried: {said[-200:]!r}", False
        if kib > _MOST_KIB:
            return f"the worker took {kib >> 10} MiB", False
        problem = problem or _problem(others) or _problem(mine)
        return problem or f"held; {len(mine.turns)} turns, {kib >> 10} MiB", not problem

    async def _run(self, site: Site, attack: GatewayAttack, names: dict[str, str]) -> str:
        sandbox = await site.start()
        door = Door(sandbox, self.port, Deadline(_ATTACK_S))
        program = f"{_HEAD}\n{attack.code}\nprint('tried')\n"
        try:
            await door.open(f"python3 - <<'END_OF_ATTACK'\n{program}\nEND_OF_ATTACK\n", names)
            async with asyncio.timeout(_ATTACK_S):
                await door.carry()
        except TimeoutError:
            return "BREACH it did not end"
        finally:
            await sandbox.close()
        return door.ended.said if door.ended else "its door is gone"

    async def _play(self, key: str) -> str:
        """Play beside an attack; return what went wrong."""
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        messages = [{"role": "user", "content": "Begin."}]
        async with ClientSession() as client:
            for turn in range(_TURNS):
                await asyncio.sleep(0.05)
                body = {"model": "policy", "messages": messages}
                headers = {"Authorization": f"Bearer {key}"}
                async with client.post(url, json=body, headers=headers) as response:
                    answer = await response.json()
                if not response.ok:
                    return f"the other session got {answer}"[:200]
                message = answer["choices"][0]["message"]
                if message["content"] != f"Turn {turn}.":
                    return f"the other session was told {message}"[:200]
                messages += [message, {"role": "user", "content": "Go on."}]
        return ""


def _problem(record: Trajectory) -> str:
    """Return what is wrong with a record."""
    sampled = sum(turn.completion_tokens for turn in record.turns)
    trained = sum(sum(branch.loss_mask) for branch in record.samples)
    if sampled != trained:
        return f"{record.episode}: {trained} tokens are trained on, of {sampled}"
    if record.reward is not None or record.failure is not None:
        return f"{record.episode}: reward {record.reward}, failure {record.failure}"[:200]
    return ""


@asynccontextmanager
async def gateway_scene() -> AsyncIterator[GatewayScene]:
    """Open a gateway over a scripted policy."""
    turns = [{"say": f"Turn {number}."} for number in range(200)]
    with TemporaryDirectory() as folder:
        spec = {
            "dataset": {"releasePairs": {"names": ["semver"]}},
            "policy": {"scripted": {"turns": turns}},
            "limits": {"turns": 5000, "contextTokens": 131_072},
            "sandbox": {"local": {}},
            "store": {"uri": f"file://{folder}"},
        }
        job = RolloutJob.model_validate({"metadata": {"name": "attacks"}, "spec": spec})
        store = Store.open(job.spec.store.uri)
        opened = open_session(
            job, base_dir=Path(folder), publish=Events(), on_note=lambda _: None, logs=store
        )
        async with opened as session:
            sessions = await Sessions.begin(session, store)
            routes = [*Api(sessions).routes(), *Admin(sessions, _KEY).routes()]
            async with serving(routes) as port:
                yield GatewayScene(sessions, port, session.instances[0].instance_id)
            await sessions.aclose()
