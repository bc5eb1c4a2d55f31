"""Pages in a real browser: what is shown, keys, colours, filters, size, and hostile records.

Needs Chromium: `apt-get install chromium-headless-shell`, or SWE_ROLLOUT_CHROMIUM.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollout_dev.chromium import HOW_TO_INSTALL, Browser, chromium, find_chromium
from swe_rollout.errors import Boundary
from swe_rollout.store.store import Store
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.tokens.branch import BranchKind
from swe_rollout.types.episode import EpisodeId, Failure
from swe_rollout.types.failure_groups import FailureGroups
from swe_rollout.types.trajectory import ChatLine, TokenPath, Trajectory
from swe_rollout.types.verdict import Reward, RewardTerm
from swe_rollout.viewer.page import Page, PageJob
from swe_rollout.viewer.served import PageServer
from swe_rollout.viewer.served_jobs import ServedJob
from swe_rollout.viewer.token_text import TokenTexts
from unit.cli.store_parts import stored
from unit.viewer.records import HOSTILE, summary, trajectory

pytestmark = pytest.mark.skipif(find_chromium() is None, reason=HOW_TO_INSTALL)

ATTACK = (
    f"{HOSTILE}]]>--></script ><svg onload=boom()><img src=x onerror=boom()>"
    "<a href=javascript:boom()>x</a><style>*{display:none}</style>"
    "\u2028\u2029\u202e\u2066\x1b[31mred\x1b[0m\x00\ud800 {{7*7}} ${boom()}"
)
TEXTS = TokenTexts("tiny", tokenizer_path() / "tokenizer.json")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    assert path is not None
    with chromium(path) as started:
        yield started


def shown(
    text: str = "I look.", *, instance: str = "sqlparse-0.5.1", sample: int = 0
) -> Trajectory:
    made = trajectory(text=text, sample=sample)
    lines = (ChatLine("system", f"Be {text}"), ChatLine("user", f"Fix the issue: {text}"))
    episode = EpisodeId("demo", instance, sample)
    return replace(made, episode=episode, prompts=lines)


def written(folder: Path, *episodes: Trajectory, texts: TokenTexts | None = None) -> str:
    """The address of a job's page with these episodes."""
    page = Page()
    job = page.add_job("demo", "runs/demo", {"spec": {"agent": {"tools": ["bash", "submit"]}}})
    for each in episodes:
        page.add(job, each, texts)
    groups = FailureGroups()
    for each in episodes:
        if each.failure is not None:
            groups.add(each.episode, each.failure)
    page.summarise(job, replace(summary(), masked=1, failure_groups=groups.ranked()))
    return put(folder, page.html())


def put(folder: Path, html: str) -> str:
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


def text_of(browser: Browser, selector: str = "body") -> str:
    found: str = browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
    return found


def number_of(browser: Browser, selector: str) -> int:
    found: int = browser.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")
    return found


def complaints(browser: Browser) -> list[Any]:
    """Errors of scripts, and what the content security policy refused."""
    return [
        *browser.events("Runtime.exceptionThrown"),
        *(each["entry"] for each in browser.events("Log.entryAdded")),
    ]


def open_episode(browser: Browser, address: str, where: str = "sqlparse-0.5.1/0") -> None:
    browser.open(f"{address}#/0/{where}")


def test_an_episode_shows_prompt_turns_calls_patch_tests_findings_and_commands(
    browser: Browser, tmp_path: Path
) -> None:
    open_episode(browser, written(tmp_path, shown()))

    text = text_of(browser)
    for expected in (
        *("Fix the issue: I look.", "tools bash", "Turn 0", "engine", "not executed"),
        *("+new I look.", "FAILED", "unresolved", "invalid json: I look."),
        *("swe-rollout regrade runs/demo/sqlparse-0.5.1/0", "everything else"),
        "3 of 123 tokens sampled (2 %); the rest is masked",
    ):
        assert expected in text
    assert number_of(browser, ".latency") == 2
    assert complaints(browser) == []


def test_a_call_is_readable_and_its_raw_text_is_one_click_away(
    browser: Browser, tmp_path: Path
) -> None:
    raw = '{"name": "bash", "arguments": {"command": "cat <<E\\nline\\nE"}}'
    text = f"I look.\n<tool_call>\n{raw}\n</tool_call><|im_end|>"
    made = shown()
    call = replace(
        made.turns[0].tool_calls[0], raw=f"\n{raw}\n", arguments={"command": "cat <<E\nline\nE"}
    )
    turn = replace(made.turns[0], text=text, tool_calls=(call,), observations=())
    path = TokenPath("chatml", "hermes", "0")
    open_episode(browser, written(tmp_path, replace(made, turns=(turn,), token_path=path)))

    assert text_of(browser, ".turn .said").strip() == "I look."
    assert text_of(browser, ".turn .call pre") == "cat <<E\nline\nE"
    assert "arguments" not in text_of(browser, ".turn")
    browser.evaluate(
        "[...document.querySelectorAll('.turn summary')]"
        ".find(e => e.innerText == 'as sampled').click()"
    )
    browser.wait("document.querySelector('.turn').innerText.includes('arguments')")


