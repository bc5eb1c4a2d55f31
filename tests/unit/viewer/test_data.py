"""The record in a page: the stored one, bounded, with words, and texts of its tokens."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pages import unpacked
from swe_rollout.errors import Boundary
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.tokens.branch import BranchKind
from swe_rollout.types.episode import Failure
from swe_rollout.types.trajectory import TokenPath, Trajectory
from swe_rollout.types.trajectory_json import to_json
from swe_rollout.types.turn import Observation
from swe_rollout.viewer import data
from swe_rollout.viewer.data import LONGEST_TEXT, episode_record, packed, row_of
from swe_rollout.viewer.token_text import TokenTexts
from unit.viewer.records import HOSTILE, trajectory


@pytest.fixture(scope="module")
def texts() -> TokenTexts:
    return TokenTexts("tiny", tokenizer_path() / "tokenizer.json")


def with_sampled(text: str, texts: TokenTexts) -> Trajectory:
    """A trajectory whose turn sampled three ids of that text."""
    shown = trajectory()
    turn = replace(shown.turns[0], text=text, tool_calls=(), observations=())
    assert "".join(texts.pieces((7, 8, 9))) == text
    return replace(shown, turns=(turn,))


def test_a_record_is_the_stored_one_but_for_its_tokens() -> None:
    shown = trajectory(text=HOSTILE)

    record = episode_record(shown, None)

    stored = json.loads(to_json(shown))
    tokens = record.pop("tokens")
    assert tokens["ids"] == stored.pop("token_ids")
    assert len(tokens["logprobs"]) == len(tokens["ids"])
    assert record.pop("no_texts")
    for key in ("loss_mask", "logprobs", "prompt_logprobs"):
        stored.pop(key)
    for turn in record["turns"]:
        turn.pop("words")
    assert record == stored


def test_an_output_of_fifty_megabytes_is_cut() -> None:
    shown = trajectory()
    huge = replace(shown.turns[0], observations=(Observation("x" * 50_000_000),))

    record = episode_record(replace(shown, turns=(huge,)), None)

    text = record["turns"][0]["observations"][0]["text"]
    assert len(text) < LONGEST_TEXT + 100
    assert text.endswith(f"… and {50_000_000 - LONGEST_TEXT:,} more characters")


def test_all_texts_of_an_episode_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MOST_TEXT", 200_000)
    shown = trajectory()
    turns = tuple(
        replace(shown.turns[0], index=i, observations=(Observation("x" * 50_000),))
        for i in range(40)
    )

    record = episode_record(replace(shown, turns=turns), None)

    assert len(json.dumps(record)) < 400_000
    assert len(record["turns"]) == 40


def test_arguments_that_are_nested_without_end_are_cut() -> None:
    shown = trajectory()
    nested: object = "x"
    for _ in range(400):
        nested = [nested]
    call = replace(shown.turns[0].tool_calls[0], arguments={"a": nested})
    turn = replace(shown.turns[0], tool_calls=(call,))

    record = episode_record(replace(shown, turns=(turn,)), None)

    text = json.dumps(record["turns"][0]["tool_calls"][0]["arguments"])
    assert "x" not in text
    assert text.count("[") < 100


def test_half_of_a_character_is_packed() -> None:
    shown = trajectory(text="a\ud800b")
    turn = replace(shown.turns[0], tool_calls=(), observations=())

    record = episode_record(replace(shown, turns=(turn,)), None)

    assert unpacked(packed(record))["turns"][0]["words"] == "a\ud800b"


def test_words_of_a_turn_are_told_from_its_calls() -> None:
    call = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
    shown = trajectory()
    path = TokenPath("chatml", "hermes", "0")
    (turn,) = shown.turns
    text = f"I look.\n{call}<|im_end|>"
    said = replace(turn, text=text, tool_calls=(), observations=())
    unparsed = replace(turn, text=text)

    record = episode_record(replace(shown, token_path=path, turns=(said, unparsed)), None)

    assert [turn["words"] for turn in record["turns"]] == [f"I look.\n{call}", None]


def test_tokens_have_their_texts_where_the_vocabulary_is_the_policys(texts: TokenTexts) -> None:
    shown = with_sampled("".join(texts.pieces((7, 8, 9))), texts)

    record = episode_record(shown, texts)

    assert "no_texts" not in record
    ids, odd = record["tokens"]["ids"], record["tokens"]["odd"]
    for segment in shown.segments:
        run = ids[segment.start : segment.end]
        shown_texts = [
            odd.get(str(segment.start + at), record["texts"][str(token)])
            for at, token in enumerate(run)
        ]
        assert shown_texts == texts.pieces(run)


def test_another_vocabulary_shows_no_texts(texts: TokenTexts) -> None:
    record = episode_record(trajectory(text="not what these ids say"), texts)

    assert "texts" not in record
    assert "tiny does not decode the sampled ids" in record["no_texts"]


def test_branches_keep_their_own_tokens_and_share_their_texts(texts: TokenTexts) -> None:
    shown = with_sampled("".join(texts.pieces((7, 8, 9))), texts)
    child = replace(
        shown.main_branch, index=1, kind=BranchKind.SUB_AGENT, parent=0, parent_length=50
    )

    record = episode_record(replace(shown, branches=(child,)), texts)

    (branch,) = record["branches"]
    assert (branch["kind"], branch["parent_length"]) == ("sub_agent", 50)
    assert branch["tokens"] == record["tokens"]
    assert "token_ids" not in branch


def test_a_failed_episode_is_a_row_with_the_owner_of_the_failure() -> None:
    failure = Failure(Boundary.SANDBOX, "PodLostError", "the pod was evicted", retryable=True)
    broken = replace(trajectory(), stop_reason=None, verdict=None, reward=None, failure=failure)

    row = row_of(broken, "e0")

    found = [row[name] for name in ("verdict", "kind", "owner", "failure", "reward")]
    assert found == ["sandbox failed", "warn", "sandbox", "PodLostError", None]
