"""Results of an audit: kept as they come, read again after a crash, made into a quarantine file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swe_rollout.datasets.bad_rows import Quarantine
from swe_rollout.errors import UsageError
from swe_rollout.grading.audit import Audit
from swe_rollout.grading.audit_journal import AuditJournal
from swe_rollout.types.bad_rows import Finding, GoldTimes
from swe_rollout.types.verdict import TestStatus, VerdictStatus


def result(name: str, *checks: str, digest: str = "d", runs: int = 3) -> Audit:
    findings = tuple(Finding(each, "why", {"t": TestStatus.FAILED}, "log") for each in checks)
    verdicts: dict[str, tuple[VerdictStatus, ...]] = {"gold": (VerdictStatus.RESOLVED,)}
    return Audit(name, digest, runs, verdicts, {}, findings, (), GoldTimes(1, 2, 3))


@pytest.fixture
def journal(tmp_path: Path) -> AuditJournal:
    found = AuditJournal(tmp_path / "deep" / "quarantine.jsonl", 3)
    assert found.open() == frozenset()
    return found


def test_what_was_added_is_there_when_it_is_opened_again(journal: AuditJournal) -> None:
    journal.add(result("one"))
    journal.add(result("two", "base"))
    assert journal.open() == {("one", "d"), ("two", "d")}
    assert list(journal.results()) == [result("one"), result("two", "base")]


def test_the_bad_rows_of_the_dataset_are_its_quarantine(journal: AuditJournal) -> None:
    for each in (result("one"), result("two", "base", "gold"), result("other", "gold")):
        journal.add(each)
    rows = frozenset({("one", "d"), ("two", "d")})
    assert journal.write_quarantine(rows) == 1
    assert journal.write_quarantine(rows) == 1
    read = Quarantine.of(journal.quarantine.read_bytes(), "quarantine.jsonl")
    assert read.reasons == {("two", "d"): "base, gold"}
    assert not list(journal.quarantine.parent.glob("*.part"))


@pytest.mark.parametrize("torn", [b'{"instance_id":"tw', b"\xff\x00", b'"' + b"x" * (3 << 20)])
def test_a_line_that_was_torn_by_a_crash_is_cut_off(journal: AuditJournal, torn: bytes) -> None:
    journal.add(result("one"))
    with journal.path.open("ab") as file:
        file.write(torn)
    assert journal.open() == {("one", "d")}
    journal.add(result("two"))
    assert journal.open() == {("one", "d"), ("two", "d")}


def test_damaged_lines_are_audited_again(journal: AuditJournal) -> None:
    journal.path.write_bytes(b"nonsense\n[1]\n" + b"[" * 100_000 + b"\n")
    journal.add(result("one"))
    assert journal.open() == {("one", "d")}


def test_a_changed_row_and_another_number_of_runs_are_audited_again(journal: AuditJournal) -> None:
    journal.add(result("one", "gold", digest="old"))
    journal.add(result("two", runs=1))
    assert journal.open() == {("one", "old")}
    assert journal.write_quarantine({("one", "new")}) == 0


def test_of_two_results_the_last_one_counts(journal: AuditJournal) -> None:
    journal.add(result("one", "gold"))
    journal.add(result("one"))
    assert list(journal.results()) == [result("one")]
    assert journal.write_quarantine({("one", "d")}) == 0


def test_a_file_of_another_kind_is_never_overwritten(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"instance_id": "one"}\n')
    with pytest.raises(UsageError, match=r"rows\.jsonl is no quarantine file"):
        AuditJournal(rows, 3).open()
    assert rows.read_text() == '{"instance_id": "one"}\n'
    assert not (tmp_path / "rows.jsonl.audited").exists()


def test_a_device_or_a_pipe_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="pipe is no file"):
        AuditJournal(pipe, 3).open()
    assert pipe.is_fifo()


def test_what_a_link_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(real)
    found = AuditJournal(link, 3)
    found.open()
    found.write_quarantine(())
    assert link.is_symlink()
    assert real.read_bytes() == b""