def test_tokens_are_decoded_and_coloured_and_tell_id_logprob_weights_and_branch(
    browser: Browser, tmp_path: Path
) -> None:
    pieces = TEXTS.pieces((7, 8, 9))
    made = shown("".join(pieces))
    child = replace(
        made.main_branch, index=1, kind=BranchKind.SUB_AGENT, parent=0, parent_length=50
    )
    made = replace(made, branches=(child,))
    open_episode(browser, written(tmp_path, made, texts=TEXTS))

    assert "Branch 1: sub-agent, from branch 0 at token 50" in text_of(browser)
    browser.evaluate("document.querySelectorAll('.strip')[0].querySelector('.sampled').click()")
    browser.wait("document.querySelectorAll('#tokens details[open] b').length == 3")
    drawn = browser.evaluate(
        "[...document.querySelectorAll('#tokens details[open] b')]"
        ".map(e => [e.textContent, e.className])"
    )
    assert drawn == [
        [piece, f"sampled p{shade}"] for piece, shade in zip(pieces, (0, 2, 4), strict=True)
    ]
    browser.evaluate(
        "document.querySelector('#tokens details[open] .p2')"
        ".dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))"
    )
    title = browser.evaluate("document.querySelector('#tokens details[open] .p2').title")
    for expected in ("id 8", "mask 1", "logprob -1 (36.8 %)", "weights", "turn 0 · branch 0"):
        assert expected in title
    assert complaints(browser) == []


def test_without_a_tokenizer_ids_are_shown_and_the_page_says_why(
    browser: Browser, tmp_path: Path
) -> None:
    open_episode(browser, written(tmp_path, shown()))
    assert "name it with --tokenizer" in text_of(browser, "#tokens")
    browser.evaluate("document.querySelector('#tokens .strip .sampled').click()")
    browser.wait("document.querySelectorAll('#tokens b.id').length == 3")


def test_a_failure_names_its_owner_and_its_attempt(browser: Browser, tmp_path: Path) -> None:
    trace = '  File "<b>mine.py", line 3, in reward\n    return 1 / 0'
    failure = Failure(
        Boundary.SANDBOX, "PodLostError", "the pod was evicted", retryable=True, trace=trace
    )
    broken = replace(
        shown(), stop_reason=None, verdict=None, reward=None, failure=failure, attempt=2, turns=()
    )
    address = written(tmp_path, broken)

    open_episode(browser, address)
    text = text_of(browser)
    assert (
        "PodLostError (owner: sandbox), attempt 2; it may be retried: the pod was evicted" in text
    )
    assert "there is no reward" in text
    assert trace.strip() in text
    browser.open(address)
    assert "sandbox: PodLostError" in text_of(browser, ".plots")
    page = text_of(browser)
    for words in ("1 masked episode", "PodLostError: the pod was evicted", "swe-rollout doctor"):
        assert words in page


def test_what_a_judge_said_is_shown_and_not_obeyed(browser: Browser, tmp_path: Path) -> None:
    browser.send("Runtime.addBinding", name="boom")
    term = RewardTerm("judge", 0.5, 1.0, "judge-1", "<script>boom()</script>\nScore: 0.5")
    open_episode(browser, written(tmp_path, replace(shown(), reward=Reward((term,)))))
    browser.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")

    text = text_of(browser)
    assert "judge 0.5, by judge-1" in text
    assert "<script>boom()</script>" in text
    assert browser.events("Runtime.bindingCalled") == []


def test_nothing_of_a_hostile_record_runs(browser: Browser, tmp_path: Path) -> None:
    browser.send("Runtime.addBinding", name="boom")
    address = written(tmp_path, shown(ATTACK, sample=0), shown(ATTACK, sample=1))
    for where in ("", "#/0/sqlparse-0.5.1/0", "#/compare/0/sqlparse-0.5.1/0/0/sqlparse-0.5.1/1"):
        browser.open(f"{address}{where}")
        browser.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
        browser.evaluate("new Promise(done => setTimeout(done, 100))")

        assert browser.events("Runtime.bindingCalled") == []
        assert browser.events("Page.javascriptDialogOpening") == []
        assert (
            number_of(browser, "main img, main script, main style, main iframe, main svg[onload]")
            == 0
        )
        assert number_of(browser, "main a[href^=javascript]") == 0
        requested = [each["request"]["url"] for each in browser.events("Network.requestWillBeSent")]
        assert {url.partition(":")[0] for url in requested} <= {"file", "about"}
        assert complaints(browser) == []
    text = text_of(browser)
    assert "<img src=x onerror=boom()>" in text
    assert not set(text) & set("\u202e\u2066\x00\x1b\u2028")
    assert "⟨U+202E⟩" in text


