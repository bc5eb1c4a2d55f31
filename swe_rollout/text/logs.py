"""Log events as logfmt lines or as JSON. Programs that use the package get them on stderr.

stdout belongs to the program, and a program that configures structlog itself keeps its own
configuration. Lines about an episode have its address and attempt, which `Recorder` binds; JSON
lines also have the parts of the address.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from swe_rollout.text.redaction import redact

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ADDRESS: Final = re.compile(r"([^/]+)/([^/]+)/(\d+)")
_VALUE_CHARS: Final = 4000
"""Maximum length of a value in a JSON line; longer values are cut."""


def processors(*, as_json: bool = False) -> list[Processor]:
    """Return the processors that turn an event into a line of logfmt or JSON.

    Below a line of logfmt follow the lines of its exception, which are unreadable in a field.
    """
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    if as_json:
        return [*common, add_address, _cut_values, structlog.processors.JSONRenderer(_dump)]
    keys = ["timestamp", "level", "event"]
    render = structlog.processors.LogfmtRenderer(key_order=keys, bool_as_flag=False)

    def with_exception(logger: WrappedLogger, method: str, event: EventDict) -> str:
        lines = str(event.pop("exception", ""))[-_VALUE_CHARS:]
        return "\n".join(filter(None, [render(logger, method, event), lines]))

    return [*common, with_exception]


def add_address(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the parts of an episode's address: `job`, `instance` and `sample`."""
    if found := _ADDRESS.fullmatch(str(event.get("episode", ""))):
        event.setdefault("job", found[1])
        event.setdefault("instance", found[2])
        event.setdefault("sample", int(found[3]))
    return event


def shared_context() -> Context:
    """Return a context for a task that serves all episodes, whichever episode starts it.

    With `asyncio.create_task(…, context=shared_context())`, the task's lines name no episode.
    """
    context = copy_context()
    context.run(structlog.contextvars.clear_contextvars)
    return context


def _cut_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, str) and len(value) > _VALUE_CHARS:
            event[key] = f"{value[:_VALUE_CHARS]}…"
    return event


def _dump(event: EventDict, **_options: object) -> str:
    """Encode a line in ASCII, so that nothing in it can control a terminal."""
    first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return json.dumps(first | dict(event), default=repr, ensure_ascii=True)


def log_to_stderr() -> None:
    """Send warnings and errors to stderr, unless the program has configured structlog."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=processors(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=lambda *_: _StderrLogger(),
        cache_logger_on_first_use=False,
    )


@dataclass(frozen=True, slots=True)
class _StderrLogger:
    def msg(self, message: str) -> None:
        lines = redact(message).split("\n")
        sys.stderr.write("".join(f"{_CONTROL.sub('␛', line)}\n" for line in lines))

    log = debug = info = warning = error = critical = exception = msg
