"""Send log events to stderr, one line of logfmt or JSON each, above the live view."""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import util
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Final

from swe_rollout.cli.options import LogFormat
from swe_rollout.text.escaping import one_line, printable
from swe_rollout.text.redaction import redact

if TYPE_CHECKING:
    from rich.console import Console

_LIBRARY: Final = "structlog"
_FORM: Final = ContextVar("log_format", default=LogFormat.LOGFMT)


@dataclass(frozen=True, slots=True)
class _ConsoleLogger:
    """Prints through the console that draws the live view, so that lines never disrupt it."""

    console: Callable[[], Console]

    as_json: bool = False

    def msg(self, message: str) -> None:
        from rich.text import Text

        if self.as_json:
            # Do not wrap: a line is one value. Its content is already cut and escaped.
            self.console().print(Text(redact(message)), soft_wrap=True)
        else:
            line, *exception = redact(message).split("\n")
            shown = [one_line(line, limit=4000), *map(printable, exception)]
            self.console().print(Text("\n".join(shown)))

    log = debug = info = warning = error = critical = exception = msg


def configure_logs(
    console: Callable[[], Console], *, verbosity: int, form: LogFormat | None = None
) -> None:
    """Send structlog's events to the console: -1 errors, 0 warnings, 1 information, 2 everything.

    Without `form`, lines keep their current format. Verbs that import no structlog do not pay for
    it: it is configured when it is imported.
    """
    if form is not None:
        _FORM.set(form)
    chosen = _FORM.get()
    if _LIBRARY in sys.modules:
        _configure(console, verbosity, chosen)
    else:
        sys.meta_path.insert(0, _OnImport(lambda: _configure(console, verbosity, chosen)))


def _configure(console: Callable[[], Console], verbosity: int, form: LogFormat) -> None:
    import logging

    import structlog

    levels = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}
    as_json = form is LogFormat.JSON

    def rendered(logger: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        return _rendered(logger, method, event, as_json=as_json)

    structlog.configure(
        processors=[rendered],
        wrapper_class=structlog.make_filtering_bound_logger(levels.get(verbosity, logging.DEBUG)),
        logger_factory=lambda *_: _ConsoleLogger(console, as_json),
        cache_logger_on_first_use=False,
    )


def _rendered(logger: Any, method: str, event: MutableMapping[str, Any], *, as_json: bool) -> Any:
    """Format an event as a line, using the shared processors."""
    from swe_rollout.text.logs import processors

    line: Any = event
    for each in processors(as_json=as_json):
        line = each(logger, method, line)
    return line


class _OnImport:
    """Finds structlog once, and configures it after its import."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find structlog; leave all other modules to the other finders."""
        del path, target
        if name != _LIBRARY:
            return None
        sys.meta_path.remove(self)
        spec = util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader = spec.loader
            run = loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                self._act()

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
