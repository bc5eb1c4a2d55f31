"""Untrusted text is safe to display."""

from __future__ import annotations

import pytest

from swe_rollout.text.escaping import escaped, one_line, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a␍b"),
        ("\x9b2J", "⟨U+009B⟩2J"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("\ud800", "⟨U+D800⟩"),
    ],
)
def test_text_is_made_visible(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_one_line_is_one_short_line() -> None:
    assert one_line("a\n b\tc" + "x" * 1000, limit=10) == "a b cxxxx…"


def test_quotes_are_escaped_for_attributes() -> None:
    assert escaped("\"'<>&") == "&quot;&#x27;&lt;&gt;&amp;"
