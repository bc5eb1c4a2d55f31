"""The manifest of a bundle."""

from __future__ import annotations

import pytest

from swe_rollout.agent.tools.bundle.archive import read_manifest

ONE = b"""
tools:
  - name: count
    description: Count lines.
    file: bin/count.sh
    parameters:
      type: object
      properties: {path: {type: string, description: The file.}}
      required: [path]
  - {name: hand_in, description: Hand in the work., endsEpisode: true}
"""
BOMB = b"l0: &l0 [x]\n" + b"".join(
    b"l%d: &l%d [%s]\n" % (n, n, b", ".join([b"*l%d" % (n - 1)] * 9)) for n in range(1, 20)
)


def test_tools_are_read_in_order() -> None:
    count, hand_in = read_manifest(ONE).tools

    assert (count.program, hand_in.program) == ("bin/count.sh", "hand_in")
    assert count.spec().problems({}) == ["the argument 'path' is missing"]
    assert not count.spec().ends_episode
    assert hand_in.spec().ends_episode
    assert hand_in.spec().problems({"x": 1})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "bundle.yaml"),
        (b"tools: []", "tools"),
        (b"tools: [{name: a}]", "description"),
        (b"tools: [{name: a b, description: x}]", "no tool's name"),
        (b"tools: [{name: a, description: x, file: ../b}]", "file"),
        (b"tools: [{name: a, description: x, file: /b}]", "file"),
        (b"tools: [{name: a, description: x, fiel: b}]", "fiel"),
        (b"tools: [{name: a, description: x, parameters: {type: string}}]", "type object"),
        (b"\xff\xfe", "no YAML"),
        (b"tools: [", "no YAML"),
        (b"- a", "bundle.yaml"),
        (b"tools: &a [*a]", "over 50000 values"),
        (BOMB, "over 50000 values"),
        (b"#" * 300_000, "256 KiB"),
        (b"[" * 1500, "no YAML"),
        (b"tools: !!python/object/apply:os.system [x]", "no YAML"),
    ],
)
def test_a_manifest_that_describes_no_tools_is_refused_with_the_place(
    text: bytes, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        read_manifest(text)
