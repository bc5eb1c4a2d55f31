"""Find and download the files of a dataset on a hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from swe_rollout.errors import DatasetError, Problem
from swe_rollout.huggingface import hub_address, unreachable_hub

_ENDINGS = (".parquet", ".jsonl", ".jsonl.zst", ".jsonl.gz", ".json")
_DEFAULT = ("test", "train")
"""The splits to use when none is requested; the first that exists wins."""
_PIECE = re.compile(r"-\d{5}-of-\d{5}")
_ADVICE = "or save the rows as .parquet or .jsonl and name that file"


def hub_files(name: str, split: str, on_progress: Callable[[str], None]) -> tuple[str, ...]:
    """Download the files of a dataset's split; return where they are, in order.

    `name` is `organisation/name` or `organisation/name@revision`. Raises DatasetError when the hub
    can't be reached, or has no such dataset or split.
    """
    # The import takes half a second, and few users need it.
    from huggingface_hub import HfApi, hf_hub_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    repository, _, revision = name.partition("@")
    if why := unreachable_hub():
        raise _missing(name, f"no such file, and {why}", f"go online, {_ADVICE}")
    try:
        known = HfApi(endpoint=hub_address()).list_repo_files(
            repository, repo_type="dataset", revision=revision or None
        )
        chosen = _chosen(known, split)
        if not chosen:
            raise _missing(name, f"it has no files of the split {split or 'test'}", _splits(known))
        on_progress(f"downloading {len(chosen)} files of {name}")
        return tuple(
            hf_hub_download(
                repository,
                file,
                repo_type="dataset",
                revision=revision or None,
                endpoint=hub_address(),
            )
            for file in chosen
        )
    except (HfHubHTTPError, OSError) as error:
        why = f"no such file, and the hub has no such dataset: {str(error).splitlines()[0]:.200}"
        fix = f"check the name (`hf auth login` for a private one), {_ADVICE}"
        raise _missing(name, why, fix) from error


def _missing(name: str, why: str, fix: str) -> DatasetError:
    return DatasetError(
        f"the rows of {name} can't be read", [Problem("dataset.swebench.uri", name, why)], fix=fix
    )


def _split_of(path: str) -> str:
    """Return the split that a file's name or folder indicates; empty for files without rows."""
    lower = path.lower()
    ending = next((end for end in _ENDINGS if lower.endswith(end)), "")
    if not ending:
        return ""
    stem = path.rpartition("/")[2][: -len(ending)]
    return _PIECE.sub("", stem)


def _chosen(paths: Sequence[str], split: str) -> list[str]:
    splits = {path: _split_of(path) for path in sorted(paths)}
    for wanted in (split,) if split else (*_DEFAULT, ""):
        if found := [p for p, s in splits.items() if s and (s == wanted or not wanted)]:
            return found
    return []


def _splits(paths: Sequence[str]) -> str:
    names = sorted({_split_of(path) for path in paths} - {""})
    return f"name one of its splits: {', '.join(names[:20])}" if names else _ADVICE
