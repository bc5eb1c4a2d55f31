"""An adapter without its trainer says which one it needs; other errors are left alone."""

from __future__ import annotations

import importlib
import sys

import pytest

from swe_rollout.errors import PrerequisiteError
from swe_rollout.integrations.needed import TrainerMissingError, needed

ADAPTERS = ("verl", "skyrl", "areal", "tinker", "verifiers")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trainer can be imported, and no adapter is imported yet."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ADAPTERS or name.startswith("swe_rollout.integrations."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Absent(), *sys.meta_path])


class _Absent:
    """Finds no trainer, wherever one may be installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in ADAPTERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.usefixtures("without")
def test_an_adapter_without_its_trainer_names_it(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        importlib.import_module(f"swe_rollout.integrations.{name}")

    error = caught.value
    assert isinstance(error, PrerequisiteError)
    assert error.exit_code == 3
    assert error.what == f"this adapter needs the package {name}"
    assert f"docs/how-to/{name}.md" in error.fix


def test_what_else_is_missing_is_not_the_trainer() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, needed("verl"):
        importlib.import_module("swe_rollout.no_such_module")
    assert not isinstance(caught.value, TrainerMissingError)
