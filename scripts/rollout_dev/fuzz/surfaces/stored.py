"""Objects of a store (records, journals, plans), written by another tenant or a broken disk."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import msgspec
import zstandard

from rollout_dev.fuzz.surface import promise, run_async, split_head, surface, with_head
from rollout_dev.fuzz.surfaces import real
from swe_rollout.errors import SweRolloutError
from swe_rollout.export.library_dumps import SUFFIXES, read_dumps
from swe_rollout.journal import entries, reading
from swe_rollout.journal.tape import _error
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.claims import Claimant
from swe_rollout.store.journals import JournalRef
from swe_rollout.store.plans import plan_left_behind
from swe_rollout.store.store import Store
from swe_rollout.store.summary import summarise
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import from_json, to_json
from swe_rollout.viewer.page import Page
from swe_rollout.viewer.timeline import timeline_page

# Records


def _records() -> Sequence[bytes]:
    return list(real.files(real.ROOT / "tests" / "golden", "*.json"))


def _read_record(data: bytes) -> None:
    record = from_json(data)
    again = to_json(record)
    promise(to_json(from_json(again)) == again, "a record changes when it is written again")
    repr(record)
    promise(record.token_count >= 0, "a negative number of tokens")
    record.outcome  # noqa: B018 - what counters take


RECORDS = surface("records", _read_record, ValueError, RecursionError, samples=_records)


class _Reader(HTMLParser):
    """The elements and attributes that a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def _page(record: Trajectory) -> str:
    page = Page()
    page.add(page.add_job(record.episode.job, "runs/demo"), record, None)
    return page.html(episodes=[record.episode])


@cache
def _harmless() -> _Reader:
    return _Reader(_page(from_json(_records()[0])))


_TIMELINE = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "table", "thead", "tbody"),
    *("tr", "th", "td", "div", "span", "svg", "rect", "g", "line", "text", "p", "dl", "dt", "dd"),
    *("details", "summary", "pre", "code", "ul", "li", "a", "path", "circle", "header", "main"),
}


def _show(data: bytes) -> None:
    try:
        record = from_json(data)
    except (ValueError, RecursionError):
        return
    seen = _Reader(_page(record))
    promise(seen.tags == _harmless().tags, "a record made an element of the page")
    promise(seen.attributes == _harmless().attributes, "a record made an attribute")
    drawn = _Reader(timeline_page(record))
    promise(
        set(drawn.tags) <= _TIMELINE, f"an element of a timeline: {set(drawn.tags) - _TIMELINE}"
    )
    promise(not any(name.startswith("on") for name in drawn.attributes), "a timeline runs code")


PAGES = surface("pages", _show, SweRolloutError, samples=_records)


def _dumps() -> Sequence[bytes]:
    call = {"step_type": "action", "content": "x", "tool_name": "bash", "tool_args": {"c": "ls"}}
    steps = [{"step_type": "observation", "content": "fix"}, call]
    one = {"request_id": "a", "final_reward": 1.0, "is_completed": True, "steps": steps}
    chat = b'{"role": "meta", "meta": {"model": "m"}}\n{"role": "assistant", "content": "x"}\n'
    text = b"Trajectory: a\nCompleted: True\nFinal Reward: 1.0\nTotal Steps: 1\n==\n\n"
    text += (
        b"Step 1: ACTION\nContent: x\nTool: bash\nArgs: {'c': 1}\n------------------------------\n"
    )
    return [
        with_head(".json", json.dumps(one).encode()),
        with_head(".json", json.dumps([one]).encode()),
        with_head(".jsonl", chat),
        with_head(".txt", text),
    ]


def _read_dump(data: bytes) -> None:
    head, body = split_head(data)
    path = real.scratch("dumps") / ("dump" + (head if head in SUFFIXES else ".json"))
    path.write_bytes(body)
    problems: list[SweRolloutError] = []
    for record in read_dumps([path], job="old", on_problem=problems.append):
        seen = _Reader(_page(record))
        promise(seen.tags == _harmless().tags, "a dump made an element of the page")
    path.unlink()
    if problems:
        raise problems[0]


DUMPS = surface("library-dumps", _read_dump, SweRolloutError, samples=_dumps)


# Journals


def _journals() -> Sequence[bytes]:
    whole = (real.OWN / "journal.json").read_bytes()
    chunk = msgspec.convert(json.loads(whole)[0], entries.Chunk, strict=False)
    packed = entries.compress(msgspec.msgpack.encode(chunk))
    return [with_head("chunks", whole), with_head("stored", packed)]


