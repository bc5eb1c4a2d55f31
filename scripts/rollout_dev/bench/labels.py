"""Names of figures and ratios for people: `p50_ms_c64` is "p50, 64 at once, ms"."""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = {
    "flatness": "p50 at 1,000 turns to p50 at 50",
    "client_cpu": "client CPU per command",
    "rss": "memory",
    "rss_per_session": "memory per session",
    "open": "time to open the sessions",
    "max": "slowest",
    "cpu_share": "CPU, share of one core",
    "failed": "failed commands",
    "out_64_kib": "64 KiB of output",
    "out_20_mb": "20 MB of output",
    "in_5_mb": "5 MB of input",
    "ours_to_kubectl_20mb": "ours to kubectl, 20 MB of output",
    "ours_to_kubernetes_p50": "ours to kubernetes, p50",
    "warm_to_cold": "warm claim to cold start",
    "ours_to_bare_exec": "ours to bare create + wait + one exec",
    "changed_to_made": "image changed to new pod",
    "obedient_to_made": "image changed, process 1 ends on TERM, to new pod",
}
_UNITS: Final = {"ms": "ms", "s": "s", "mib": "MiB", "kib": "KiB"}
_PREFIXES: Final = (
    (re.compile(r"c(\d+)_per_s"), "turns per second", "at once"),
    (re.compile(r"c(\d+)_client_cpu_ms"), "client CPU per turn, ms", "at once"),
    (re.compile(r"turns_(\d+)_per_s"), "turns per second", "turns"),
    (re.compile(r"turns_(\d+)_client_cpu_ms"), "client CPU per turn, ms", "turns"),
    (re.compile(r"pods_(\d+)_per_s"), "commands per second", "pods"),
)
_SUFFIXES: Final = (
    (re.compile(r"(.+)_c(\d+)"), "at once"),
    (re.compile(r"(.+)_turns_(\d+)"), "turns"),
    (re.compile(r"(.+)_(\d+)"), "turns"),
)
_WINDOW: Final = re.compile(r"(cpu_)?ms_turns_(\d+)_to_(\d+)")


def label(key: str) -> str:
    """Spell a key of a report: figure, scale, unit."""
    if window := _WINDOW.fullmatch(key):
        name = "client CPU per turn" if window[1] else "time of a turn"
        return f"{name}, ms, turns {window[2]} to {window[3]}"
    if key.startswith("trained_share_"):
        return f"trained share, {key.removeprefix('trained_share_').replace('_', '.')} % noise"
    for pattern, name, what in _PREFIXES:
        if found := pattern.fullmatch(key):
            return f"{name}, {_count(found[1], what)}"
    key, scale = _without_scale(key)
    key, unit = _without_unit(key)
    name = _NAMES.get(key, key.replace("_", " "))
    return ", ".join(part for part in (name, scale, unit) if part)


def _without_scale(key: str) -> tuple[str, str]:
    if key in _NAMES:
        return key, ""
    for pattern, what in _SUFFIXES:
        if found := pattern.fullmatch(key):
            return found[1], _count(found[2], what)
    return key, ""


def _without_unit(key: str) -> tuple[str, str]:
    name, _, last = key.rpartition("_")
    if key in _NAMES or not name:
        return key, ""
    return (name, _UNITS[last]) if last in _UNITS else (key, "")


def _count(number: str, what: str) -> str:
    return f"{int(number):,} {what.removesuffix('s') if number == '1' else what}"
