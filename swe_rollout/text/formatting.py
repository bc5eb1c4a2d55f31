"""Format numbers, durations and events for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from swe_rollout.text.escaping import one_line

_BARS = "▁▂▃▄▅▆▇█"
_UNIT = 1024
_SECOND_MS = 1000


def format_number(value: float | None, form: str = ".2f") -> str:
    """Return a number in the given `format` form, or a dash for None."""
    return "–" if value is None else format(value, form)


def format_mean(mean: float | None, *, masked: int, committed: int) -> str:
    """Return a mean reward, with the share of masked episodes if there are any."""
    share = format_share(masked, committed)
    return f"{format_number(mean)} ({share} masked)" if masked else format_number(mean)


def format_share(part: int, whole: int) -> str:
    """Return `12%` or `<1%`; never 0% for some, and never 100% for less than all."""
    percent = 100 * part / max(whole, 1)
    if 0 < percent < 1:
        return "<1%"
    return ">99%" if 99 < percent < 100 else f"{percent:.0f}%"  # noqa: PLR2004


def format_masked(masked: int, committed: int) -> str:
    """Return `2 (12%)`, or 0."""
    return f"{masked} ({format_share(masked, committed)})" if masked else "0"


_TIMES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_FEW = 9.95
"""Below, tenths are shown."""


def format_duration(seconds: float | None) -> str:
    """Return `45 ms`, `3.2 s`, `41 s`, `6 min 41 s`, `2 h 6 min`, `3 d 4 h`, or a dash for None."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < _FEW:
        ms = round(1000 * max(seconds, 0.0))
        if 0 < ms < _SECOND_MS:
            return f"{ms} ms"
        return f"{ms / _SECOND_MS:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    at = next(i for i, (size, _) in enumerate(_TIMES) if whole >= size)
    parts: list[str] = []
    for size, unit in _TIMES[at : at + 2]:
        count, whole = divmod(whole, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts)


def format_size(count: int) -> str:
    """Return `512 B`, `1.5 KiB` or `12 MiB`."""
    size, units = float(count), iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while size >= _UNIT and (larger := next(units, "")):
        size, unit = size / _UNIT, larger
    digits = 1 if size < _FEW and unit != "B" else 0
    return f"{size:.{digits}f} {unit}"


def sparkline(counts: Sequence[int]) -> str:
    """Return one character per count; every count above zero is visible."""
    top = max(counts, default=0) or 1
    steps = len(_BARS) - 1
    return "".join(_BARS[max(1, round(count / top * steps)) if count else 0] for count in counts)


def logfmt(event: str, **facts: object) -> str:
    """Return an event and its facts on one line; facts that are None are left out."""
    return " ".join([event, *(_pair(k, v) for k, v in facts.items() if v is not None)])


def _pair(key: str, value: object) -> str:
    text = one_line(str(value))
    if any(character in text for character in ' "='):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{key}={text}"
