"""An engine of one's own over HTTP: docs/how-to/generate-server.md, followed as it stands."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from checkout import ROOT
from doc_steps import Reader, steps

PAGE = ROOT / "docs" / "how-to" / "generate-server.md"


def test_the_page_is_followed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    reader = Reader(tmp_path, (("30000", port),))
    server, job, start, run = steps(PAGE)
    reader.carry_out(server)
    reader.carry_out(job)
    command = start.text.replace("python ", f"{sys.executable} -u ")
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "Running on" in process.stdout.readline()
        try:
            said = reader.carry_out(run)
        finally:
            process.terminate()
    assert "ready" in said
    table = PAGE.read_text("utf-8").partition("```\nINSTANCE")[2].partition("```")[0]
    assert table.splitlines()[1].rsplit(" ", 1)[0] in said
