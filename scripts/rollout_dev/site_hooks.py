"""Hooks of the documentation's site (`mkdocs.yml`), because its pages are written for GitHub.

Python-Markdown wants four spaces per level of a list and a blank line before one; GitHub does not.
A link to a file of the repository that is not a page becomes the file's path, or a link to it below
`SOURCE_URL`.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Protocol

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
PER_LEVEL = 4
"""How many spaces Python-Markdown needs to indent the content of a list item."""
LINK = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")
DEFINITION = re.compile(r"^\[(?P<label>[^\]]+)\]: (?P<target>\S+)$", re.MULTILINE)
MARKER = re.compile(r"[-*+]|\d+[.)]")
log = logging.getLogger("mkdocs.hooks.swe_rollout")


class _File(Protocol):
    src_uri: str


class _Page(Protocol):
    file: _File


def on_page_markdown(markdown: str, *, page: _Page, **_: object) -> str:
    """Return a page's text in the form that Python-Markdown reads."""
    return with_python_markdown_lists(
        without_repository_links(
            markdown, page.file.src_uri, source_url=os.environ.get("SOURCE_URL", "")
        )
    )


def without_repository_links(text: str, page: str, *, source_url: str = "") -> str:
    """Replace links from `page` (relative to docs/) to files outside docs/.

    A missing file is a warning, which fails a strict build.
    """

    def replaced(match: re.Match[str]) -> str:
        label, target = match["text"], match["target"].partition("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(DOCS, posixpath.dirname(page), target))
        if path.startswith(f"{DOCS}/"):
            return match[0]
        if path.startswith("..") or not (ROOT / path).exists():
            log.warning("%s links to %s, which is not in the repository", page, target)
        if source_url:
            return f"[{label}]({source_url.rstrip('/')}/{path})"
        return label if path in label.rstrip("/`") else f"{label} (`{path}`)"

    # References that are defined below become inline links, then are treated like all others.
    for definition in DEFINITION.finditer(text):
        if definition["target"].startswith("../"):
            name = re.escape(definition["label"])
            text = re.sub(rf"\]\[{name}\]", f"]({definition['target']})", text)
            text = text.replace(definition[0], "")
    fenced = {
        number
        for token in MarkdownIt().parse(text)
        if token.type in ("fence", "code_block") and token.map
        for number in range(*token.map)
    }
    # Take whole runs of lines between fences: a link may cross the end of a line.
    pieces: list[str] = []
    prose: list[str] = []
    for number, line in enumerate(text.splitlines(keepends=True)):
        if number in fenced:
            pieces += [LINK.sub(replaced, "".join(prose)), line]
            prose = []
        else:
            prose.append(line)
    return "".join([*pieces, LINK.sub(replaced, "".join(prose))])


def with_python_markdown_lists(text: str) -> str:
    """Indent the contents of lists by four spaces a level; set lists and tables apart."""
    lines = text.split("\n")
    depth = [0] * (len(lines) + 1)
    content = [0] * (len(lines) + 1)
    first: set[int] = set()
    separate: set[int] = set()
    level = 0
    for token in MarkdownIt().enable("table").parse(text):
        level += token.nesting * (token.type in ("list_item_open", "list_item_close"))
        if not token.map:
            continue
        start, end = token.map
        if token.type == "list_item_open":
            first.add(start)
            begin = len(lines[start]) - len(lines[start].lstrip())
            marker = MARKER.match(lines[start], begin)
            width = marker.end() if marker else begin
            rest = lines[start][width:]
            column = width + max(1, len(rest) - len(rest.lstrip())) if rest.strip() else width + 1
            depth[start:end] = [level] * (end - start)
            content[start:end] = [column] * (end - start)
        elif token.type in ("bullet_list_open", "ordered_list_open", "table_open") and level == 0:
            separate.add(start)
    written: list[str] = []
    for number, line in enumerate(lines):
        if number in separate and written and written[-1].strip():
            written.append("")
        if not depth[number] or not line.strip():
            written.append(line)
        elif number in first:
            written.append(" " * PER_LEVEL * (depth[number] - 1) + line.lstrip())
        else:
            stripped = min(content[number], len(line) - len(line.lstrip()))
            written.append(" " * PER_LEVEL * depth[number] + line[stripped:])
    return "\n".join(written)
