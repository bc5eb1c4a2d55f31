"""The values of a journal, and their stored form: MessagePack, compressed.

An agent program is a function of the responses of the engine and the sandbox. A journal keeps these
responses, each with the agent that asked and a digest of its request; a program that runs again and
receives the same responses does the same. One write makes a `Chunk` durable.
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
"""Size limit of an unpacked chunk."""
_LEVEL: Final = 1
"""Low, because deltas are compressed already and a journal is short-lived."""


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
        """Convert the rows of a response."""
        experts = None if rows.experts is None else np.asarray(rows.experts, dtype="<i4")
        return cls(
            None if experts is None else experts.tobytes(),
            () if experts is None else experts.shape,
            rows.kept_ids,
            rows.kept_logprobs,
            rows.prompt_logprobs,
        )

    def rows(self) -> ReplayRows:
        """Convert back to the engine's form."""
        found = self.experts
        experts = None if found is None else np.frombuffer(found, "<i4").reshape(self.shape)
        return ReplayRows(experts, self.kept_ids, self.kept_logprobs, self.prompt_logprobs)


class Sampled(msgspec.Struct, frozen=True, tag="sampled"):
    """What an engine sampled."""

    ids: bytes
    """int32, little-endian."""
    logprobs: bytes
    """float64, little-endian: exactly as the engine returned them."""
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    weight_versions: tuple[WeightSpan, ...]
    rows: Rows | None = None

    @classmethod
    def of(cls, found: Generation) -> Sampled:
        """Convert a response."""
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
        """Convert back to the engine's form."""
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
    """A response stored unchanged in one field."""

    @classmethod
    def of(cls, found: object) -> Self:
        """Store a response."""
        return cls(found)

    def value(self) -> object:
        """Return the response."""
        return getattr(self, self.__struct_fields__[0])


class Said(Whole, frozen=True, tag="said"):
    """What a chat API responded."""

    response: ChatResponse


class Ran(msgspec.Struct, frozen=True, tag="ran"):
    """The result of a command."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    stdout_bytes: int
    stderr_bytes: int
    duration_s: float

    @classmethod
    def of(cls, found: ExecResult) -> Ran:
        """Convert a result."""
        return cls(**asdict(found))

    def value(self) -> ExecResult:
        """Return the result."""
        return ExecResult(**msgspec.structs.asdict(self))


class FileRead(Whole, frozen=True, tag="read"):
    """A file's content, or what an agent noted that runs in the sandbox."""

    data: bytes


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The success of an operation that returns nothing."""

    @classmethod
    def of(cls, found: None) -> Done:
        """Store nothing."""
        del found
        return cls()

    def value(self) -> None:
        """Return nothing."""


class Observed(Whole, frozen=True, tag="observed"):
    """The result of a tool that acts outside the sandbox."""

    observation: Observation


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error that the caller can handle, such as a missing file."""

    kind: str
    """The name of the error's class."""
    what: str
    why: str = ""
    fix: str = ""
    retryable: bool = True
    code: int = 0
    """The errno of a file error; 0 if it has none."""


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """The caller stopped waiting, for example at a time limit."""


Answer: TypeAlias = Sampled | Said | Ran | FileRead | Done | Observed | Refused | Cancelled


class Entry(msgspec.Struct, frozen=True):
    """One response of the outside world."""

    agent: int
    """The branch of the agent that asked."""
    request: str
    """The request, as `kind:sha256`."""
    answer: Answer
    elapsed_s: float = 0.0
    """The time that the episode had used by then."""
    remaining_s: float | None = None
    """The time that the episode had left by then; None if no clock ran."""


FORMAT: Final = 2
"""The format of journals. Any change of form or meaning gets another number."""


class Header(msgspec.Struct, frozen=True):
    """The attempt that a journal records. One that differs in any field can't resume from it."""

    attempt: int
    spec: str
    """Digest of the comparable part of the spec."""
    extensions: tuple[str, ...]
    """Digests of the user code."""
    instance: str
    """Digest of the task's content."""
    policy: str
    tokenizer: str
    """Fingerprint of tokenizer and chat template; empty for a chat API."""
    seed: str
    """The seed of the episode's marks, in hexadecimal."""
    workdir: str
    base: str
    """The commit that the patch will be compared with."""
    fork: str = ""
    """The turn of another episode from which it starts, as `ForkPoint.key`."""
    format: int = FORMAT


class Delta(msgspec.Struct, frozen=True):
    """The sandbox's changes since the previous chunk; see `SandboxDelta`."""

    number: int
    data: bytes
    unsaved: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()

    @classmethod
    def of(cls, delta: SandboxDelta) -> Delta:
        """Convert a delta to the form that a journal needs."""
        return cls(delta.number, delta.data, delta.unsaved, delta.processes)


class Restored(msgspec.Struct, frozen=True):
    """How a later life of an attempt obtained its sandbox."""

    attached: bool
    """Whether it is the previous life's sandbox; otherwise it was rebuilt."""
    lost: tuple[str, ...] = ()
    """What the rebuilt sandbox lacks."""


class End(msgspec.Struct, frozen=True):
    """The agent's final work; only grading remains."""

    patch: str
    problem: str


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """The unit that one write makes durable."""

    writer: str
    """Unique to the process that plays the attempt: whoever wrote last owns the journal."""
    header: Header | None = None
    """Present only in a journal's first chunk."""
    entries: tuple[Entry, ...] = ()
    delta: Delta | None = None
    mark: SandboxMark | None = None
    """Where the sandbox is, and how much had been done in it by the end of the turn; None if nobody
    could attach to it."""
    restored: Restored | None = None
    """Present only in the first turn written by a later life of the attempt."""
    end: End | None = None
    resumes: bool = False
    """Whether the writer resumes here what another writer or an earlier life began."""
    closes: bool = False
    """Whether the journal is closed, so that nobody may resume from it."""
    place: str = ""
    """Where the chunk belongs, as `JournalRef.place`; anywhere else, it is misplaced."""


class DamagedChunkError(ValueError):
    """An object is not a valid chunk."""


# Create them once, here: msgspec must not inspect a class in two threads at once.
_DECODER: Final = msgspec.msgpack.Decoder(Chunk)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(chunk: Chunk) -> bytes:
    """Encode a chunk to bytes, ready for `compress`.

    Raises ValueError for text that UTF-8 can't encode. Command output appears verbatim, so that
    secrets in it can be found.
    """
    return _ENCODER.encode(chunk)


def _warm_up() -> None:
    """Let msgspec inspect every class once, here: two threads doing so at once crash."""
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
    """Compress an encoded chunk to its stored form."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(data)


def decode(data: bytes) -> Chunk:
    """Decode the stored form. Raises DamagedChunkError for anything else."""
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_CHUNK_BYTES:
            raise DamagedChunkError(f"it claims to have {size} bytes")
        return _DECODER.decode(zstandard.ZstdDecompressor().decompress(data))
    except (zstandard.ZstdError, msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedChunkError(f"{type(error).__name__}: {error}"[:300]) from error


def digest_of(kind: str, *parts: object) -> str:
    """Return the identity of a request: its kind and a digest of the repr of its parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode(errors="surrogateescape")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return f"{kind}:{digest.hexdigest()}"
