"""Write the reference page of failures: every type, from the classes themselves."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import swe_rollout
from rollout_dev.codegen.reference import table
from swe_rollout.errors import Boundary, EpisodeError, SandboxDestroyedError
from swe_rollout.types.episode import StopReason

_PACKAGES: Final = (
    *("agent", "cluster", "engine", "grading", "journal", "sandbox", "store", "worker"),
)
"""Those whose errors end attempts."""
_OWNERS: Final = {
    Boundary.ENGINE: "platform: engine",
    Boundary.SANDBOX: "platform: sandbox",
    Boundary.CLUSTER: "platform: cluster",
    Boundary.GRADER: "platform: grader",
    Boundary.STORE: "platform: store",
    Boundary.DATASET: "task",
    Boundary.EXTENSION: "user code",
    Boundary.INTERNAL: "swe-rollout",
}


@dataclass(frozen=True, slots=True)
class Handling:
    """What the page says of a type, beyond what its class says."""

    arises: str
    handled: str
    user: str


_AGAIN: Final = "another attempt, or the same one [resumed](../explanation/crashes.md); then masked"
_WAITS: Final = "waits for capacity; costs no attempt while other episodes run"
_MASKED: Final = "masked at once: another attempt would end so, too"
_PARTLY: Final = "as its cause says: another attempt, or masked at once"
_NEVER: Final = "never a record's: it becomes another type of this table"
HANDLING: Final = {
    "EngineError": Handling("any call of the engine", _AGAIN, "look at the engine's log"),
    "ContextOverflowError": Handling(
        "the prompt of a turn; of the first one: `PromptTooLongError`",
        "data: the stop reason `context_full`",
        "lower `contextTokens`",
    ),
    "BadRequestError": Handling("the engine refuses a request", _MASKED, "correct the sampling"),
    "UnauthorizedError": Handling("the engine refuses its key", _MASKED, "correct the key"),
    "UnavailableError": Handling(
        "the engine's queue is full", "excused: costs no attempt", "lower `parallelism`"
    ),
    "EngineLostError": Handling(
        "no response, a dead server, a 5xx",
        "excused while the engine is down; else " + _AGAIN,
        "restart the engine",
    ),
    "OversizedResponseError": Handling("a response beyond what was asked", _AGAIN, "report it"),
    "InvalidAnswerError": Handling(
        "ids, logprobs or versions that do not fit", _AGAIN, "use a supported engine version"
    ),
    "EngineControlError": Handling(
        "weights, pauses and flushes of a trainer", "raised to the trainer", "look at the engine"
    ),
    "SandboxError": Handling(
        "a start, a loss or a hang without evidence of who did it", _AGAIN, "look at the node"
    ),
    "StreamLostError": Handling(
        "a stream that could not be replaced for a minute", _AGAIN, "look at API server and node"
    ),
    "RelayEndedError": Handling(
        "a stream whose end in the sandbox ended", "replaced; each of at least 3: destroyed", "–"
    ),
    "ExecEndedError": Handling("the first stream of a pod", _AGAIN, "use an image with /bin/sh"),
    "ExecLostError": Handling("an exec stream without an exit status", "replaced", "–"),
    "ImageUnavailableError": Handling("a pull", _PARTLY, "check name and credentials"),
    "UnschedulableError": Handling("no node has room", _WAITS, "add nodes, lower `resources`"),
    "QuotaExceededError": Handling("the namespace's quota", _WAITS, "raise it"),
    "PodRefusedError": Handling("admission refuses a pod", _MASKED, "change `sandbox.pod`"),
    "PodStartError": Handling(
        "the container does not start, or ends; also for memory before any command ran",
        _PARTLY,
        "use an image with /bin/sh, and enough memory",
    ),
    "PodLostError": Handling(
        "a node that is gone, drained or under pressure; preemption; a deletion", _AGAIN, "–"
    ),
    "SandboxExpiredError": Handling("the pod's own deadline", _AGAIN, "find out what took so long"),
    "ClusterError": Handling("a call of the API server", _AGAIN, "look at the API server"),
    "ApiError": Handling("a refusal, or a 429 or 5xx", _PARTLY, "`swe-rollout doctor`"),
    "GraderError": Handling(
        "a step of grading; a reward term; tests that exceed the sandbox with the gold patch, too",
        "graded again where that may help; then masked, with tokens and patch",
        "`swe-rollout regrade` when the cause is gone",
    ),
    "StoreError": Handling(
        "reading what a journal holds; a commit waits instead", _AGAIN, "look at the store"
    ),
    "DamagedRecordError": Handling(
        "a record that can't be read", "its episode runs again", "`swe-rollout run` again"
    ),
    "TaskError": Handling(
        "the row does not fit its image, or can't be graded", _PARTLY, "`swe-rollout validate`"
    ),
    "PromptTooLongError": Handling(
        "a prompt beyond `contextTokens`, or the engine's context, before anything was sampled; "
        "`run` warns of such tasks before it begins",
        _MASKED,
        "raise `contextTokens`, shorten the prompts, or leave the task out by `dataset.exclude`",
    ),
    "ToolFailedError": Handling("a tool of your own raises", _AGAIN, "correct the tool"),
    "ToolServerError": Handling("a tool server is down", _AGAIN, "start it"),
    "AgentFailedError": Handling("an agent program raises", _AGAIN, "correct the program"),
    "InternalError": Handling("anywhere else", _AGAIN, "report it, with the log"),
    "EpisodeError": Handling("–", _NEVER, "–"),
}
EVIDENCE: Final = {
    "SandboxDestroyedError": (
        "local",
        (
            "the kernel killed processes of the sandbox's control group for the group's own "
            "limit of "
            "memory, process 1 among them"
        ),
    ),
    "OutOfMemoryError": (
        "pod",
        (
            "the container's status says `OOMKilled`. A sandbox requests all the memory that "
            "it may "
            "use"
        ),
    ),
    "OutOfDiskError": (
        "pod",
        (
            "the kubelet evicted this pod for exceeding its own limit of ephemeral storage, "
            "not for "
            "pressure on the node"
        ),
    ),
    "SupervisorGoneError": (
        "pod, kodo",
        "commands can still be started in the sandbox, and its supervisor is not there",
    ),
}

_INTRO: Final = """\
<!-- Made by scripts/generate; change scripts/rollout_dev/codegen/failures_reference.py instead. -->
# Failures

