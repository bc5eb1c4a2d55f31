"""Rows of a dataset on a hub, by name, from a hub on this machine."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from e2e.model_hub import Hub, model_hub
from swe_rollout.datasets import swebench
from swe_rollout.errors import DatasetError
from swe_rollout.types.instance import Instance
from unit.datasets.row_parts import GOOD, lines

COMMIT = "0" * 40
OTHERS = ("http_proxy", "https_proxy", "all_proxy", "HF_HUB_OFFLINE", "HF_TOKEN")


def parquet(*rows: dict[str, object]) -> bytes:
    data = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), data)
    return data.getvalue()


FILES = {
    "README.md": b"# rows",
    "data/test-00000-of-00002.parquet": parquet(GOOD | {"instance_id": "a"}),
    "data/test-00001-of-00002.parquet": parquet(GOOD | {"instance_id": "b"}),
    "dev.jsonl": lines(GOOD | {"instance_id": "c"}),
}


class DatasetHub(Hub):
    """A hub that has the rows of one dataset."""

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        name = path.removeprefix("/datasets/me/rows/resolve/").partition("/")[2]
        if path.startswith("/api/datasets/me/rows/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": COMMIT}
                for name, data in FILES.items()
            ]
            self.respond(200, {}, json.dumps(tree).encode())
        elif name in FILES:
            etag = f'"{hashlib.sha256(FILES[name]).hexdigest()}"'
            self.respond(200, {"X-Repo-Commit": COMMIT, "ETag": etag}, FILES[name])
        else:
            self.respond(404, {}, b'{"error": "Repository not found"}')


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with model_hub(DatasetHub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(("split", "ids"), [("", ["a", "b"]), ("test", ["a", "b"]), ("dev", ["c"])])
async def test_a_dataset_is_loaded_by_its_name(tmp_path: Path, split: str, ids: list[str]) -> None:
    results = await swebench.load("me/rows", base_dir=tmp_path, split=split)
    assert [r.instance_id if isinstance(r, Instance) else str(r) for r in results] == ids


@pytest.mark.usefixtures("hub")
async def test_a_split_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        await swebench.load("me/rows", base_dir=tmp_path, split="lite")
    assert "it has no files of the split lite" in str(caught.value.problems[0])
    assert caught.value.fix == "name one of its splits: dev, test"


@pytest.mark.usefixtures("hub")
async def test_a_dataset_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the rows of you/rows can't be read") as caught:
        await swebench.load("you/rows", base_dir=tmp_path)
    assert "no such file, and the hub has no such dataset" in str(caught.value.problems[0])


async def test_without_a_hub_the_way_to_go_on_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DatasetError) as caught:
        await swebench.load("me/rows", base_dir=tmp_path)
    assert "127.0.0.1 can't be reached" in str(caught.value.problems[0])
    assert "save the rows as .parquet or .jsonl" in caught.value.fix


async def test_a_folder_of_that_name_is_a_file_and_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "me").mkdir()
    (tmp_path / "me" / "rows").write_bytes(lines(GOOD))
    with pytest.raises(DatasetError, match="unknown file type"):
        await swebench.load("me/rows", base_dir=tmp_path)
