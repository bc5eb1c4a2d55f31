"""Format numbers, durations and events for terminals."""

from __future__ import annotations

from collections.abc import Sequence

from swe_rollout.text.escaping import one_line

_BARS = "▁▂▃▄▅▆▇█"


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


def format_clock(seconds: float) -> str:
    """Return `06:41`, or `2:06:41` from one hour on."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


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
