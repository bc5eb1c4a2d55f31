"""The site's hooks: pages for GitHub become pages for Python-Markdown, and lose no word."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_dev.site_hooks import with_python_markdown_lists, without_repository_links

NESTED = """\
Text:
- one
  goes on
  - deeper

    more

  ```
  kept
    as it is
  ```
1. first:

   ```
   command
   ```
"""
FOUR_SPACES = """\
Text:

- one
    goes on
    - deeper

        more

    ```
    kept
      as it is
    ```

1. first:

    ```
    command
    ```
"""
STARTS = ("", "text", "- a", "* b", "  - c", "1. d", "10) e", "   f", "    g", "\tl")
OTHERS = ("```", "  ```", "| h |", "|---|", "# i", "> - j", "-", "- - k")
LINES = st.lists(st.sampled_from(STARTS + OTHERS), max_size=30)


def test_lists_are_indented_and_set_apart_as_tables_are() -> None:
    assert with_python_markdown_lists(NESTED) == FOUR_SPACES
    table = "Text:\n| a |\n|---|\n| b |\n"
    assert with_python_markdown_lists(table) == table.replace(":\n", ":\n\n", 1)


@given(LINES)
def test_no_line_is_lost_or_changed_but_for_its_indentation(lines: list[str]) -> None:
    def words(text: str) -> list[str]:
        return [line.strip() for line in text.split("\n") if line.strip()]

    text = "\n".join(lines)
    assert words(with_python_markdown_lists(text)) == words(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[`pyproject.toml`](../../pyproject.toml)", "`pyproject.toml`"),
        ("[the\nbuild](../../pyproject.toml)", "the\nbuild (`pyproject.toml`)"),
        ("[the build][it]\n\n[it]: ../../pyproject.toml\n", "the build (`pyproject.toml`)\n\n\n"),
        ("[a page](../reference/cli.md#x)", "[a page](../reference/cli.md#x)"),
        ("[above](#x) [out](https://example.com)", "[above](#x) [out](https://example.com)"),
        ("![a picture](../images/demo.svg)", "![a picture](../images/demo.svg)"),
        ("```\n[code](../../pyproject.toml)\n```\n", "```\n[code](../../pyproject.toml)\n```\n"),
    ],
)
def test_a_link_out_of_the_docs_becomes_a_path(text: str, shown: str) -> None:
    assert without_repository_links(text, "how-to/python.md") == shown


def test_with_an_address_it_stays_a_link_and_one_to_no_file_fails_a_strict_build(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = without_repository_links(
        "[x](../../pyproject.toml)", "how-to/python.md", source_url="https://example.com/blob/main/"
    )
    assert text == "[x](https://example.com/blob/main/pyproject.toml)"
    with caplog.at_level(logging.WARNING):
        without_repository_links("[x](../../no_such_file.py)", "how-to/python.md")
    assert "no_such_file.py, which is not in the repository" in caplog.text
