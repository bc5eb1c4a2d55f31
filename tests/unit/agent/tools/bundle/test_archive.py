"""A bundle's folder as one file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from swe_rollout.agent.tools.base import Tool
from swe_rollout.agent.tools.bundle import archive
from swe_rollout.agent.tools.bundle.archive import pack, register, registered
from swe_rollout.errors import UsageError
from swe_rollout.extension import ExtensionError
from swe_rollout.testing.extensions.tools import ToolContract
from unit.agent.tools.bundle.bundle_parts import bundle_of, folder, tool_of

SHELL = "#!/bin/sh\ncat\n"


def test_a_folder_gives_the_same_bytes_whenever_it_is_packed(tmp_path: Path) -> None:
    made = folder(tmp_path, echo=SHELL)
    (made / "lib").mkdir()
    (made / "lib" / "words.txt").write_bytes(bytes(range(256)))
    first = pack(made)
    os.utime(made / "echo", (1, 1))
    (made / "__pycache__").mkdir()
    (made / "__pycache__" / "x.pyc").write_text("")
    (made / ".hidden").write_text("")

    assert pack(made) == first
    (made / "echo").write_text(SHELL + "\n")
    assert pack(made) != first


def test_programs_are_executable_and_the_manifest_stays_here(tmp_path: Path) -> None:
    made = folder(tmp_path, echo=SHELL)
    (made / "data").write_text("x")
    (made / "helper").write_text(SHELL)
    (made / "helper").chmod(0o755)

    files = {file.path: file.executable for file in bundle_of(made).files}
    assert files == {"echo": True, "data": False, "helper": True}


def test_a_bundle_is_known_by_its_digest_alone(tmp_path: Path) -> None:
    data = pack(folder(tmp_path, echo=SHELL))
    digest = hashlib.sha256(data).hexdigest()

    assert registered(digest) is None
    register(data)
    assert registered(digest) is not None


def test_a_folder_that_is_no_bundle_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder(tmp_path, echo=SHELL)
    (made / "link").symlink_to("/etc/passwd")
    with pytest.raises(UsageError) as refused:
        pack(made)
    assert "link is a link" in refused.value.why
    (made / "link").unlink()
    (made / "a b").write_text("")
    with pytest.raises(UsageError) as refused:
        pack(made)
    assert "a file can't be named 'a b'" in refused.value.why
    (made / "a b").unlink()
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    with pytest.raises(UsageError) as refused:
        pack(made)
    assert "over 256 files" in refused.value.why
    (made / "echo").unlink()
    monkeypatch.undo()
    with pytest.raises(UsageError) as refused:
        pack(made)
    assert "it has no file echo" in refused.value.why
    (made / "bundle.yaml").unlink()
    with pytest.raises(UsageError) as refused:
        pack(made)
    assert "it has no bundle.yaml" in refused.value.why
    with pytest.raises(UsageError, match="can't be read"):
        pack(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"files": [{"path": "../x", "executable": true, "content": ""}]}',
        b'{"files": [{"path": "x", "executable": true, "content": "%"}]}',
        b'{"files": []}',
    ],
)
def test_a_stored_bundle_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ExtensionError, match="can't be read"):
        register(data)


def test_a_file_may_be_there_once_only(tmp_path: Path) -> None:
    files = msgspec.json.decode(pack(folder(tmp_path, echo=SHELL)))["files"]

    with pytest.raises(ExtensionError) as refused:
        register(msgspec.json.encode({"files": [*files, files[1]]}))
    assert "invalid names" in refused.value.why


class TestBundleTool(ToolContract):
    arguments: ClassVar = {"text": "x"}
    output = b"/tmp/swe-rollout-tools\n"

    @pytest.fixture
    def tool(self, tmp_path: Path) -> Tool:
        return tool_of(tmp_path, SHELL)
