"""`stats` as tables and as JSON."""

from __future__ import annotations

from unit.cli.cli_parts import Cli
from unit.cli.store_parts import damage


def test_tables_show_quantities_tools_and_outcomes(address: str, cli: Cli) -> None:
    done = cli("stats", address)
    assert ["turns", "3", "3", "3", "3", "6"] in done.rows
    assert ["bash", "4", "0", "2", "0", "0", "1", "s", "250", "ms"] in done.rows
    assert ["call", "invalid", "json", "2"] in done.rows
    head = done.rows.index(["PER", "TURN", "MEAN", "P50", "P95", "MAX", "TOTAL"])
    engine = done.rows[head + 1]
    assert (engine[:4], engine[-2:]) == (["engine", "time", "1", "s"], ["6", "s"])
    assert "2 episodes · 2 resolved" in done.err
    assert "0 of 1 graded groups have signal · prefix-cache hit" in done.err
    assert "tool calls" in cli("stats", address, "-o", "name").out.splitlines()


def test_json_names_damaged_records_apart(address: str, cli: Cli) -> None:
    damage(address, 0)
    found = cli("stats", address, "-o", "json").json
    assert found["episodes"] == 1
    assert [each["episode"] for each in found["damaged"]] == ["demo/a/0"]
