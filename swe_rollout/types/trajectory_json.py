"""The stored form of a trajectory: plain JSON, readable without our code.

An episode with one branch is stored as schema 1, an episode with several as schema 2, so that a
reader that does not know branches refuses it instead of losing samples.
"""

from __future__ import annotations

from typing import Any

import msgspec

from swe_rollout.text.redaction import has_secrets, redact_record
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import BRANCHED_SCHEMA, SCHEMA, Trajectory
from swe_rollout.types.verdict import Reward

_ADDED = ("chat", "prompts", "resumption", "stop_evidence", "forked_from", "journal", "differences")
"""Fields added after the first records of schema 1, omitted if empty."""


def to_json(trajectory: Trajectory) -> bytes:
    """Encode the stored form: a JSON object with `episode` as address and `reward` as number.

    Credentials in use are removed, whoever wrote them into a text.
    """
    record = msgspec.to_builtins(trajectory)
    if not trajectory.branches:
        record = _unbranched(record)
    for name in _ADDED:
        if not record[name]:
            del record[name]
    _leave_out_what_is_not_there(record)
    record["episode"] = str(trajectory.episode)
    record["schema"] = trajectory.schema
    reward = trajectory.reward
    record["reward"] = None if reward is None else reward.value
    record["reward_terms"] = [] if reward is None else _terms(reward)
    try:
        return redact_record(msgspec.json.encode(record))
    except UnicodeEncodeError:
        # Arguments of a call may contain a lone surrogate, which UTF-8 can't encode.
        return redact_record(msgspec.json.encode(_encodable(record)))


def without_secrets(trajectory: Trajectory) -> Trajectory:
    """Return a record without the credentials in use, like the records in a store."""
    return from_json(to_json(trajectory)) if has_secrets() else trajectory


def _terms(reward: Reward) -> list[dict[str, Any]]:
    """Return the stored form of a reward's terms, without model fields where no model judged."""
    terms: list[dict[str, Any]] = msgspec.to_builtins(reward.terms)
    judged = ("model", "answer")
    return [{k: v for k, v in term.items() if v or k not in judged} for term in terms]


def _leave_out_what_is_not_there(record: dict[str, Any]) -> None:
    """Remove empty fields that were added after the first records of schema 1."""
    for turn in record["turns"]:
        if not turn["message"]:
            del turn["message"]
    if record["token_path"] is not None and not record["token_path"]["ends"]:
        del record["token_path"]["ends"]
    if record["verdict"] is not None:
        for name in ("scores", "test_log", "odds", "unproven"):
            if not record["verdict"][name]:
                del record["verdict"][name]
    branches = record.get("branches") or record.get("earlier_branches", ())
    for branch in (record, *branches):
        for segment in branch["segments"]:
            if segment["sampling"] is None:
                del segment["sampling"]


def _encodable(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_encodable(key): _encodable(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_encodable(inner) for inner in value]
        case _:
            return value


def _unbranched(record: dict[str, Any]) -> dict[str, Any]:
    """Return the form of schema 1, which has no branches."""
    for turn in record["turns"]:
        del turn["branch"]
    return {"earlier_branches" if key == "branches" else key: record[key] for key in record}


def from_json(data: bytes) -> Trajectory:
    """Decode the stored form. Raises ValueError if it is not of schema 1 or 2."""
    record = msgspec.json.decode(data)
    schema = record.pop("schema", None) if isinstance(record, dict) else type(record).__name__
    if schema not in (SCHEMA, BRANCHED_SCHEMA):
        raise ValueError(
            f"not a trajectory of schema {SCHEMA} or {BRANCHED_SCHEMA}: found {schema}; a newer "
            "swe-rollout may have written it"
        )
    if missing := {"episode", "reward", "reward_terms"} - record.keys():
        raise ValueError(f"not a trajectory: {', '.join(sorted(missing))} missing")
    if schema == SCHEMA:
        earlier = record.pop("earlier_branches", [])
        if not isinstance(earlier, list) or not all(isinstance(each, dict) for each in earlier):
            raise ValueError("not a trajectory: its earlier_branches are no list of objects")
        record["branches"] = [
            {"index": index, "kind": "restart", "parent": 0, "parent_length": 0, **branch}
            for index, branch in enumerate(earlier, start=1)
        ]
    address = EpisodeId.parse(str(record["episode"]))
    record["episode"] = {"job": address.job, "instance": address.instance, "sample": address.sample}
    terms = record.pop("reward_terms")
    record["reward"] = None if record["reward"] is None else {"terms": terms}
    return msgspec.convert(record, Trajectory)