An episode ends in one of two ways. A `stop_reason` says what the policy did, or which limit it met:
that is data, graded and trained on. A `failure` says what broke: that has an owner and no reward,
so trainers must leave it out. This page lists every type of failure, and what becomes of it.

The record has `failure.boundary` (the owner), `failure.type` (the first column), `failure.message`,
`failure.retryable` and `failure.scarce`. `swe-rollout status` counts types.
"""
_DESTROYED: Final = f"""\
## A policy that destroys its own sandbox

Without a rule for it, a policy could do badly and then end its sandbox: the episode would be a
failure of infrastructure, without a reward, and get another attempt. So with evidence that the
sandbox's own processes ended it, that is data: the stop reason
`{StopReason.SANDBOX_DESTROYED.value}`, the evidence in `stop_evidence`, and a verdict.

- **What is graded** is the work up to the last turn that the [journal](../explanation/crashes.md)
  holds: files are rebuilt in a fresh sandbox, and their diff is graded like any other. The turn
  that destroyed the sandbox, and what can't be rebuilt, earns nothing. Without a journal (`resume:
  never`, trainers' streams, tasks that are folders, sandboxes without snapshots) the patch is
  empty.
- **What is trained on** is every sampled token, also of that turn.
- **Evidence** is only what nothing but the sandbox's processes can bring about:

"""
_EVIDENCE_RULES: Final = """\
A stream to a pod that is ended inside counts too, where at least three in a row end so within a
minute and the pod goes on. Text that commands can write, such as a container's termination message,
is never evidence.

Without evidence it is the platform's: a node that is gone, drained or under pressure, preemption, a
deleted pod, the API server, a stream that hangs or breaks on its way, a deadline, memory that ran
out on the machine as a whole.

Much else that a policy may do to its sandbox does not end it, and is a result like any other:
signals to process 1 or to everything (also all the time), processes up to the limit, a full disk or
no inodes left, memory that only its own commands lose, changed priorities. Tools read and write
files by processes of the sandbox; where commands kill or stop these, or leave no room for them, the
policy reads an error. `tests/contract/test_self_destruction.py` tries all of it.

**Limits.** Where no control groups can be made (`swe-rollout doctor`, line `limits`), memory that
runs out leaves no evidence. In pods, commands that stop relays without killing them, or exhaust a
node's limit of processes, make the stream hang, which is no evidence either; another attempt
follows, and the failure budget ends the job if it happens often. `isolation: none` trusts every
command.

## A patch that ends its grading sandbox

Tests that are killed for memory say something about the patch only if the tests alone fit. So they
run once more over the gold patch, or over the untouched base where there is none, once for each
task:

| with the gold patch | verdict |
|---|---|
| the tests stay within the limits | `unresolved`, with a finding that holds the evidence |
| they are killed as well | none: a masked `GraderError`; the sandbox is too small for the task |
| that sandbox is lost without evidence | none yet: graded again |

The same holds for the further runs by which a success is checked.

"""
_SERVICES: Final = """\
## While a service fails

What fails for all episodes alike is waited for, and their clocks stand still. No turn is sampled
twice but the one in flight, which is repeated with the same ids. `run` prints
`waiting: …` with the cause and the fix, and `going on: …` when it is over. On a cluster a condition
of the job is false, with a reason and a message, and each change is an Event.

"""
_WAITS_FOR: Final = (
    (
        "the API server: 429, 5xx, no response",
        (
            "requests are repeated after the pause that it names, or growing ones; streams to "
            "sandboxes are replaced for a minute, while clocks stand still, and then the episode "
            "is resumed in another sandbox; starts wait as below"
        ),
        "`SandboxesReady`, once it can be written again",
    ),
    (
        "sandboxes do not start: a full disk, a registry that is down",
        (
            "after three failures in a row, of which the first two cost an attempt, starts wait, "
            "and one at a time is tried, after 1 s, 2 s, … 30 s; running episodes go on. After 5 "
            "minutes (a worker: an hour; if only one task fails: 2 minutes) failures cost attempts "
            "again, so that a job ends whose tasks never start"
        ),
        "`SandboxesReady`",
    ),
    (
        "the engine is down",
        (
            "calls wait for `outageSeconds` and are repeated; no attempt begins. Then `run` stops "
            "after 5 minutes, and a worker waits for good"
        ),
        "`ModelReady`",
    ),
    ("the engine is paused", "calls wait for good", "`ModelReady` (`EnginePaused`) after a minute"),
    (
        "the engine is full",
        (
            "calls are repeated after the pause that it names; then a worker repeats the attempt "
            "after 10 s, and `run` charges it"
        ),
        "`ModelReady` (`Unavailable`)",
    ),
    (
        "the store: down, full, read-only, slow",
        (
            "turns wait a minute for their journal, which ends then; finished episodes wait 5 "
            "minutes for their commit (a worker: an hour), then `run` stops, and a worker begins "
            "again"
        ),
        "`StorageReady`; after 30 s for a call that hangs",
    ),
)
"""The fault, what becomes of it, and the condition on a cluster."""
_ONLY_RUNS: Final = """
Sessions and adapters of trainers leave the decision to the trainer: a start that fails is a failed
sample. While the operator or the API server is away, workers go on, and conditions change when both
are back. Time that one sandbox may win by streams that break is ten minutes in all, and a stream
whose end in the sandbox ended wins none: commands can bring that about.

"""
_TRAINERS: Final = """\
## What trainers see

"""
_EXPORTS: Final = (
    ("Python: `TrainingSample.status`", "`failed`, `reward` none", "`completed`, with its reward"),
    ("groups, streams", "replaced up to `refills` times, then left out", "a sample"),
    ("slime", "`ABORTED`, no reward, `loss_mask` 0, `remove_sample`", "`COMPLETED`"),
    ("verl", "left out of its group (older trainers: an error)", "a sample"),
    ("TRL", "replaced twice, then a row that is masked; `status` failed", "a row"),
    ("SkyRL", "replaced twice, then no row or a masked one; `error`", "`stop`"),
    ("AReaL, Tinker, verifiers live", "left out", "a sample"),
    ("Parquet", "`masked` true, `failure` the type", "`stop_reason`, `masked` false"),
    ("verifiers file", "`stop_condition` `<owner>_error`, `errors`", "`stop_condition`"),
    ("ATIF", "`extra.failure`", "`extra.stop_reason`, `extra.stop_evidence`"),
    ("chat (JSONL)", "`masked` true", "`stop_reason`"),
    ("library layout", "`error`, `error_details`", "`termination_reason`"),
    ("predictions of patches", "left out where it has no patch", "its patch"),
    ("`status`, metrics, viewer", "under failures, by type and owner", "under stop reasons"),
)


def types() -> tuple[type[EpisodeError], ...]:
    """Return every type of failure, each after the one it derives from."""
    for name in _PACKAGES:
        package = importlib.import_module(f"swe_rollout.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"swe_rollout.{name}."):
            importlib.import_module(found.name)

    def below(kind: type[EpisodeError]) -> Iterator[type[EpisodeError]]:
        if kind.__module__.startswith(f"{swe_rollout.__name__}."):
            yield kind
        for each in sorted(kind.__subclasses__(), key=lambda each: each.__name__):
            yield from below(each)

    return tuple(below(EpisodeError))


def failures_page() -> str:
    """Return the page."""
    lines = [_INTRO]
    kinds = [kind for kind in types() if kind is not EpisodeError]
    rows = [_row(kind) for kind in kinds if not issubclass(kind, SandboxDestroyedError)]
    header = ("type", "meaning", "owner", "where it arises", "what becomes of it", "what you do")
    lines += table(header, rows)
    lines.append(_DESTROYED)
    evidence = [
        (f"`{kind.__name__}`", *EVIDENCE[kind.__name__])
        for kind in kinds
        if issubclass(kind, SandboxDestroyedError)
    ]
    lines += table(("type", "sandbox", "evidence"), evidence)
    lines += [_EVIDENCE_RULES, _SERVICES]
    lines += table(("what fails", "what becomes of it", "condition"), _WAITS_FOR)
    lines += [_ONLY_RUNS, _TRAINERS]
    lines += table(("export or adapter", "a failure", "a destroyed sandbox"), _EXPORTS)
    return "\n".join(lines).rstrip() + "\n"


def _row(kind: type[EpisodeError]) -> tuple[str, ...]:
    handling = HANDLING[kind.__name__]
    meaning = (kind.__doc__ or "").partition("\n")[0].rstrip(".")
    owner = _OWNERS[kind.boundary]
    return (f"`{kind.__name__}`", meaning, owner, handling.arises, handling.handled, handling.user)
