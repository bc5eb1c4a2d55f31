"""`conformance templates` goes on, whatever is in the folder, and says what each file is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rollout_dev import families
from rollout_dev.conformance import templates

pytestmark = pytest.mark.threat(point=15)


def outcomes(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    status = templates.main([str(folder), "--json", "--seconds", "20", "--jobs", "2"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    return status, {
        row["subject"].rpartition("/")[2]: f"{row['verdict']} {row.get('reason', '')}"
        for row in report["rows"]
    }


@pytest.mark.slow
def test_a_folder_of_good_and_hostile_templates_is_read_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.jinja").write_text(families.template("qwen2_5"), "utf-8")
    (tmp_path / "empty.jinja").write_text(" \n")
    (tmp_path / "broken.jinja").write_text("{% if %}")
    (tmp_path / "bytes.jinja").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.jinja").write_bytes(b"x" * (templates.MAX_BYTES + 1))
    (tmp_path / "endless.jinja").write_text(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    )
    (tmp_path / "README.md").write_text("no template")
    os.mkfifo(tmp_path / "pipe.jinja")

    status, found = outcomes(tmp_path, capsys)

    assert status == 0
    assert found.pop("good.jinja") == "exact "
    assert set(found) == {f"{name}.jinja" for name in (
        "empty", "broken", "bytes", "huge", "endless", "pipe"
    )}  # fmt: skip
    assert all(each.startswith("refused ") for each in found.values()), found
    assert "it is empty" in found["empty.jinja"]
    assert "TemplateSyntaxError" in found["broken.jinja"]
    assert "larger than" in found["huge.jinja"]
    assert "was not done after 20 s" in found["endless.jinja"]
    assert "no regular file" in found["pipe.jinja"]


def test_a_folder_without_templates_is_not_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcomes(tmp_path, capsys) == (1, {})


def test_templates_that_leave_out_the_tools_are_counted_for_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = "{% for m in messages %}<|start|>{{ m.role }}: {{ m.content }}<|stop|>{% endfor %}"
    told = (
        "{% for t in tools or [] %}<|start|>Use <tool_call>: {{ t | tojson }}<|stop|>{% endfor %}"
    )
    begin = "{% if add_generation_prompt %}<|start|>assistant: {% endif %}"
    for folder, source in (("silent", plain + begin), ("telling", told + plain + begin)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.jinja").write_text(source)

    folders = [str(tmp_path / "silent"), str(tmp_path / "telling")]
    status = templates.main([*folders, "--json", "--seconds", "60", "--jobs", "2"])

    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    silent, telling = report["rows"]
    assert status == 0
    assert (silent["verdict"], telling["verdict"]) == ("exact, tools in words", "exact")
    assert "calls are words of a turn" in telling["remarks"]
    assert report["notes"][:3] == [
        f"{folders[0]}: 0 exact; 1 exact, tools in words; 0 refused; 0 wrong; of 1",
        f"{folders[1]}: 1 exact; 0 exact, tools in words; 0 refused; 0 wrong; of 1",
        "1 exact; 1 exact, tools in words; 0 refused; 0 wrong; of 2",
    ]
