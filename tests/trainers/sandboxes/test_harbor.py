"""Harbor's `BaseEnvironment`: the contract, and a whole trial by Harbor itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
from harbor.models.trial.config import EnvironmentConfig as TrialEnvironment
from harbor.models.trial.paths import TrialPaths
from harbor.trial.trial import Trial

from harbor_parts import TASKS, make_image
from sandbox_protocols import IMAGE, WORKDIR, Face, Opener, ProtocolContract, Ran, Spec, local
from swe_rollout.errors import SandboxError
from swe_rollout.integrations.sandboxes.harbor import SandboxEnvironment

pytestmark = pytest.mark.trainers
PATH = "swe_rollout.integrations.sandboxes.harbor:SandboxEnvironment"


def environment(
    folder: Path, spec: Spec, *, image: str | None = IMAGE, lifetime_s: float = 300.0
) -> SandboxEnvironment:
    (folder / "environment").mkdir(exist_ok=True)
    (folder / "environment" / "Dockerfile").write_text(f"FROM x\nWORKDIR {WORKDIR}\n")
    made = EnvironmentFactory.create_environment_from_config(
        config=TrialEnvironment(import_path=PATH, kwargs={"spec": spec, "lifetime_s": lifetime_s}),
        environment_dir=folder / "environment",
        environment_name="one",
        session_id="one__abc__env",
        trial_paths=TrialPaths(folder / "trial"),
        task_env_config=EnvironmentConfig(docker_image=image, env={"TASK": "1"}),
    )
    assert isinstance(made, SandboxEnvironment)
    return made


class HarborFace(Face):
    def __init__(self, environment: SandboxEnvironment, folder: Path) -> None:
        self.environment = environment
        self.file = folder / "file"

    @classmethod
    async def open(cls, spec: Spec, folder: Path, *, lifetime_s: float) -> HarborFace:
        made = environment(folder, spec, lifetime_s=lifetime_s)
        await made.start(force_build=False)
        return cls(made, folder)

    async def run(
        self, command: str, *, timeout_s: int | None = None, user: str | None = None
    ) -> Ran:
        result = await self.environment.exec(command, timeout_sec=timeout_s, user=user)
        code = result.return_code
        return Ran(code, result.stdout or "", result.stderr or "", timed_out=code == 124)

    async def put(self, path: str, data: bytes) -> None:
        self.file.write_bytes(data)
        await self.environment.upload_file(self.file, path)

    async def get(self, path: str) -> bytes:
        await self.environment.download_file(path, self.file)
        return self.file.read_bytes()

    async def close(self) -> None:
        await self.environment.stop(delete=True)


class TestHarbor(ProtocolContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(HarborFace.open, local(tmp_path), tmp_path)

    async def test_commands_have_the_tasks_environment(self, face: HarborFace) -> None:
        assert (await face.run('echo "$TASK"')).stdout == "1\n"

    async def test_folders_both_ways(self, face: HarborFace, tmp_path: Path) -> None:
        tree = tmp_path / "tree"
        (tree / "a b").mkdir(parents=True)
        (tree / "a b" / "run").write_bytes(b"#!/bin/sh\necho ran\n")
        (tree / "a b" / "run").chmod(0o755)
        await face.environment.upload_dir(tree, f"{WORKDIR}/new/tree")
        assert (await face.run("'./new/tree/a b/run'")).stdout == "ran\n"
        await face.run("cd new/tree && ln -s /etc/passwd out && ln -s 'a b/run' in && mkfifo pipe")
        await face.environment.download_dir(f"{WORKDIR}/new/tree", tmp_path / "back")
        back = {str(path.relative_to(tmp_path / "back")) for path in (tmp_path / "back").rglob("*")}
        assert back == {"a b", "a b/run", "in"}
        assert (tmp_path / "back" / "a b" / "run").stat().st_mode & 0o111
        assert (tmp_path / "back" / "in").read_bytes() == b"#!/bin/sh\necho ran\n"

    async def test_files_that_are_not_there(self, face: HarborFace, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            await face.environment.download_file("/none", tmp_path / "file")
        with pytest.raises(SandboxError):
            await face.environment.download_dir("/none", tmp_path / "folder")
        assert not await face.environment.is_dir("/none")
        assert await face.environment.is_dir(WORKDIR)


def test_a_task_without_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="docker_image"):
        environment(tmp_path, {"pod": {}}, image=None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:harbor")
async def test_harbor_runs_a_whole_trial_with_its_oracle(tmp_path: Path) -> None:
    make_image(tmp_path / "images")
    spec = {"local": {"images": str(tmp_path / "images")}}
    config = TrialConfig(
        task=TaskConfig(path=TASKS / "stock-report"),
        trials_dir=tmp_path / "trials",
        agent=AgentConfig(name="oracle"),
        environment=TrialEnvironment(import_path=PATH, kwargs={"spec": spec}),
    )
    trial = await Trial.create(config)
    result = await trial.run()
    assert result.exception_info is None
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1.0, "report": True, "folder": True}
