"""The one writer of reference pages: it fills blocks of a page with what the code says.

A block stands between `<!-- begin NAME: made by scripts/generate -->` and `<!-- end NAME -->`; all
else on a page is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rollout_dev.codegen.crd import job_schema, written
from rollout_dev.report import table
from swe_rollout.spec.fields import SpecField


def filled(page: Path, blocks: Mapping[str, Iterable[str]]) -> str:
    """Return the text of a page with these blocks, each of which it has once."""
    text = page.read_text("utf-8")
    for name, lines in blocks.items():
        begin, end = f"<!-- begin {name}: made by scripts/generate -->\n", f"<!-- end {name} -->\n"
        if (text.count(begin), text.count(end)) != (1, 1):
            raise SystemExit(f"{page}: needs one block between {begin.strip()} and {end.strip()}")
        before, _, rest = text.partition(begin)
        body = "\n".join(lines).rstrip("\n")
        text = f"{before}{begin}\n{body}\n\n{end}{rest.partition(end)[2]}"
    return text


def field_table(fields: Iterable[SpecField], name: str = "field") -> Iterator[str]:
    """Yield the table of some fields of a model."""
    rows = ((f"`{each.name}`", each.type, _default(each), each.doc) for each in fields)
    yield from table((name, "type", "default", "meaning"), rows)


def _default(field: SpecField) -> str:
    if field.required:
        return "required"
    if "\n" in field.default:
        return "a general one"
    if field.type == "mapping" and field.path[0] == "spec":
        try:
            whole = job_schema().at(field.dotted).default
        except LookupError:
            return ""  # The schema says nothing of a mapping that has a short form.
        return f"`{written(whole)}`" if whole else ""
    return f"`{field.default}`" if field.default else ""
