"""Build HTML in which untrusted text can't become markup. Text is escaped here, nowhere else.

`tag` makes a `Markup` and escapes every plain string it is given. Used by the pages of the viewer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swe_rollout.text.escaping import escaped


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML whose text is escaped."""

    html: str


Part = Markup | str


def join(parts: Iterable[Part]) -> Markup:
    """Concatenate parts; strings are escaped."""
    return Markup("".join(p.html if isinstance(p, Markup) else escaped(p) for p in parts))


def tag(name: str, *parts: Part, **attributes: str) -> Markup:
    """Make `<name …>parts</name>`; `class_` is the attribute `class`."""
    named = "".join(
        f' {key.rstrip("_")}="{escaped(value)}"' for key, value in attributes.items() if value
    )
    return Markup(f"<{name}{named}>{join(parts).html}</{name}>")


def table(columns: Iterable[str], rows: Iterable[Iterable[Part]]) -> Markup:
    """Make a table; columns whose name ends in `#` hold numbers."""
    names = list(columns)
    classes = ["n" if name.endswith("#") else "" for name in names]
    head = [
        tag("th", name.rstrip("#"), class_=kind) for name, kind in zip(names, classes, strict=True)
    ]
    body = [
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, classes, strict=True)))
        for row in rows
    ]
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))


def facts(pairs: Iterable[tuple[str, Part]]) -> Markup:
    """Make a row of named values."""
    return tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs),
        class_="facts",
    )


def fold(label: Part, content: Part, *, open_: str = "") -> Markup:
    """Make content that folds behind its label; with `open_` it starts unfolded."""
    return tag("details", tag("summary", label), content, open=open_)
