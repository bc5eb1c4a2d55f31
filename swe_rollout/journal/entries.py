"""The values of a journal, and their stored form: MessagePack, compressed.

An agent program is a function of what the engine and the sandbox answer. A journal keeps these
answers, each under the agent that asked and a digest of what it asked for; a program that runs
again and is given the same answers does the same. A `Chunk` is what one write makes durable.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Final, Self, TypeAlias

import msgspec
import numpy as np
import zstandard

from swe_rollout.engine.chat.base import AssistantMessage, ChatCall, ChatResponse
from swe_rollout.sandbox.base import ExecResult, SandboxDelta, SandboxMark
from swe_rollout.tokens.replay import ReplayRows
from swe_rollout.types.turn import FinishReason, Generation, Observation, WeightSpan

MAX_CHUNK_BYTES: Final = 1 << 30
"""Largest chunk that is unpacked."""
_LEVEL: Final = 1
"""Deltas are compressed already, and a journal is short-lived."""


class Rows(msgspec.Struct, frozen=True):
    """Replay data of one response."""

    experts: bytes | None
    """int32, little-endian."""
    shape: tuple[int, ...]
    kept_ids: tuple[tuple[int, ...], ...]
    kept_logprobs: tuple[float, ...]
    prompt_logprobs: tuple[float | None, ...]

    @classmethod
    def of(cls, rows: ReplayRows) -> Rows:
        """Take them from a response."""
        experts = None if rows.experts is None else np.asarray(rows.experts, dtype="<i4")
        return cls(
            None if experts is None else experts.tobytes(),
            () if experts is None else experts.shape,
            rows.kept_ids,
            rows.kept_logprobs,
            rows.prompt_logprobs,
        )

    def rows(self) -> ReplayRows:
        """Return them as the engine did."""
        found = self.experts
        experts = None if found is None else np.frombuffer(found, "<i4").reshape(self.shape)
        return ReplayRows(experts, self.kept_ids, self.kept_logprobs, self.prompt_logprobs)


class Sampled(msgspec.Struct, frozen=True, tag="sampled"):
    """What an engine sampled."""

    ids: bytes
    """int32, little-endian."""
    logprobs: bytes
    """float64, little-endian: exactly as the engine gave them."""
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    weight_versions: tuple[WeightSpan, ...]
    rows: Rows | None = None

    @classmethod
    def of(cls, found: Generation) -> Sampled:
        """Take it from a response."""
        return cls(
            np.array(found.token_ids, dtype="<i4").tobytes(),
            np.array(found.logprobs, dtype="<f8").tobytes(),
            found.finish_reason,
            found.prompt_tokens,
            found.cached_tokens,
            found.weight_versions,
            Rows.of(found.replay) if found.replay else None,
        )

    def value(self) -> Generation:
        """Return it as the engine did."""
        return Generation(
            tuple(np.frombuffer(self.ids, "<i4").tolist()),
            tuple(np.frombuffer(self.logprobs, "<f8").tolist()),
            self.finish_reason,
            self.prompt_tokens,
            self.cached_tokens,
            self.weight_versions,
            self.rows.rows() if self.rows else None,
        )


class Whole(msgspec.Struct, frozen=True):
    """An answer that is kept as it is, in one field."""

    @classmethod
    def of(cls, found: object) -> Self:
        """Take an answer."""
        return cls(found)

    def value(self) -> object:
        """Return the answer."""
        return getattr(self, self.__struct_fields__[0])


class Said(Whole, frozen=True, tag="said"):
    """What a chat API responded."""

    response: ChatResponse


class Ran(msgspec.Struct, frozen=True, tag="ran"):
    """What a command did."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    stdout_bytes: int
    stderr_bytes: int
    duration_s: float

    @classmethod
    def of(cls, found: ExecResult) -> Ran:
        """Take a result."""
        return cls(**asdict(found))

    def value(self) -> ExecResult:
        """Return the result."""
        return ExecResult(**msgspec.structs.asdict(self))


class FileRead(Whole, frozen=True, tag="read"):
    """A file's content."""

    data: bytes


class Done(msgspec.Struct, frozen=True, tag="done"):
    """An operation that returns nothing has succeeded."""

    @classmethod
    def of(cls, found: None) -> Done:
        """Take nothing."""
        del found
        return cls()

    def value(self) -> None:
        """Return nothing."""


class Observed(Whole, frozen=True, tag="observed"):
    """What a tool that acts outside of the sandbox returned."""

    observation: Observation


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error that the caller can take for an answer, such as a file that is missing."""

    kind: str
    """The name of its class."""
    what: str
    why: str = ""
    fix: str = ""
    retryable: bool = True
    code: int = 0
    """The system's number of an error of a file; 0: it has none."""


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """The caller stopped waiting, such as at a time limit."""


Answer: TypeAlias = Sampled | Said | Ran | FileRead | Done | Observed | Refused | Cancelled


