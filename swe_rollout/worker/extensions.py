"""Read the files that travel with a job: import Python files, register bundles of tools."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from pathlib import Path

from swe_rollout.agent.tools.bundle.archive import SUFFIX, register
from swe_rollout.errors import PrerequisiteError
from swe_rollout.extension import import_file
from swe_rollout.spec.job import ExtensionFile, RolloutJob
from swe_rollout.store.bucket import read_object
from swe_rollout.store.layout import extension_key
from swe_rollout.text.user_code import BROUGHT


async def import_extensions(job: RolloutJob) -> None:
    """Read every extension file of the job from its store, once in this process.

    Raises PrerequisiteError if the store has no file with that digest, UnreachableError if it does
    not respond, ExtensionError if a file can't be used.
    """
    for file in job.spec.extensions:
        await _import(file, job.spec.store.uri)


async def _import(file: ExtensionFile, store_uri: str) -> None:
    uri = f"{store_uri}/{extension_key(file.sha256, file.name)}"
    try:
        code = await read_object(uri)
    except FileNotFoundError as error:
        raise PrerequisiteError(
            f"the extension file {file.name} is not in the store",
            why=f"there is no {uri}",
            fix=f"start the job where {_origin(file)} is: run and launch put it there",
        ) from error
    if (digest := hashlib.sha256(code).hexdigest()) != file.sha256:
        raise PrerequisiteError(
            f"the extension file {file.name} was changed in the store",
            why=f"the SHA-256 of {uri} is {digest}",
            fix="start the job again with the file that it was made with",
        )
    if file.name.endswith(SUFFIX):
        register(code)
        return
    path = await asyncio.to_thread(_write, file.name, code)
    import_file(path)


def _origin(file: ExtensionFile) -> str:
    is_bundle = file.name.endswith(SUFFIX)
    return f"the folder {file.name.removesuffix(SUFFIX)}" if is_bundle else f"--with {file.name}"


def _write(name: str, code: bytes) -> Path:
    # The module may read its own file as long as the process lives, so the folder is kept.
    path = Path(tempfile.mkdtemp(prefix=BROUGHT)) / name
    path.write_bytes(code)
    return path
