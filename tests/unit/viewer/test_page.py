"""Pages: complete, self-contained, small, and harmless whatever a record holds."""

from __future__ import annotations

import base64
import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from pages import contents
from swe_rollout.types.episode import EpisodeId
from swe_rollout.viewer.page import Page, start_at
from unit.viewer.records import HOSTILE, Reader, summary, trajectory

SHELL_BYTES = 80_000
"""A page without data: style sheet, scripts and help."""


def page_of(*texts: str, data_bytes: int = 1 << 20, summarised: bool = True) -> str:
    """A page of one job with an episode for each text."""
    page = Page(data_bytes)
    job = page.add_job("demo", "runs/demo", {"spec": {"agent": {"tools": ["bash"]}}})
    for sample, text in enumerate(texts):
        page.add(job, trajectory(text=text, sample=sample), None)
    if summarised:
        page.summarise(job, summary())
    return page.html()


@given(text=st.text() | st.just(HOSTILE) | st.just("]]>--></SCRIPT ><!--<script>\u2028\u202e\x00"))
def test_a_page_is_the_same_but_for_its_data_whatever_a_record_holds(text: str) -> None:
    harmless, hostile = Reader(page_of("I look.")), Reader(page_of(text))

    assert hostile.tags == harmless.tags
    assert hostile.attributes == harmless.attributes
    assert hostile.ids == harmless.ids
    assert hostile.open == []
    assert [*harmless.words][-2:] == [*hostile.words][-2:]


def test_the_title_is_text_whatever_the_job_is_called() -> None:
    page = Page()
    page.add_job(HOSTILE, HOSTILE)

    assert Reader(page.html()).tags.count("script") == Reader(Page().html()).tags.count("script")


def test_rows_are_those_of_their_job_whatever_it_is_called() -> None:
    page, names = Page(), ['"rows":[]', '"jobs":[]\\', "a\ud800"]
    for number, name in enumerate(names):
        job = page.add_job(name, name)
        for sample in range(number):
            page.add(job, trajectory(sample=sample), None)
    jobs = contents(page.html())[0]["jobs"]
    assert [each["name"] for each in jobs] == names
    assert [[row["sample"] for row in each["rows"]] for each in jobs] == [[], [0], [0, 1]]


def test_a_page_loads_nothing_and_runs_only_its_own_script() -> None:
    page = page_of("https://example.com/x.js")
    reader = Reader(page)

    assert {"src", "href", "style", "onclick"}.isdisjoint(reader.attributes)
    assert {"link", "img", "iframe", "object"}.isdisjoint(reader.tags)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    rules = dict(rule.partition(" ")[::2] for rule in policy[1].split("; "))
    assert rules["default-src"] == rules["connect-src"] == rules["base-uri"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy[1]
    for kind, element in (("script-src", "script"), ("style-src", "style")):
        text = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        assert len(text) == 1
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"


def test_a_job_page_holds_every_episode_and_its_row() -> None:
    index, *records = contents(page_of("one", "two"))

    (job,) = index["jobs"]
    assert [row["blob"] for row in job["rows"]] == ["e0", "e1"]
    assert [row["sample"] for row in job["rows"]] == [0, 1]
    assert [record["episode"] for record in records] == [
        f"demo/sqlparse-0.5.1/{n}" for n in range(2)
    ]
    assert job["summary"]["committed"] == 2
    assert job["tools"] == ["bash"]


def test_episodes_that_do_not_fit_stay_in_the_table() -> None:
    index, *records = contents(page_of("one", "two", "three", data_bytes=1))

    assert len(records) == 1  # the first is always there
    assert [row["blob"] for row in index["jobs"][0]["rows"]] == ["e0", None, None]


def test_a_page_without_episodes_is_small() -> None:
    assert len(page_of(summarised=False)) < SHELL_BYTES


def test_an_episode_takes_a_small_part_of_its_record() -> None:
    long = "The quick brown fox jumps over the lazy dog. " * 2000
    assert len(page_of(long)) < SHELL_BYTES + len(long) / 4


def test_a_page_opens_at_an_episode_or_at_two() -> None:
    first, second = EpisodeId("demo", "a+b", 3), EpisodeId("other", "c", 0)

    assert start_at([], jobs=1) == ""
    assert start_at([first], jobs=1) == "#/0/a%2Bb/3"
    assert start_at([first, second], jobs=2) == "#/compare/0/a%2Bb/3/1/c/0"
