"""The snippets of docs/how-to/sandboxes-for-others.md that need their frameworks."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from harbor.models.trial.config import EnvironmentConfig

from sandbox_snippets import PAGE, output_of

pytestmark = pytest.mark.trainers


@pytest.mark.parametrize("name", ["tinker", "verifiers", "nemo_gym"])
async def test_python(name: str, tmp_path: Path) -> None:
    assert await output_of(name, tmp_path) == "1\n"


def test_harbor_takes_the_configuration() -> None:
    text = PAGE.partition("```yaml\n")[2].partition("```")[0]
    config = EnvironmentConfig.model_validate(yaml.safe_load(text)["environment"])
    assert config.kwargs["spec"] == {"pod": {}}
