"""What `logs` is asked for: a job, or one of its episodes."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Selects all lines of a job's workers, or those that name one episode."""

    job: str
    """`demo` or `ns/demo`."""
    episode: str | None
    """`INSTANCE/SAMPLE`."""

    def matches(self, text: str) -> bool:
        """Whether the line is selected: it names an episode by its whole address."""
        if self.episode is None:
            return True
        address = re.escape(f"{self.job.rpartition('/')[2]}/{self.episode}")
        return re.search(rf"(?<![^\s=\"'(]){address}(?![^\s\"'),:;])", text) is not None


def parse_log_filter(address: str) -> LogFilter:
    """Parse `demo`, `ns/demo`, `demo/INSTANCE/SAMPLE` or `ns/demo/INSTANCE/SAMPLE`."""
    match = re.fullmatch(r"(.+?)/([^/]+/[0-9]+)", address)
    return LogFilter(match[1], match[2]) if match else LogFilter(address, None)
