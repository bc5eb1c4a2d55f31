"""The surfaces by name, loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from rollout_dev.fuzz.surface import Surface

_HERE: Final = "rollout_dev.fuzz.surfaces"

SURFACES: Final = {
    "job-yaml": "jobs:JOB_YAML",
    "extension-args": "jobs:EXTENSION_ARGS",
    "dataset-files": "rows:FILES",
    "dataset-rows": "rows:ROWS",
    "harbor-tasks": "rows:HARBOR",
    "supervisor-results": "frames:RESULTS",
    "supervisor-requests": "frames:REQUESTS",
    "exec-streams": "frames:EXEC",
    "model-text": "model_text:CALLS",
    "model-turns": "model_text:TURNS",
    "sglang-answers": "engines:SGLANG",
    "chat-answers": "engines:CHAT",
    "archives": "archives:ARCHIVES",
    "patches": "archives:PATCHES",
    "test-logs": "logs:LOGS",
    "test-reports": "logs:REPORTS",
    "records": "stored:RECORDS",
    "pages": "stored:PAGES",
    "library-dumps": "stored:DUMPS",
    "journals": "stored:JOURNALS",
    "store-objects": "stored:OBJECTS",
    "mcp-messages": "mcp:MESSAGES",
    "kube-objects": "kube:OBJECTS",
}


def load(name: str) -> Surface:
    """Return a surface by name, or your own one named as `module:attr`."""
    place = f"{_HERE}.{SURFACES[name]}" if name in SURFACES else name
    module, _, attribute = place.partition(":")
    surface: Surface = getattr(import_module(module), attribute)
    return surface
