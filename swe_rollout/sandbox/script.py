"""Shell scripts that run in sandboxes or start them: the files in `scripts`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


def read_script(name: str, **values: object) -> str:
    """Return the script `scripts/NAME.sh`, with each `@name@` replaced by its value."""
    text = _text(name)
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


@cache
def _text(name: str) -> str:
    return (files("swe_rollout.sandbox") / "scripts" / f"{name}.sh").read_text()
