"""Local sandboxes in plain directories: no isolation, and no `/testbed`.

For trying things out where bubblewrap does not work.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from swe_rollout.sandbox.local.folder import PROGRAM, ProviderFolder, copy, remove
from swe_rollout.sandbox.local.images import (
    PATH,
    LocalImage,
    Prepared,
    find_workdir,
    missing_workdir,
)
from swe_rollout.sandbox.local.machine import interpreter_prefix
from swe_rollout.sandbox.session.bootstrap import serve_arguments

MARK = "SWE_ROLLOUT_SANDBOX"
"""Environment variable that marks the processes of a sandbox."""
_KILL_ROUNDS = 10
_OWN_FOLDERS = ("home", "tmp")
_LARGEST_BYTES: Final = 1 << 20
_NAMING: Final = ("*.pth", "*.egg-link", "__editable__*.py", "*.dist-info/direct_url.json")


class Plain:
    """Prepares plain directories for one provider."""

    def __init__(self, folder: ProviderFolder) -> None:
        """Keep the directories in the provider's folder."""
        self._folder = folder

    async def prepare(
        self, image: LocalImage, source: Path, workdir: str, *, networked: bool = False
    ) -> Prepared:
        del networked  # Nothing is isolated.
        folder = self._folder.new()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(asyncio.to_thread, remove, folder)
            paths: dict[str, Path] = {}
            copies: dict[Path, Path] = {}
            for number, mount in enumerate(image.mounts):
                path = source / mount.source
                if not mount.writable and path == Path(mount.target):
                    continue  # The folder exists anyway.
                # Nothing stops a command from writing to shared mounts: all are copied.
                if path not in copies:
                    copies[path] = folder / f"mount-{number}"
                    copies[path].mkdir()
                    await copy(path.resolve(), copies[path])
                paths[posixpath.normpath(mount.target)] = copies[path].resolve()
            for own in copies.values():
                await asyncio.to_thread(relocate, own, paths)
            real = find_workdir(workdir, paths)
            if real is None:
                raise missing_workdir(workdir)
            env = _env(image, paths, folder)
            stack.pop_all()
        return Prepared(
            [str(self._folder.path / PROGRAM), *serve_arguments()],
            env,
            str(real),
            clean_up=partial(asyncio.to_thread, _end, env[MARK], folder),
            trees={
                **{target: str(path) for target, path in paths.items()},
                **{name: str(folder / name) for name in _OWN_FOLDERS},
            },
        )


def _env(image: LocalImage, paths: dict[str, Path], folder: Path) -> dict[str, str]:
    for name in _OWN_FOLDERS:
        (folder / name).mkdir()
    return {
        "PATH": f"{interpreter_prefix()}/bin:{os.environ.get('PATH', PATH)}",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        **{name: _with_real_paths(value, paths) for name, value in image.env.items()},
        MARK: secrets.token_hex(16),
    }


def _with_real_paths(value: str, paths: dict[str, Path]) -> str:
    """Replace mount targets in a variable of the image, such as PYTHONPATH, by real paths."""
    names = "|".join(re.escape(target) for target in sorted(paths, key=len, reverse=True))
    if not names:
        return value
    pattern = rf"(?<![\w./-])({names})(?=[/:;,]|$)"
    return re.sub(pattern, lambda match: str(paths[match[1]]), value)


def _end(mark: str, folder: Path) -> None:
    _kill_marked(mark)
    remove(folder)


def _kill_marked(mark: str) -> None:
    """Kill the processes that a plain directory's commands left behind, in any session."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_KILL_ROUNDS):
        found = [path for path in Path("/proc").glob("[0-9]*") if wanted in environment(path)]
        for path in found:
            with suppress(OSError):
                os.kill(int(path.name), signal.SIGKILL)
        if not found:
            return


def environment(process: Path) -> list[bytes]:
    """Return the environment of a process by its folder in /proc; empty if the process is gone."""
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def relocate(environment: Path, paths: Mapping[str, Path]) -> None:
    """Replace the keys of `paths` by their values in an environment's files."""
    if not os.path.lexists(environment / "bin" / "python"):
        return
    names = sorted((os.fsencode(name) for name in paths), key=len, reverse=True)
    pattern = re.compile(rb"(?<![\w./-])(" + b"|".join(map(re.escape, names)) + rb")(?![\w.-])")
    new = {os.fsencode(name): os.fsencode(path) for name, path in paths.items()}
    for file in _naming(environment):
        data = file.read_bytes()
        changed = pattern.sub(lambda match: new[match[1]], data)
        if changed != data:
            mode = file.stat().st_mode
            file.unlink()  # The content may be shared with the original.
            file.write_bytes(changed)
            file.chmod(mode)


def _naming(environment: Path) -> Iterator[Path]:
    found = [*(environment / "bin").iterdir()]
    for pattern in _NAMING:
        found += environment.glob(f"lib/python3*/site-packages/{pattern}")
    for file in found:
        if file.is_file() and not file.is_symlink() and file.stat().st_size <= _LARGEST_BYTES:
            yield file
