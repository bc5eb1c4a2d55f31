"""Kill an export at each of its steps, and go on with it; run by `test_progress` as a program.

A process is forked for each try, which has no threads before. It prints the number of steps, and
stops at a step after which the output is another one than that of an undisturbed export.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from swe_rollout.export import files, progress
from swe_rollout.export.files import FileFormat, FolderFormat
from swe_rollout.export.library_layout import JobFacts, LibraryLayout
from swe_rollout.export.parquet import parquet_format
from swe_rollout.export.patches import PatchFilter, patches_format, predictions_format
from swe_rollout.export.profile import chrome_trace_format
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId
from unit.export.export_parts import failed, reading, trajectory

EPISODES = [EpisodeId("demo", name, sample) for name in "ab" for sample in range(2)]
FORMATS: dict[str, Callable[[], FileFormat | FolderFormat]] = {
    "json": lambda: files.JSON,
    "parquet": parquet_format,
    "patches": patches_format,
    "predictions": predictions_format,
    "chrome-trace": chrome_trace_format,
    "rollout-library": lambda: LibraryLayout(
        reading(), PatchFilter(), str, JobFacts(1.0, 1, 1)
    ).format(),
}
STEPS = (
    *((files._Output, name) for name in ("add", "sync")),
    (progress, "_append"),
    *((Path, name) for name in ("mkdir", "rename", "replace", "unlink", "write_bytes")),
)
"""What a process does; it is killed before it does it."""
KILLED = 9


async def fill(store: Store) -> None:
    """Commit the episodes; one has no patch, and one is damaged."""
    for each in EPISODES:
        await store.commit(trajectory(each.instance, each.sample))
    lost = EpisodeId("demo", "b", 2)
    await store.commit(replace(failed(trajectory()), episode=lost))


async def export(store: Store, name: str, out: Path) -> None:
    """Export them, each with a mark of its own."""
    form = FORMATS[name]()
    chosen = [
        each for each in await store.committed("demo") if name != "predictions" or not each.sample
    ]
    episodes = sorted(chosen, key=lambda each: (each.instance, each.sample))
    begun = progress.Progress.open(out, {"format": name}, episodes, resumes=form.resumes)
    await files.export(begun.records(store), out, form, progress=begun)


def attempt(uri: str, name: str, out: Path, *, steps: int = -1) -> bool:
    """Export in a process that is killed after so many steps; return whether it ended itself."""
    if (child := os.fork()) == 0:
        left = iter(range(steps + 1 if steps >= 0 else 1 << 30))
        for owner, function in STEPS:
            real = getattr(owner, function)

            def step(
                *arguments: object, _real: Callable[..., object] = real, **named: object
            ) -> object:
                if next(left, None) is None:
                    os._exit(KILLED)
                return _real(*arguments, **named)

            setattr(owner, function, step)
        asyncio.run(export(Store.open(uri), name, out))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED), code
    return code == 0


def content(out: Path) -> dict[str, bytes]:
    """Return the files of an output, if there is one."""
    found = sorted(out.rglob("*")) if out.is_dir() else [out]
    return {str(each.relative_to(out)): each.read_bytes() for each in found if each.is_file()}


def main(folder: Path, name: str) -> None:
    """Kill it at the first step, then at the second, until it comes to its end."""
    progress._EACH = 1  # type: ignore[misc]
    parquet_format().part(trajectory())  # its libraries are loaded once, before the forks
    uri = f"file://{folder}/runs"
    if os.fork() == 0:
        asyncio.run(fill(Store.open(uri)))
        os._exit(0)
    os.wait()
    Path(folder, "runs/demo/episodes/a/1/trajectory.json.zst").write_bytes(b"garbled")
    assert attempt(uri, name, folder / "undisturbed")
    wanted = content(folder / "undisturbed")
    steps, out = 0, folder / "out" / "x"
    while not attempt(uri, name, out, steps=steps):
        assert content(out) in ({}, wanted), f"half an output after {steps} steps"
        if not out.exists():
            part = out.with_name("x.part") / "output"
            if part.is_file():
                with part.open("ab") as torn:
                    torn.write(b"torn")
            assert attempt(uri, name, out)
        assert content(out) == wanted, f"another output after {steps} steps"
        shutil.rmtree(out.parent)
        steps += 1
    assert [each.name for each in out.parent.iterdir()] == ["x"]
    sys.stdout.write(f"{steps}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
