"""`sandbox run`: one command, its output and its exit code; the sandbox ends in every case (K5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from swe_rollout.cli import sandbox as verb
from swe_rollout.cli.options import SandboxKind
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult
from unit.cli.cli_parts import Cli, run_cli
from unit.worker.work_parts import OneSandbox, TableSandbox


@dataclass
class Told(TableSandbox):
    """Answers every command alike, and remembers how it was run."""

    result: ExecResult | BaseException = ExecResult(0, b"", b"")  # noqa: RUF009 - frozen
    ran: list[object] = field(default_factory=list)
    given: dict[str, object] = field(default_factory=dict)

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
        **options: object,
    ) -> ExecResult:
        self.ran.append(command)
        self.given = {"env": env, "stdin": options.get("stdin", b""), "timeout_s": timeout_s}
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> OneSandbox:
    """The provider of every sandbox of a test."""
    found = OneSandbox(Told())
    monkeypatch.setattr("swe_rollout.worker.sandboxes.open_sandboxes", lambda *_: found)
    return found


def told(provider: OneSandbox, result: ExecResult | BaseException) -> Told:
    provider.sandbox = Told(result=result)
    return provider.sandbox


def test_output_and_exit_code_are_passed_on(
    provider: OneSandbox, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    sandbox = told(provider, ExecResult(7, b"out\xff\n", b"err\n", stdout_bytes=5, stderr_bytes=4))
    options = ("--image", "i:1", "-e", "A=b=c", "--workdir", "/w", "--timeout", "9")
    assert run_cli(monkeypatch, "sandbox", "run", *options, "--", "echo", "-n", "$A") == 7
    out, err = capfdbinary.readouterr()
    assert out == b"out\xff\n"
    assert b"err\n" in err
    assert sandbox.ran == [("echo", "-n", "$A")]
    assert sandbox.given == {"env": {"A": "b=c"}, "stdin": b"", "timeout_s": 9.0}
    assert (provider.requests[0].image, provider.requests[0].workdir) == ("i:1", "/w")
    assert sandbox.closed == 1


@pytest.mark.parametrize(
    ("result", "code", "said"),
    [
        (ExecResult(0, b"", b""), 0, ""),
        (ExecResult(137, b"", b"", timed_out=True), 124, "ended after 1 s"),
        (ExecResult(0, b"x", b"", stdout_bytes=11), 0, "10 more bytes"),
        (SandboxError("lost"), 1, "lost"),
        (RuntimeError("a bug"), 1, "a bug"),
    ],
)
def test_a_script_ends_with_its_sandbox_whatever_happens(
    result: ExecResult | Exception, code: int, said: str, provider: OneSandbox, cli: Cli
) -> None:
    sandbox = told(provider, result)
    arguments = ("--image", "i", "--timeout", "1", "--", "a && b")
    assert said in cli("sandbox", "run", *arguments, code=code).err
    assert sandbox.ran == ["a && b"]
    assert sandbox.closed == 1


def test_options_go_to_the_kind_that_has_them() -> None:
    spec = verb._spec(SandboxKind.POD, "ns", "ctx", {"disk": "ssd"})
    assert spec.pod is not None
    assert (spec.pod.namespace, spec.pod.context) == ("ns", "ctx")
    assert spec.pod.template is not None
    template = spec.pod.template.model_dump(by_alias=True, exclude_defaults=True)
    assert template == {"spec": {"nodeSelector": {"disk": "ssd"}}}
    spec = verb._spec(SandboxKind.KODO, "ns", None, {"disk": "ssd"})
    assert spec.kodo is not None
    assert (spec.kodo.namespace, spec.kodo.node_selector) == ("ns", {"disk": "ssd"})


@pytest.mark.parametrize(
    "arguments",
    [
        ("-e", "A"),
        ("-e", "=x"),
        ("-n", "ns"),
        ("--node-selector", "x"),
        ("--timeout", "0"),
        ("--sandbox=pod", "--namespace=" + "x" * 5000),
        ("--sandbox=kodo", "--context=x"),
    ],
)
def test_what_has_no_meaning_is_refused(arguments: tuple[str, ...], cli: Cli) -> None:
    cli("sandbox", "run", "--image", "i", *arguments, "--", "true", code=2)
