"""Cards of a notebook: bounded, escaped, self-contained."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.errors import Boundary
from swe_rollout.store.summary import InstanceSummary, JobSummary
from swe_rollout.text.notebook_html import ROWS, Table, card
from swe_rollout.training.groups import FailedSample, Group
from swe_rollout.types.trajectory import Trajectory
from unit.export.export_parts import failed, trajectory

TAGS = {"div", "b", "table", "tr", "td", "th", "details", "summary", "pre"}
HOSTILE = "<script>boom()</script><img src=x onerror=boom()>\"' \x1b[2J\u202e"
TEXTS = st.text() | st.just(HOSTILE) | st.just("</td></table></pre><style>*{}</style>")


class Reader(HTMLParser):
    """The tags, attributes and texts of some HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def require_harmless(text: str) -> Reader:
    reader = Reader(text)
    assert set(reader.tags) <= TAGS
    assert reader.attributes <= {"style"}
    assert reader.open == []
    assert "url(" not in text
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text) is None
    return reader


@given(title=TEXTS, name=TEXTS, value=TEXTS, cell=TEXTS, fold=TEXTS)
def test_no_text_becomes_markup(title: str, name: str, value: str, cell: str, fold: str) -> None:
    made = card(title, {name: value}, table=Table([cell], [[cell]]), folds={name: fold})
    require_harmless(made)


def test_a_card_is_small_whatever_it_holds() -> None:
    rows = [["x" * 10**5] * 6] * 10**3
    made = card("t" * 10**6, {"f": "y" * 10**6}, table=Table(["c"], rows), folds={"p": "z" * 10**7})

    assert len(made) < 60_000
    assert f"… and {10**3 - ROWS} more" in made
    assert "… and 9,996,000 more characters" in made


def test_colours_are_those_of_the_notebook() -> None:
    made = card("t", {"a": "b"}, table=Table(["c"], [["d"]]), folds={"e": "f"})
    assert re.search(r"(?<![-\w])(color|background-color):", made) is None
    assert {*re.findall(r"background:(\w+)", made)} == {"none"}


def huge(found: Trajectory) -> Trajectory:
    turns = tuple(replace(found.turns[0], index=n, text=HOSTILE * 100) for n in range(5000))
    return replace(found, turns=turns, patch=HOSTILE * 10**4, policy=HOSTILE)


def test_a_trajectory_a_group_and_a_summary_have_cards() -> None:
    found = huge(trajectory())
    told = require_harmless(found._repr_html_()).words
    for words in ("Trajectory demo/a/0", "finished", "1 (resolved 1 × 1)", "… and 4,980 more"):
        assert words in told
    assert "sandbox: SandboxError: lost" in require_harmless(failed(found)._repr_html_()).words

    lost = FailedSample("demo/a/1", Boundary.SANDBOX, HOSTILE, HOSTILE)
    group = Group("demo/a", 3, (found, trajectory(sample=1)), (lost,))
    told = require_harmless(group._repr_html_()).words
    for words in ("Group demo/a", "2 of 3", "1 · 1", "none: all rewards are equal", "sandbox"):
        assert words in told

    tasks = tuple(InstanceSummary(f"t{n}", 4, 2, 0.5, 12, 99, 0) for n in range(1000))
    summary = JobSummary("demo", 5, 4, 2, 1, 1, 0.5, {"submitted": 3}, {HOSTILE: 1}, tasks)
    told = require_harmless(summary._repr_html_()).words
    for words in ("Job demo", "4 of 5 committed", "submitted 3", "1: ", "… and 980 more"):
        assert words in told
    for made in (found, group, summary):
        assert len(made._repr_html_()) < 60_000
