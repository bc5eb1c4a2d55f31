"""Labels of figures for people."""

from __future__ import annotations

import pytest

from rollout_dev.bench.labels import label


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("p50_ms", "p50, ms"),
        ("p99_ms_1000", "p99, 1,000 turns, ms"),
        ("c64_per_s", "turns per second, 64 at once"),
        ("turns_1000_client_cpu_ms", "client CPU per turn, ms, 1,000 turns"),
        ("pods_1_per_s", "commands per second, 1 pod"),
        ("out_20_mb_ms", "20 MB of output, ms"),
        ("rss_per_session_kib", "memory per session, KiB"),
        ("ours_to_strands_c16", "ours to strands, 16 at once"),
        ("ours_to_text_floor_turns_1000", "ours to text floor, 1,000 turns"),
        ("cpu_ms_turns_281_to_318", "client CPU per turn, ms, turns 281 to 318"),
        ("trained_share_0_2", "trained share, 0.2 % noise"),
        ("anything_else", "anything else"),
    ],
)
def test_a_key_becomes_words(key: str, expected: str) -> None:
    assert label(key) == expected
