"""Export patches: SWE-bench's predictions, or one `.patch` file for each episode.

Files can be filtered out of a patch by path; every other byte stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from swe_rollout.errors import TaskError, UsageError
from swe_rollout.export.files import FileFormat, FolderFormat, encode, line
from swe_rollout.sandbox.patch_text import file_diffs
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class FilteredPatch:
    """A patch after filtering."""

    text: str
    dropped: tuple[str, ...] = ()
    """Paths that were left out, sorted."""


@dataclass(frozen=True, slots=True)
class PatchFilter:
    """Leaves out the changes to paths that match its globs; without globs, it changes nothing.

    A glob without a slash is matched against file names in every folder: `pyproject.toml`. One with
    a slash is matched against the whole path, and `*` also matches slashes: `tests/*`.
    """

    globs: tuple[str, ...] = ()

    def apply(self, patch: str) -> FilteredPatch:
        """Return the patch without the files that match, by either name if they were renamed."""
        if not self.globs:
            return FilteredPatch(patch)
        kept, dropped = list[bytes](), set[str]()
        for each in file_diffs(patch.encode(errors="surrogatepass")):
            matching = [path for path in each.paths if self._matches(path)]
            if matching:
                dropped.update(matching)
            else:
                kept.append(each.data)
        text = b"".join(kept).decode(errors="surrogatepass")
        return FilteredPatch(text, tuple(sorted(dropped)))

    def _matches(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return any(fnmatchcase(path if "/" in glob else name, glob) for glob in self.globs)


INDEX = "patches.json"


_KEEP_ALL = PatchFilter()


def predictions_format(
    patch_filter: PatchFilter = _KEEP_ALL, *, model_name: str | None = None
) -> FileFormat:
    """Return the format of `all_preds.jsonl`: one prediction for each instance.

    `model_name` replaces the policy's name. Raises UsageError at the second sample of an instance:
    the user must choose which one counts. An episode that broke before its patch is left out,
    because an empty prediction would be held against the policy.
    """
    last: list[str] = []

    def part(trajectory: Trajectory) -> bytes:
        instance = trajectory.episode.instance
        _require_patch(trajectory)
        if last == [instance]:
            raise UsageError(
                f"{instance} has several samples",
                why="a file of predictions holds one patch for each instance",
                fix="choose one: --sample 0",
            )
        last[:] = [instance]
        filtered = patch_filter.apply(trajectory.patch)
        row: dict[str, object] = {
            "instance_id": instance,
            "model_name_or_path": model_name or trajectory.policy,
            "model_patch": filtered.text,
        }
        if patch_filter.globs:
            row["dropped_globs"] = list(patch_filter.globs)
            row["dropped_paths"] = list(filtered.dropped)
        return line(row)

    def resumed(episode: EpisodeId) -> None:
        last[:] = [episode.instance]

    return FileFormat(part, resumed=resumed)


def _require_patch(trajectory: Trajectory) -> None:
    if trajectory.failure is not None and not trajectory.patch:
        raise TaskError(
            "it has no patch", why=f"it failed: {trajectory.failure.type}", retryable=False
        )


def patches_format(patch_filter: PatchFilter = _KEEP_ALL) -> FolderFormat:
    """Return the format: one `<instance>/<sample>.patch` each, and `patches.json` as the index."""

    def files(trajectory: Trajectory) -> Iterator[tuple[str, bytes]]:
        _require_patch(trajectory)
        text = patch_filter.apply(trajectory.patch).text
        yield _name(trajectory.episode), text.encode(errors="replace")

    def row(trajectory: Trajectory) -> bytes:
        episode = trajectory.episode
        return encode(
            {
                "file": _name(episode),
                "episode": str(episode),
                "resolved": trajectory.resolved,
                "dropped_paths": list(patch_filter.apply(trajectory.patch).dropped),
            }
        )

    head = b'{"dropped_globs": %s,\n"patches": [\n' % encode(list(patch_filter.globs))
    index = FileFormat(row, head=head, between=b",\n", tail=b"\n]}\n")
    return FolderFormat(files, index=(INDEX, index))


def _name(episode: EpisodeId) -> str:
    return f"{episode.instance}/{episode.sample}.patch"
