"""`harness manifest`: what it prints, and which names it takes."""

from __future__ import annotations

import pytest
import yaml

from unit.cli.cli_parts import Cli

IMAGE = f"registry.example/codex@sha256:{'0a' * 32}"


def test_the_manifest_is_printed_and_the_job_is_told_the_claim(cli: Cli) -> None:
    done = cli("harness", "manifest", "codex", "--image", IMAGE, "-n", "agents")
    claim = list(yaml.safe_load_all(done.out))[-1]["metadata"]
    assert claim["namespace"] == "agents"
    assert f"bundleClaims: {{/opt/harness: {claim['name']}}}" in done.err
    assert "warning" not in done.err


def test_a_tag_may_move_and_is_warned_of(cli: Cli) -> None:
    done = cli("harness", "manifest", "codex", "--image", "registry.example/codex:1")
    assert "registry.example/codex:1 is a tag" in done.err


@pytest.mark.parametrize(
    "wrong",
    [
        ("Codex", "--image", IMAGE),
        ("codex", "--image", "a:1\n  hostPID: true"),
        ("codex", "--image", IMAGE, "-n", "a/../b"),
        ("codex", "--image", IMAGE, "--tools", "b: c"),
    ],
)
def test_what_is_no_name_is_refused(cli: Cli, wrong: tuple[str, ...]) -> None:
    assert not cli("harness", "manifest", *wrong, code=2).out
