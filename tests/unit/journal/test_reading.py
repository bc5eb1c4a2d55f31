"""Reading a journal: what it comes to, and whether an attempt may go on with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from swe_rollout.journal.entries import (
    Chunk,
    DamagedChunkError,
    Delta,
    Done,
    End,
    Entry,
    Header,
    compress,
    encode,
)
from swe_rollout.journal.reading import Earlier, read, sandbox_deltas
from swe_rollout.journal.restoring import header_of, why_not
from swe_rollout.store.journals import JournalRef
from unit.agent.agent_parts import SUBMIT
from unit.journal.journal_parts import ATTEMPT, EPISODE, Engine, Life

REF = JournalRef(EPISODE, 1, 3)
HEADER = Header(1, "spec", (), "task", "policy", "tokenizer", "00", "/testbed", "abc")


def chunk(**fields: object) -> Chunk:
    return msgspec.structs.replace(Chunk("w"), **fields)


async def found(*chunks: Chunk) -> Earlier:
    return await read(REF, [compress(encode(each)) for each in placed(chunks)])


def placed(chunks: Sequence[Chunk]) -> list[Chunk]:
    return [
        msgspec.structs.replace(each, place=REF.place(number)) for number, each in enumerate(chunks)
    ]


FIRST = chunk(header=HEADER, entries=(Entry(0, "exec:a", Done()),), delta=Delta(1, b"1"))


async def test_chunks_are_put_together_in_order() -> None:
    earlier = await found(
        FIRST,
        chunk(resumes=True),
        chunk(entries=(Entry(0, "exec:b", Done()),), delta=Delta(2, b"")),
        chunk(entries=(Entry(0, "exec:c", Done()),), delta=Delta(3, b"3")),
    )
    assert [entry.request for entry in earlier.entries] == ["exec:a", "exec:b", "exec:c"]
    assert [delta.number for delta in sandbox_deltas(earlier.deltas)] == [1, 3]
    assert (earlier.resumed, earlier.end, earlier.is_closed) == (1, None, False)
    assert earlier.lost == ()


async def test_what_was_lost_is_named_once_and_processes_are_those_of_the_end() -> None:
    earlier = await found(
        chunk(header=HEADER, delta=Delta(1, b"", ("/a: big", "/: many"), ("early",))),
        chunk(delta=Delta(2, b"2", ("/a: big", "/b: big"), ("late",))),
    )
    assert earlier.lost == ("/a: big", "/b: big", "process: late")
    assert earlier.can_be_rebuilt


async def test_a_sandbox_whose_last_state_is_unknown_is_not_rebuilt_and_an_ended_one_need_not() -> (
    None
):
    unknown = chunk(delta=Delta(2, b"", ("/: many",), ("server",)))
    assert not (await found(FIRST, unknown)).can_be_rebuilt
    ended = await found(FIRST, unknown, chunk(end=End("diff", "")))
    assert ended.can_be_rebuilt
    assert ended.lost == ()


@pytest.mark.parametrize(
    "chunks", [(), (chunk(entries=FIRST.entries),), (FIRST, FIRST), (chunk(), FIRST)]
)
async def test_a_journal_has_one_header_at_its_beginning(chunks: tuple[Chunk, ...]) -> None:
    with pytest.raises(DamagedChunkError):
        await found(*chunks)


async def test_a_journal_is_gone_on_with_by_the_same_attempt_alone(tmp_path: Path) -> None:
    context = Life(tmp_path, Engine({0: [SUBMIT]})).context()
    header = header_of(ATTEMPT, context, seed="00", workdir="/testbed", base="abc")
    earlier = await found(chunk(header=header))
    assert why_not(earlier, ATTEMPT, context) == ""
    assert "attempt" in why_not(earlier, replace(ATTEMPT, number=2), context)
    other = replace(ATTEMPT, instance=replace(ATTEMPT.instance, problem_statement="another"))
    assert "instance" in why_not(earlier, other, context)
    assert "spec" in why_not(earlier, ATTEMPT, replace(context, spec_digest="another"))
    assert "policy" in why_not(earlier, ATTEMPT, replace(context, policy=lambda _: "another"))
