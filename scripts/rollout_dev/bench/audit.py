"""The dev cluster's audit log: every write to the API server, by whom and to what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rollout_dev.dev_cluster.api import Json, inner, text


@dataclass(frozen=True, slots=True)
class ApiWrite:
    """One request that creates, changes or deletes."""

    verb: str
    resource: str
    """With its subresource, such as `pods/status`."""
    namespace: str
    user: str

    @classmethod
    def of(cls, entry: Json) -> ApiWrite:
        """Read an entry of the log."""
        target = inner(entry, "objectRef")
        parts = (text(inner(target, "resource")), text(inner(target, "subresource")))
        return cls(
            text(inner(entry, "verb")),
            "/".join(filter(None, parts)),
            text(inner(target, "namespace")),
            text(inner(entry, "user", "username")),
        )


def writes(log: Path, *, since: int) -> Iterator[ApiWrite]:
    """Yield the writes that were logged after the first `since` bytes."""
    with log.open("rb") as file:
        file.seek(since)
        for line in file:
            entry: Json = json.loads(line)
            if inner(entry, "stage") == "ResponseComplete":
                yield ApiWrite.of(entry)
