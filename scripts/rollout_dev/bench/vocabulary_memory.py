"""The memory of a worker's process, step by step: its modules, the tokenizer, the renderer.

`tokens` starts it in a process of its own; it prints MiB of private memory as JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import re
import sys
from pathlib import Path


def _mib(field: str) -> float:
    status = Path("/proc/self/status").read_text("utf-8")
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return round(int(found[1]) / 1024, 1) if found else 0.0


def _main() -> None:
    importlib.import_module("swe_rollout.worker.startup")
    from swe_rollout.agent.model_files import read_model_files  # noqa: PLC0415 - after the others
    from swe_rollout.agent.renderer import Renderer  # noqa: PLC0415 - as above

    figures = {"modules_mib": _mib("RssAnon")}
    files = read_model_files(sys.argv[1])
    gc.collect()
    figures["tokenizer_mib"] = _mib("RssAnon")
    renderer = Renderer(files.tokenizer)
    gc.collect()
    figures["renderer_mib"] = _mib("RssAnon")
    figures["peak_mib"] = _mib("VmHWM")
    assert renderer.vocab_size == len(files.tokenizer)  # noqa: S101 - keeps it until here
    print(json.dumps(figures))


if __name__ == "__main__":
    _main()
