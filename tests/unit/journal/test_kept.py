"""What is kept of a journal: it is cut where turns end, however its chunks were written."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.journal.entries import (
    Answer,
    Chunk,
    DamagedChunkError,
    Delta,
    Entry,
    Header,
    Ran,
    Sampled,
)
from swe_rollout.journal.kept import (
    VERSION,
    Cutter,
    Kept,
    Stretch,
    check_values,
    decode_kept,
    encode_kept,
)
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason, Generation, Turn
from unit.store.records import trajectory

HEADER = Header(1, "", (), "", "", "", "00", "/testbed", "abc123")
RAN = Ran(0, b"", b"", timed_out=False, stdout_bytes=0, stderr_bytes=0, duration_s=0)


def record(sizes: list[int]) -> Trajectory:
    """A record whose turns have these numbers of tokens."""
    turns = tuple(
        Turn(index, RequestProof(1, ""), "", FinishReason.STOP, size, 0)
        for index, size in enumerate(sizes)
    )
    return replace(trajectory("a", 0), turns=turns)


def sampled(count: int) -> Answer:
    reason = FinishReason.ABORT if count % 2 else FinishReason.STOP
    return Sampled.of(Generation((1,) * count, (-0.5,) * count, reason, 1))


@given(turns=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_journal_is_cut_at_ends_of_turns_and_nowhere_else(turns: list[list[int]]) -> None:
    """Turns that an engine aborted have several answers, and chunks that end between these."""
    sizes = [sum(parts) for parts in turns if sum(parts)]
    cutter = Cutter(record(sizes))
    number = 0
    for parts in turns:
        for position, count in enumerate(parts):
            number += 1
            entries = (Entry(0, "turn:0", sampled(count)), Entry(0, "exec:0", RAN))
            is_inside = 0 < sum(parts[: position + 1]) < sum(parts)
            before = len(cutter.stretches)
            cutter.add(Chunk("w", None, entries, Delta(number, b"x")))
            assert (len(cutter.stretches) == before) == is_inside
    ends = [stretch.turns for stretch in cutter.stretches]
    assert ends == sorted(ends)
    assert set(ends) - {0} == set(range(1, len(sizes) + 1))
    deltas = [delta.number for stretch in cutter.stretches for delta in stretch.deltas]
    assert deltas == list(range(1, number + 1))
    total = 0
    for stretch in cutter.stretches:
        total += sum(
            len(each.answer.ids) // 4
            for each in stretch.entries
            if isinstance(each.answer, Sampled)
        )
        assert total == sum(sizes[: stretch.turns])


def test_what_follows_the_last_delta_is_left_out() -> None:
    cutter = Cutter(record([2, 3]))
    cutter.add(Chunk("w", HEADER, (Entry(0, "turn:0", sampled(2)),), Delta(1, b"x")))
    cutter.add(Chunk("w", resumes=True))
    cutter.add(Chunk("w", entries=(Entry(0, "turn:0", sampled(3)),)))
    assert [(each.turns, len(each.entries)) for each in cutter.stretches] == [(1, 1)]
    assert cutter.turns == 1


PLAYED = replace(record([2]), token_ids=(9, 1, 1), loss_mask=(0, 1, 1), spec_digest="", policy="")
KEPT = Kept(
    VERSION,
    HEADER,
    (
        Stretch(
            1,
            (Entry(0, "turn:0", sampled(2), 1.0, 2.0), Entry(0, "exec:0", RAN)),
            (Delta(1, b"x" * 20, ("a: b",), ("web",)),),
        ),
    ),
)


@given(changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4))
def test_a_journal_with_other_bytes_is_damage_or_harmless(changes: list[tuple[int, int]]) -> None:
    """Nothing but damage is raised; what is accepted has the record's tokens."""
    data = bytearray(encode_kept(KEPT))
    for at, byte in changes:
        data[at % len(data)] = byte
    try:
        found = decode_kept(bytes(data))
        check_values(found, PLAYED)
    except DamagedChunkError:
        return
    ids = [
        each.answer.value().token_ids
        for stretch in found.stretches
        for each in stretch.entries
        if isinstance(each.answer, Sampled)
    ]
    assert ids == [(1, 1)]