def test_markup_from_text_is_refused_even_to_our_own_script(
    browser: Browser, tmp_path: Path
) -> None:
    browser.open(written(tmp_path, shown()))
    told = browser.evaluate(
        "(() => { try { document.body.innerHTML = '<p>x'; return 'set'; }"
        " catch (e) { return e.name; } })()"
    )
    assert told == "TypeError"


def test_keys_go_through_turns_and_episodes(browser: Browser, tmp_path: Path) -> None:
    made = shown()
    turns = tuple(replace(made.turns[0], index=i) for i in range(150))
    second = replace(made, turns=turns, episode=EpisodeId("demo", "sqlparse-0.5.1", 1))
    browser.open(written(tmp_path, made, second))

    browser.press("j", "j", "Enter")
    browser.wait("document.querySelector('h1').innerText.includes('sqlparse-0.5.1/1')")
    browser.press("j", "j")
    assert browser.evaluate("document.querySelector('.turn.here').id") == "turn-1"
    browser.press("k")
    assert browser.evaluate("document.querySelector('.turn.here').id") == "turn-0"
    browser.press("o")
    assert browser.evaluate(
        "[...document.querySelectorAll('.turn.here details')].every(e => e.open)"
    )
    browser.evaluate("location.hash = '#/0/sqlparse-0.5.1/1/149'")
    browser.wait("document.querySelector('.turn.here')?.id === 'turn-149'")
    browser.press("p")
    assert browser.evaluate("document.querySelector('#patch').classList.contains('here')")
    browser.press("K")
    browser.wait("document.querySelector('h1').innerText.endsWith('sqlparse-0.5.1/0')")
    browser.press("u")
    browser.wait("document.querySelector('#filter')")
    browser.press("?")
    assert browser.evaluate("document.querySelector('#help').open")
    browser.press("Escape")
    browser.wait("!document.querySelector('#help').open")
    assert complaints(browser) == []


def test_two_marked_rows_are_compared(browser: Browser, tmp_path: Path) -> None:
    one, two = shown(), shown(sample=1)
    other = replace(two.turns[0], text="I do something else.")
    browser.open(written(tmp_path, one, replace(two, turns=(*two.turns, other))))

    browser.press("j", "x", "j", "x", "c")
    browser.wait("document.querySelector('.comparison')")

    text = text_of(browser)
    assert "They sampled the same text before turn 1." in text
    assert "no turn 1" in text
    assert number_of(browser, ".sides") >= 5


def test_two_jobs_are_compared_by_their_tasks(browser: Browser, tmp_path: Path) -> None:
    page = Page()
    for name, value in (("before", 0.0), ("after", 1.0)):
        job = page.add_job(name, f"runs/{name}")
        made = shown(instance="a")
        page.add(job, replace(made, reward=Reward((RewardTerm("resolved", value),))), None)
    browser.open(put(tmp_path, page.html()))

    told = text_of(browser, ".comparison")
    for words in ("+1", "too few tasks to tell", "Tasks: 1 same", "The settings are the same."):
        assert words in told
    assert number_of(browser, ".plots") == 2
    browser.evaluate("document.querySelector('td a').click()")
    browser.wait("document.querySelector('h1').innerText.includes('a/0 · a/0')")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("beta", {"beta/1", "beta/10"}),
        ("-beta", {"alpha/0"}),
        ("sampled>=3 turns=1 -alpha", {"beta/1", "beta/10"}),
        ("reward=0.5", {"beta/10"}),
        ("verdict=unresolved BETA/10", {"beta/10"}),
        ("turns>99", set()),
        ("(.*", set()),
    ],
)
def test_the_table_is_filtered(
    browser: Browser, tmp_path: Path, query: str, names: set[str]
) -> None:
    half = Reward((RewardTerm("resolved", 0.5),))
    rows = (
        shown(instance="alpha"),
        shown(instance="beta", sample=1),
        replace(shown(instance="beta", sample=10), reward=half),
    )
    browser.open(written(tmp_path, *rows))

    browser.press("/", *query)

    found = "[...document.querySelectorAll('.episodes td.name')].map(e => e.innerText)"
    assert set(browser.evaluate(found)) == names
    assert text_of(browser, ".tools .dim").startswith(f"{len(names)} of 3")