def _read_journal(data: bytes) -> None:
    head, body = split_head(data)
    ref = JournalRef(EpisodeId("job", "task", 0), 1, 0)
    if head == "stored":
        stored = [body]
    else:
        try:
            value: object = json.loads(body)
        except (ValueError, RecursionError):
            return
        if not isinstance(value, list):
            return
        placed = [_placed(each, ref.place(number)) for number, each in enumerate(value[:8])]
        try:
            stored = [entries.compress(msgspec.msgpack.encode(_binary(each))) for each in placed]
        except (RecursionError, UnicodeEncodeError):
            return
    found = run_async(reading.read(replace(ref, chunks=len(stored)), stored))
    found.lost  # noqa: B018 - what a rebuilt sandbox lacks
    found.can_be_rebuilt  # noqa: B018
    reading.sandbox_deltas(found.deltas)
    for entry in found.entries:
        match entry.answer:
            case entries.Sampled() as answer:
                made = answer.value()
                promise(len(made.token_ids) == len(made.logprobs), "ids without logprobs")
            case entries.Refused() as answer:
                str(_error(answer))


def _placed(chunk: object, place: str) -> object:
    """Add its place to a chunk without one."""
    return {"place": place, **chunk} if isinstance(chunk, dict) else chunk


def _binary(value: object) -> object:
    """Turn the fields that hold bytes into bytes, as MessagePack has them."""
    match value:
        case dict():
            return {
                key: _decoded(inner)
                if key in {"ids", "logprobs", "experts", "data", "stdout", "stderr"}
                else _binary(inner)
                for key, inner in value.items()
            }
        case list():
            return [_binary(inner) for inner in value]
        case int() if not -(1 << 63) <= value < 1 << 64:
            return 0
        case str():
            return value.encode(errors="replace").decode()
        case _:
            return value


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        return _binary(value)
    try:
        return base64.b64decode(value)
    except ValueError:
        return value.encode(errors="replace")


JOURNALS = surface("journals", _read_journal, entries.DamagedChunkError, samples=_journals)


# Everything else


_JOB = "demo"
_EPISODE = EpisodeId(_JOB, "owner__project-12", 3)


def _keys() -> dict[str, str]:
    return {
        "plan": layout.plan_key(_JOB),
        "plan2": layout.plan_key(_JOB, 2),
        "job": layout.job_key(_JOB),
        "owner": layout.owner_key(_JOB),
        "refills": layout.refills_key(_JOB),
        "claim": layout.claim_key(_JOB, "trainer", "owner__project-12", 1),
        "record": layout.trajectory_key(_EPISODE),
        "unpacked record": layout.trajectory_key(_EPISODE),
        "chunk": layout.chunk_key(_EPISODE, 1, 0),
    }


def _objects() -> Sequence[bytes]:
    objects = json.loads((real.OWN / "objects.json").read_bytes())
    job = next(
        each for each in real.files(real.ROOT / "examples", "**/*.yaml") if b"RolloutJob" in each
    )
    made = [
        *(with_head(key, json.dumps(value).encode()) for key, value in objects.items()),
        with_head("job", job),
        with_head("job", b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"),
    ]
    packer = zstandard.ZstdCompressor()
    made += [with_head("record", packer.compress(each)) for each in _records()[:1]]
    made += [with_head("unpacked record", each) for each in _records()]
    made += [with_head("chunk", _journals()[1].partition(b"\n")[2])]
    return made


def _read_objects(data: bytes) -> None:
    head, body = split_head(data)
    key = _keys().get(head)
    if key is None:
        return
    root = real.scratch("store")
    path = root / "store" / key
    path.parent.mkdir(parents=True)
    path.write_bytes(zstandard.compress(body) if head.startswith("unpacked") else body)
    try:
        problems = run_async(_read_all(Store.open(f"file://{root}/store")))
    finally:
        shutil.rmtree(root / "store")
    for each in problems:
        str(each)


async def _read_all(store: Store) -> list[SweRolloutError]:
    """Read everything; a damaged object must be an error of only that object."""
    claims = store.claims(_JOB, Claimant("trainer", 1, "p"))
    journals = store.journals(_JOB)

    async def read_journals() -> None:
        for ref in (await journals.listed()).values():
            try:
                await reading.read(ref, await journals.read(ref))
            except entries.DamagedChunkError:
                continue

    problems = []
    for work in (
        store.jobs(),
        store.plan(_JOB),
        store.owner(_JOB),
        store.refills(_JOB),
        store.listing(_JOB),
        store.record(_EPISODE),
        summarise(store, _JOB),
        claims.refresh(),
        read_journals(),
        _left_behind(store),
    ):
        try:
            await work
        except SweRolloutError as error:
            problems.append(error)
    return problems


async def _left_behind(store: Store) -> None:
    """Plan from what an earlier run left behind, as `begin` does without a plan."""
    bucket = Bucket.open(store.uri)
    await plan_left_behind(bucket, _JOB, store.trajectories(_JOB, on_damage=lambda _: None))


OBJECTS = surface("store-objects", _read_objects, SweRolloutError, samples=_objects)
