"""`gateway`: serve chat APIs over a job's engine, for agents that run elsewhere."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from swe_rollout.cli.engine import Host, Port
from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.job_file import in_sandbox, overrides_of
from swe_rollout.cli.options import File, Name, SandboxChoice, Sets, StoreUri, option
from swe_rollout.cli.output import say, write_lines
from swe_rollout.errors import UsageError

if TYPE_CHECKING:
    from swe_rollout.spec.job import RolloutJob

KeyVariable = Annotated[
    str,
    option("--key-env", help="Variable with the key that opens sessions. Unset: one is printed."),
]
_FEWEST_KEY_CHARS = 16


def gateway(
    file: File,
    sandbox: SandboxChoice = None,
    store: StoreUri = None,
    name: Name = None,
    sets: Sets = None,
    *,
    key_env: KeyVariable = "GATEWAY_KEY",
    host: Host = "127.0.0.1",
    port: Port = 0,
) -> None:
    """Serve chat APIs over a job's engine: agents play its episodes, tokens stay exact.

    OpenAI's chat and responses, Anthropic's messages, Google's generateContent. A session plays one
    sample of a task; its record goes into the job's store. Prints its address on stdout.

    swe-rollout gateway job.yaml --port 8600

    swe-rollout gateway job.yaml --store s3://rollouts --host 0.0.0.0 --key-env MY_KEY
    """
    from swe_rollout.spec.load import load_job

    job = load_job(file, overrides_of(sets, store=store, name=name, skip_bad_rows=False))
    if sandbox is not None:
        job = in_sandbox(job, sandbox)
    if not job.spec.policy.has_tokens:
        raise UsageError(
            "this policy has no tokens", fix="name one of sglang, transformers, engine, scripted"
        )
    key = os.environ.get(key_env, "")
    if key and len(key) < _FEWEST_KEY_CHARS:
        raise UsageError(f"${key_env} has fewer than {_FEWEST_KEY_CHARS} characters")
    if not key:
        key = secrets.token_urlsafe(24)
        say(f"the key that opens sessions: {key} (set ${key_env} for one of your own)")
    run_async(_serve(job, file.absolute().parent, host, port, key), on_note=say)


async def _serve(job: RolloutJob, base_dir: Path, host: str, port: int, key: str) -> None:
    from swe_rollout.engine.scripted.server import serve_app
    from swe_rollout.events import Events
    from swe_rollout.gateway.admin import application
    from swe_rollout.gateway.sessions import Sessions
    from swe_rollout.store.store import Store
    from swe_rollout.worker.session import open_session

    opened = Store.open(job.spec.store.uri)
    async with open_session(
        job, base_dir=base_dir, publish=Events(), on_note=say, logs=opened
    ) as session:
        sessions = await Sessions.begin(session, opened)
        try:
            app = application(sessions, key)
            await serve_app(app, host=host, port=port, on_ready=lambda url: write_lines([url]))
        finally:
            await sessions.aclose()