def test_the_table_is_sorted_by_any_column_and_names_by_their_numbers(
    browser: Browser, tmp_path: Path
) -> None:
    rows = [shown(instance="a", sample=n) for n in (10, 9, 2)]
    browser.open(written(tmp_path, *rows))
    names = "[...document.querySelectorAll('.episodes td.name')].map(e => e.innerText)"

    browser.evaluate("document.querySelectorAll('.episodes th button')[0].click()")
    assert browser.evaluate(names) == ["a/2", "a/9", "a/10"]
    browser.evaluate("document.querySelectorAll('.episodes th button')[0].click()")
    assert browser.evaluate(names) == ["a/10", "a/9", "a/2"]
    assert (
        browser.evaluate("document.querySelector('th[aria-sort=descending]').innerText")
        == "Episode ↓"
    )


def test_a_bar_of_a_plot_filters_the_table(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, shown(), shown(sample=1)))
    browser.evaluate("document.querySelector('.plots .line').click()")
    assert browser.evaluate("document.querySelector('#filter').value") == "verdict=unresolved"
    assert text_of(browser, ".tools .dim") == "2 of 2 episodes"


def test_five_thousand_episodes_are_one_page_that_draws_a_part_at_a_time(
    browser: Browser, tmp_path: Path
) -> None:
    many = [shown(instance=f"task-{n // 8}", sample=n % 8) for n in range(5000)]
    address = written(tmp_path, *many)
    browser.open(address)

    assert text_of(browser, ".tools .dim") == "5,000 of 5,000 episodes"
    assert number_of(browser, ".episodes tbody tr") == 200
    assert number_of(browser, "*") < 10_000
    browser.press("/", *"task-624/7")
    browser.wait("document.querySelectorAll('.episodes tbody tr').length == 1")
    browser.evaluate("document.querySelector('.episodes td.name a').click()")
    browser.wait("document.querySelector('h1').innerText.includes('task-624/7')")


def test_an_episode_of_two_thousand_turns_draws_a_part_at_a_time(
    browser: Browser, tmp_path: Path
) -> None:
    made = shown()
    turns = tuple(replace(made.turns[0], index=i) for i in range(2000))
    open_episode(browser, written(tmp_path, replace(made, turns=turns)))

    assert number_of(browser, ".turn") == 100
    browser.evaluate("location.hash = '#/0/sqlparse-0.5.1/0/1990'")
    browser.wait("document.querySelector('.turn.here')?.id === 'turn-1990'")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_colours_follow_the_system_and_a_key_changes_them(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    browser.prefer(scheme)
    browser.open(written(tmp_path, shown()))
    brightness = (
        "(([r, g, b]) => Number(r) + Number(g) + Number(b))"
        "(getComputedStyle(document.body).backgroundColor.match(/\\d+/g))"
    )

    first = browser.evaluate(brightness)
    browser.press("d")
    second = browser.evaluate(brightness)
    browser.prefer("light")

    dark, light = (first, second) if scheme == "dark" else (second, first)
    assert dark < 200
    assert light > 600


@pytest.mark.parametrize("where", ["", "#/0/django__django-11099-with-a-long-name/0"])
def test_at_four_hundred_pixels_nothing_is_wider_and_no_name_breaks_by_letter(
    browser: Browser, tmp_path: Path, where: str
) -> None:
    address = written(tmp_path, shown(instance="django__django-11099-with-a-long-name"))
    browser.open(f"{address}{where}", width=400)

    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    narrow = (
        "[...document.querySelectorAll('h1, td.name, summary, .waterfall a')]"
        ".filter(e => e.innerText.length > 8 && e.getBoundingClientRect().width < 60"
        " && e.getBoundingClientRect().width > 0).length"
    )
    assert browser.evaluate(narrow) == 0


def test_a_browser_without_decompression_unpacks_the_page_itself(
    browser: Browser, tmp_path: Path
) -> None:
    hidden = browser.send(
        "Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream"
    )
    long = replace(shown("".join(f"line {n} é日本\n" for n in range(5000))))
    try:
        open_episode(browser, written(tmp_path, long))
        assert browser.evaluate("typeof DecompressionStream") == "undefined"
        assert "line 4999 é日本" in text_of(browser, ".turn")
    finally:
        browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=hidden["identifier"])


async def test_a_served_page_fills_itself_and_opens_records(
    browser: Browser, tmp_path: Path
) -> None:
    folder = await asyncio.to_thread(stored, tmp_path)
    page = PageJob("demo", folder, (), complete=False)
    store = Store.open(f"file://{tmp_path}/runs")
    server = PageServer("demo", [ServedJob(store, page, number=0)])

    def look(address: str) -> None:
        browser.open(address)
        browser.wait("document.querySelectorAll('.episodes tbody tr').length == 2")
        browser.evaluate("document.querySelector('.episodes td.name a').click()")
        browser.wait("document.querySelectorAll('#patch h4').length == 2")
        assert "a/0" in text_of(browser, "h1")
        assert complaints(browser) == []

    async with server.serving():
        await asyncio.to_thread(look, server.address)
