"""Chat templates: which templates of a folder are exact, and why the others are refused.

Each template gets its own vocabulary: a byte-level BPE with the control tokens that it mentions.
Then all checks of `swe-rollout check-template` run on it in a process with limits, because a
template is a program. Templates that leave out the tools are counted separately: the harness
describes the tools, in a way for which the model was not trained. Exits with 1 if a template was
accepted, but a check of its tokens fails.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import resource
import stat
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

from rollout_dev.families import vocabulary
from rollout_dev.report import Report, Row, option, program, table
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.template_probe import Grammar
from swe_rollout.errors import PrerequisiteError
from swe_rollout.testing.tokens.conformance import check_conformance

_SUFFIXES: Final = (".jinja", ".jinja2", ".j2")
MAX_BYTES: Final = 1 << 20
"""Maximum size of a template."""
_MAX_FILES: Final = 10_000
_MEMORY: Final = 4 << 30
_MAX_REASON: Final = 600
_EXACT: Final = "exact"
_IN_WORDS: Final = "exact, tools in words"
"""The template leaves out the tools; the text of the first messages describes them."""
_REFUSED: Final = "refused"
_WRONG: Final = "wrong"
"""The template was accepted, but a check failed."""
_VERDICTS: Final = (_EXACT, _IN_WORDS, _REFUSED, _WRONG)
_CONTEXT: Final = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one template."""

    verdict: str
    """One of `_VERDICTS`."""
    family: str = ""
    tool_format: str = ""
    remarks: str = ""
    """Remarks on an accepted template."""
    reason: str = ""
    """Why the template is not exact."""
    fix: str = ""


@program(
    option("paths", nargs="+", type=Path, metavar="FOLDER", help="or single files"),
    option("--seconds", type=int, default=60, help="a template's time; default 60"),
    option("--jobs", type=int, default=os.cpu_count() or 1, help="at the same time"),
    option("--tool-format", help="as in spec.agent.toolFormat; default: detected"),
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Check every template; none may be accepted that is not exact."""
    logging.disable(logging.WARNING)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    began = time.monotonic()
    # Imported once, before processes are forked, because that takes seconds.
    import transformers  # noqa: F401, PLC0415

    folders = {path: tuple(_files(path)) for path in given.paths}
    files = tuple(dict.fromkeys(file for found in folders.values() for file in found))
    with ThreadPoolExecutor(given.jobs) as pool:
        outcomes = list(pool.map(lambda file: _checked(file, given), files))
    found = dict(zip(files, outcomes, strict=True))
    rows = tuple(_row(file, each) for file, each in found.items())
    ok = bool(rows) and all(each.verdict != _WRONG for each in outcomes)
    counts = [
        f"{folder}: {_counted([found[file] for file in files])}"
        for folder, files in folders.items()
        if len(folders) > 1 and folder.is_dir()
    ]
    notes = (*counts, _counted(outcomes), f"took {time.monotonic() - began:.0f} s")
    report = Report("templates", rows, ok, notes=notes)
    return replace(report, text=_table(report))


def _counted(outcomes: Sequence[Outcome]) -> str:
    counts = Counter(each.verdict for each in outcomes)
    return "; ".join(f"{counts[each]} {each}" for each in _VERDICTS) + f"; of {len(outcomes)}"


def _files(path: Path) -> Iterator[Path]:
    """Yield `path` if it is a file, or the templates in it if it is a folder."""
    if not path.is_dir():
        yield path
        return
    found = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if name.endswith(_SUFFIXES) and found < _MAX_FILES:
                found += 1
                yield Path(folder, name)


def _checked(path: Path, given: Namespace) -> Outcome:
    """Check one template in a separate process, which is ended when its time is up."""
    try:
        source = _source(path)
    except (OSError, ValueError) as error:
        return Outcome(_REFUSED, reason=str(error), fix="give a file with a Jinja template")
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(
        target=_check_here, args=(source, given.tool_format, given.seconds, sender), daemon=True
    )
    process.start()
    sender.close()
    wait([receiver, process.sentinel], given.seconds)
    found = _received(receiver, given.seconds)
    process.kill()
    process.join()
    return found


def _source(path: Path) -> str:
    """Read a template. ValueError says why the file is not one."""
    # A FIFO would block an ordinary open.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    text = content.decode("utf-8")
    if not text.strip():
        raise ValueError("it is empty")
    return text


def _received(receiver: Connection, seconds: int) -> Outcome:
    late = Outcome(
        _REFUSED,
        reason=f"it was not done after {seconds} s, or took more than {_MEMORY >> 30} GiB",
        fix="use a template that ends; --seconds gives it more time",
    )
    try:
        return Outcome(**json.loads(receiver.recv_bytes())) if receiver.poll(0) else late
    except (EOFError, OSError):
        return late
    finally:
        receiver.close()


def _check_here(source: str, tool_format: str | None, seconds: int, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))
    with tempfile.TemporaryDirectory() as folder:
        found = _outcome(source, Path(folder), tool_format)
    written = {name: getattr(found, name)[:_MAX_REASON] for name in Outcome.__slots__}
    sender.send_bytes(json.dumps(written).encode(errors="replace"))


def _outcome(source: str, folder: Path, tool_format: str | None) -> Outcome:
    try:
        renderer = Renderer.load(str(vocabulary.write(source, folder)), tool_format=tool_format)
        found = check_conformance(renderer, quick=True)
    except PrerequisiteError as error:
        return Outcome(_REFUSED, reason=error.why or error.what, fix=error.fix)
    except Exception as error:  # noqa: BLE001 - a template is a program and may raise anything
        return Outcome(_REFUSED, reason=f"{type(error).__name__}: {error}")
    failed = [f"{check.name}: {check.detail}" for check in found.checks if not check.passed]
    grammar = renderer.grammar
    exact = _EXACT if grammar.dialect.writes_tools else _IN_WORDS
    return Outcome(
        _WRONG if failed else exact,
        renderer.path.family,
        renderer.tool_format,
        remarks="; ".join(_remarks(grammar)),
        reason=" | ".join(failed),
    )


def _remarks(grammar: Grammar) -> Iterator[str]:
    dialect = grammar.dialect
    if dialect.calls_in_words is not None:
        yield "calls are words of a turn"
    if dialect.results_as_user:
        yield "results are a user message"
    if not dialect.has_system:
        yield "no system message"
    if dialect.moves_prompt or dialect.moves_system:
        yield "the prompt is rewritten once a turn follows, what was sent stays"
    elif grammar.is_rewritten:
        yield "turns are rewritten later, what was sent stays"
    if dialect.one_call:
        yield "one call in a turn"


def _row(path: Path, found: Outcome) -> Row:
    labels = {name: getattr(found, name) for name in Outcome.__slots__}
    return Row(str(path), {}, {name: text for name, text in labels.items() if text})


def _table(report: Report) -> str:
    header = ("template", "verdict", "family", "format", "remarks", "reason")
    names = Outcome.__slots__[:-1]
    rows = (
        (row.subject, *(row.labels.get(name, "").replace("\n", " ") for name in names))
        for row in report.rows
    )
    return "\n".join([*table(header, rows), *report.notes, "ok" if report.ok else "NOT OK"])
