"""SGLang's own detectors of calls, run in the environment of its CPU server.

SGLang returns the calls that it found and drops the rest, so it never reports a broken call.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rollout_dev.parser_probes.probes import ParserProbe
from rollout_dev.peers.environment import ROOT
from rollout_dev.peers.parser_base import PeerCalls, PeerParser, checked_call, with_header
from swe_rollout.spec.tool_format import ToolFormat

_PYTHON: Final = ROOT / ".sglang" / "venv" / "bin" / "python"
_CHILD: Final = Path(__file__).with_name("sglang_child.py")
_NAMES: Final = {
    ToolFormat.HERMES: "qwen25",
    ToolFormat.QWEN_XML: "qwen3_coder",
    ToolFormat.GLM45: "glm45",
    ToolFormat.GLM47: "glm47",
    ToolFormat.KIMI_K2: "kimi_k2",
    ToolFormat.DEEPSEEK_V3: "deepseekv3",
    ToolFormat.DEEPSEEK_V31: "deepseekv31",
    ToolFormat.DEEPSEEK_V32: "deepseekv32",
    ToolFormat.LLAMA3: "llama3",
    ToolFormat.MISTRAL: "mistral",
    ToolFormat.MISTRAL_V11: "mistral",
    ToolFormat.HARMONY: "gpt-oss",
    ToolFormat.MINIMAX_M2: "minimax-m2",
}


class Sglang(PeerParser):
    """SGLang: it splits off the reasoning first, as its server does, then looks for calls."""

    name = "sglang 0.5.23"
    formats = frozenset(_NAMES)

    def parse(self, probes: Sequence[ParserProbe]) -> Sequence[PeerCalls]:
        # One process for all of them: it takes seconds to start.
        requests = [
            {
                "parser": _NAMES[probe.tool_format],
                "tools": [tool.function() for tool in probe.tools],
                "text": with_header(probe, probe.sampled().text),
                "opened": probe.reasoning.opened,
            }
            for probe in probes
        ]
        command = [_PYTHON, _CHILD]
        done = subprocess.run(
            command, input=json.dumps(requests), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            why = done.stderr.strip().splitlines()[-1:]
            return [PeerCalls((), f"its process ended with {done.returncode}: {why}")] * len(probes)
        found = json.loads(done.stdout.splitlines()[-1])
        return [_calls(probe, each) for probe, each in zip(probes, found, strict=True)]


def _calls(probe: ParserProbe, found: dict[str, object]) -> PeerCalls:
    match found:
        case {"error": str(error)}:
            return PeerCalls((), error)
        case {"calls": list(calls)}:
            return PeerCalls(tuple(checked_call(probe, c["name"], c["arguments"]) for c in calls))
        case _:
            raise ValueError(f"unexpected output of SGLang's process: {found}")


def is_installed() -> bool:
    """Whether SGLang was installed for its CPU server."""
    return _PYTHON.exists()
