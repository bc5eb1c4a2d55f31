"""Objects in a folder or in object storage, with blocking calls. Used only by `bucket`.

Calls raise the errors of the operating system or obstore, FileNotFoundError for a missing object.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore

from swe_rollout.store.faults import is_conflict

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PAGE = 1000
"""Keys in one response to a listing: S3's limit."""
_MOST_DELETED = 1000
"""Objects per delete request: S3's limit."""
_STAGED = re.compile(r"#[0-9]+$")
"""Matches the suffix of a file that obstore has not finished."""


class FolderObjects:
    """Files in a folder. Unlike obstore's, this listing includes files of any name."""

    conditional = True
    """Whether `create` is known to never replace an object."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, key: str) -> bytes:
        """Return the bytes of an object."""
        return (self._root / key).read_bytes()

    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one; return whether it was written."""
        self._root.mkdir(parents=True, exist_ok=True)
        return _create(LocalStore(prefix=self._root), key, data)

    def pages(self, prefix: str, after: str | None = None) -> Iterator[list[str]]:
        """Yield the keys under the folder `prefix`, some at a time, and those `after` a key.

        A folder lists its keys in any order, and none of its errors is retried: it has no `after`.
        """
        if after is not None:
            raise ValueError("a folder can't be listed from a key on")
        top, start, page = self._root / prefix, len(f"{self._root}/"), list[str]()
        for folder, names in _walk(top) if top.is_dir() else ():
            page += [f"{folder}/{name}"[start:] for name in names if not _STAGED.search(name)]
            if len(page) >= PAGE:
                yield page
                page = []
        if page:
            yield page

    def folders(self) -> list[str]:
        """Return the names of the top-level folders."""
        if not self._root.is_dir():
            return []
        return [entry.name for entry in self._root.iterdir() if entry.is_dir()]

    def written_at(self, key: str) -> datetime:
        """Return when an object was written."""
        return datetime.fromtimestamp((self._root / key).stat().st_mtime, UTC)

    def move(self, key: str, to: str) -> None:
        """Move an object to another key."""
        target = self._root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._root / key).rename(target)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are not an error."""
        for key in keys:
            (self._root / key).unlink(missing_ok=True)
        for folder in {(self._root / key).parent for key in keys}:
            self._remove_empty(folder)

    def _remove_empty(self, folder: Path) -> None:
        """Remove folders that have become empty, since object storage has none.

        Files that a killed process left staged are deleted along with the last object.
        """
        while folder != self._root:
            try:
                left = [*folder.iterdir()]
                if all(_STAGED.search(each.name) for each in left):
                    for each in left:
                        each.unlink(missing_ok=True)
                folder.rmdir()
            except OSError:  # another process has added a file or removed the folder
                return
            folder = folder.parent


class StorageObjects:
    """Objects in object storage, with the calls of `FolderObjects`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.conditional = False

    def read(self, key: str) -> bytes:
        return bytes(obstore.get(self._store, key).bytes())

    def create(self, key: str, data: bytes) -> bool:
        return _create(self._store, key, data)

    def pages(self, prefix: str, after: str | None = None) -> Iterator[list[str]]:
        for page in obstore.list(self._store, prefix=prefix, offset=after, chunk_size=PAGE):
            yield [meta["path"] for meta in page]

    def folders(self) -> list[str]:
        return [*obstore.list_with_delimiter(self._store)["common_prefixes"]]

    def written_at(self, key: str) -> datetime:
        return obstore.head(self._store, key)["last_modified"]

    def move(self, key: str, to: str) -> None:
        obstore.copy(self._store, key, to)
        obstore.delete(self._store, key)

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _MOST_DELETED):
            some = keys[start : start + _MOST_DELETED]
            try:
                obstore.delete(self._store, list(some))
            except FileNotFoundError:  # some clouds refuse to delete missing objects
                self._delete_each(some)

    def _delete_each(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):
                obstore.delete(self._store, key)


def _create(store: ObjectStore, key: str, data: bytes) -> bool:
    # obstore copies data read from a file. A connection would keep a Python object and release it
    # from its own thread at any time (see `bucket`).
    body = io.BytesIO(data)
    try:
        obstore.put(store, key, body, mode="create", use_multipart=False)
    except AlreadyExistsError as error:
        if is_conflict(error):
            raise
        return False
    return True


def _walk(top: Path) -> Iterator[tuple[str, list[str]]]:
    def stop(error: OSError) -> None:
        # Folders are removed with their last object, which another process may delete meanwhile.
        if not isinstance(error, FileNotFoundError):
            raise error

    return ((folder, names) for folder, _, names in os.walk(top, onerror=stop))