class Entry(msgspec.Struct, frozen=True):
    """One answer of the outside world."""

    agent: int
    """The branch of the agent that asked."""
    request: str
    """The request, as `kind:sha256`."""
    answer: Answer
    elapsed_s: float = 0.0
    """How much of its time the episode had used by then."""
    remaining_s: float | None = None
    """How much time the episode had left by then; None if no clock ran."""


FORMAT: Final = 1
"""The format of journals. A version that writes anything else, or means it, has another one."""


class Header(msgspec.Struct, frozen=True):
    """The attempt that a journal is of. One that differs in any of this can't go on with it."""

    attempt: int
    spec: str
    """Digest of the comparable part of the spec."""
    extensions: tuple[str, ...]
    """Digests of the user code."""
    instance: str
    """Digest of the task's content."""
    policy: str
    tokenizer: str
    """Fingerprint of tokenizer and chat template; empty over a chat API."""
    seed: str
    """The seed of the episode's marks, in hexadecimal."""
    workdir: str
    base: str
    """The commit that the patch will be compared with."""
    fork: str = ""
    """The turn of another episode that it begins from, as `ForkPoint.key`."""
    format: int = FORMAT


class Delta(msgspec.Struct, frozen=True):
    """The sandbox's changes since the chunk before; see `SandboxDelta`."""

    number: int
    data: bytes
    unsaved: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()

    @classmethod
    def of(cls, delta: SandboxDelta) -> Delta:
        """Take what a journal needs of a delta."""
        return cls(delta.number, delta.data, delta.unsaved, delta.processes)


class Restored(msgspec.Struct, frozen=True):
    """How a life of an attempt that is not its first came to a sandbox."""

    attached: bool
    """Whether it is the one of the life before; otherwise it was rebuilt."""
    lost: tuple[str, ...] = ()
    """What the one that was rebuilt lacks."""


class End(msgspec.Struct, frozen=True):
    """The agent has ended, and this is its work: what is left is grading."""

    patch: str
    problem: str


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one write makes durable."""

    writer: str
    """Unique to the process that plays the attempt: whoever wrote last owns the journal."""
    header: Header | None = None
    """Present in the first chunk of a journal alone."""
    entries: tuple[Entry, ...] = ()
    delta: Delta | None = None
    mark: SandboxMark | None = None
    """Where that sandbox is, and how much had been done in it by the end of the turn; None where
    nobody could attach to it."""
    restored: Restored | None = None
    """Present in the first turn that a later life of the attempt wrote."""
    end: End | None = None
    resumes: bool = False
    """Whether the writer goes on here with what another one, or an earlier life, began."""
    closes: bool = False
    """Whether nobody may go on with this journal."""
    place: str = ""
    """Where it belongs, as `JournalRef.place`: a chunk that lies elsewhere is another's."""


class DamagedChunkError(ValueError):
    """An object that is no chunk."""


# Made once, here: msgspec must not inspect a class in two threads at a time.
_DECODER: Final = msgspec.msgpack.Decoder(Chunk)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(chunk: Chunk) -> bytes:
    """Return a chunk as bytes, which `compress` makes small.

    Raises ValueError for a text that UTF-8 can't hold. What commands returned stands in it as it
    is, where secrets are found.
    """
    return _ENCODER.encode(chunk)


def _warm_up() -> None:
    """Let msgspec look at every class once, here: two threads doing that at a time crash."""
    generation = Generation((1,), (-0.5,), FinishReason.STOP, 1, 0, (WeightSpan("1", 0, 1),))
    said = ChatResponse(AssistantMessage("", (ChatCall("", "", ""),)), FinishReason.STOP)
    rows = Rows(None, (), (), (), ())
    answers = (
        msgspec.structs.replace(Sampled.of(generation), rows=rows),
        Said(said),
        Ran(0, b"", b"", timed_out=False, stdout_bytes=0, stderr_bytes=0, duration_s=0),
        FileRead(b""),
        Done(),
        Observed(Observation("")),
        Refused("", ""),
        Cancelled(),
    )
    header = Header(1, "", (), "", "", "", "", "", "")
    entries = tuple(Entry(0, "", answer) for answer in answers)
    chunk = Chunk(
        "",
        header,
        entries,
        Delta(1, b""),
        SandboxMark("", "", 1),
        Restored(attached=True),
        End("", ""),
    )
    _DECODER.decode(_ENCODER.encode(chunk))


_warm_up()


def compress(data: bytes) -> bytes:
    """Return the stored form of an encoded chunk."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(data)


def decode(data: bytes) -> Chunk:
    """Read the stored form. Raises DamagedChunkError for anything else."""
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_CHUNK_BYTES:
            raise DamagedChunkError(f"it claims to have {size} bytes")
        return _DECODER.decode(zstandard.ZstdDecompressor().decompress(data))
    except (zstandard.ZstdError, msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedChunkError(f"{type(error).__name__}: {error}"[:300]) from error


def digest_of(kind: str, *parts: object) -> str:
    """Return the identity of a request: its kind, and a digest of its parts' representations."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode(errors="surrogateescape")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return f"{kind}:{digest.hexdigest()}"
