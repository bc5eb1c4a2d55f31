"""The systems against which the league's policies play: ways to grade an agent's work.

Each gets the sandbox in which the agent's script has run, and decides whether the task is resolved.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol

from rollout_dev.conformance.attacks.trials import Site
from swe_rollout.errors import SandboxError
from swe_rollout.grading import rules
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.parsers import load_parser
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import ExecResult, Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.patch_text import touched_paths
from swe_rollout.sandbox.repository import Patch

_TESTS_S: Final = 60.0
_SWEBENCH_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Played:
    """A sandbox in which an agent's script has run, and the patch taken from it."""

    sandbox: Sandbox
    patch: Patch


@dataclass(frozen=True, slots=True)
class Graded:
    """A system's grade."""

    resolved: bool
    detail: str
    findings: tuple[str, ...] = ()


class System(Protocol):
    """A way to grade."""

    @property
    def name(self) -> str:
        """The name for the table's header."""
        ...

    async def grade(self, site: Site, played: Played) -> Graded:
        """Grade an agent's work. Raises EpisodeError if there is no verdict."""
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """The grader of this package, which runs only the patch in clean sandboxes."""

    title: ClassVar[str] = "swe-rollout"
    grader: Grader
    name: str = title

    async def grade(self, site: Site, played: Played) -> Graded:
        """Grade the patch."""
        verdict = await self.grader.grade(site.instance, played.patch, episode=site.episode())
        return Graded(verdict.resolved, verdict.status.value, verdict.integrity)


@dataclass(frozen=True, slots=True)
class InSandbox:
    """Tests run in the sandbox that the agent has changed, as in R2E-Gym and its descendants."""

    name: str = "in the sandbox"

    async def grade(self, site: Site, played: Played) -> Graded:
        """Run the hidden tests in the agent's sandbox and trust their output."""
        instance = site.instance
        paths = " ".join(touched_paths(instance.test_patch))
        await played.sandbox.exec(
            f"git checkout -q HEAD -- {paths}; git apply -", stdin=instance.test_patch.encode()
        )
        done = await _run_tests(played.sandbox, "\n".join(instance.evaluation.commands))
        log = done.stdout.decode(errors="replace")
        results = load_parser(instance.log_parser).read(log)
        statuses = {result.test: result.status for result in results}
        judged = rules.judge(statuses, instance.expected, instance.rule, log=log)
        return Graded(judged.status.value == "resolved", judged.status.value)


@dataclass(slots=True)
class SweBench:
    """swebench's own grading: its steps in a clean sandbox, and its verdict on the log."""

    python: Path
    """An interpreter with swebench 5 installed."""
    name: str = "swebench 5.0.2"
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _process: asyncio.subprocess.Process | None = None

    async def grade(self, site: Site, played: Played) -> Graded:
        """Apply the patch, run a script in SWE-bench's form, and let swebench read the log."""
        if not played.patch.text.strip():
            return Graded(resolved=False, detail="no patch")
        instance = site.instance
        request = SandboxRequest(site.episode(), Role.GRADER, instance.image, instance.workdir)
        sandbox = await site.provider.start(request)
        try:
            await repository.prepare(sandbox, instance)
            applied = await sandbox.exec(
                "cat >/tmp/p; git apply --verbose /tmp/p || git apply --verbose --3way /tmp/p ||"
                " git apply --verbose --reject /tmp/p ||"
                " patch --batch --forward --fuzz=5 -p1 -i /tmp/p",
                stdin=played.patch.text.encode(),
            )
            if not applied.ok:
                return Graded(resolved=False, detail="the patch does not apply")
            await sandbox.write_file("/tmp/eval.sh", _script(instance.test_patch, site).encode())  # noqa: S108
            done = await _run_tests(sandbox, "bash /tmp/eval.sh 2>&1")
        finally:
            await sandbox.close()
        log = ">>>>> Applied Patch\n" + done.stdout.decode(errors="replace")
        answer = await self._ask(site, log)
        return Graded(bool(answer["resolved"]), f"{answer['detail']}resolved")

    async def _ask(self, site: Site, log: str) -> Mapping[str, object]:
        async with self._turn:
            if self._process is None:
                # Importing it takes seconds, so one process reads all logs.
                self._process = await asyncio.create_subprocess_exec(
                    self.python,
                    "-c",
                    _ANSWERING,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=1 << 20,
                )
            process = self._process
            if process.stdin is None or process.stdout is None:
                raise SandboxError("swebench could not be asked", why="its process has no pipes")
            question = {"log": log, **asdict(site.instance.expected)}
            process.stdin.write(json.dumps(question).encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), _SWEBENCH_S)
        if not line:
            raise SandboxError("swebench gave no verdict", why="its process has ended")
        answer: Mapping[str, object] = json.loads(line)
        return answer


async def _run_tests(sandbox: Sandbox, command: str) -> ExecResult:
    return await sandbox.exec(f"exec 2>&1\n{command}", timeout_s=_TESTS_S, max_output=8 << 20)


def _script(test_patch: str, site: Site) -> str:
    """Return a script in SWE-bench's form."""
    restore = f"git checkout HEAD -- {' '.join(touched_paths(test_patch))}"
    command = "\n".join(site.instance.evaluation.commands)
    return f"""\
#!/bin/bash
set -uxo pipefail
{restore}
git apply -v - <<'EOF_114329324912'
{test_patch}
EOF_114329324912
: '>>>>> Start Test Output'
{command}
code=$?
: '>>>>> End Test Output'
echo ">>>>> Test Exit Code: $code"
{restore}
"""


# Runs in swebench's environment, with one request per input line and one response per line.
_ANSWERING: Final = """\
import json, sys, tempfile
from types import SimpleNamespace
from swebench.harness import grading
for line in sys.stdin:
    asked = json.loads(line)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(asked["log"])
        file.flush()
        spec = SimpleNamespace(
            instance_id="task", FAIL_TO_PASS=asked["fail_to_pass"],
            PASS_TO_PASS=asked["pass_to_pass"], log_parser="parse_log_pytest",
            eval_type="pass_and_fail",
        )
        patch = {"instance_id": "task", "model_patch": "x", "model_name_or_path": "m"}
        resolved = grading.get_eval_report(spec, patch, file.name, True)["task"]["resolved"]
    print(json.dumps({"resolved": resolved, "detail": "" if resolved else "un"}), flush=True)
"""
