"""Harbor's `BaseEnvironment` (0.25.0): run Harbor's trials in our sandboxes.

Name it in a trial's or job's configuration:

    environment:
      import_path: swe_rollout.integrations.sandboxes.harbor:SandboxEnvironment
      kwargs: {spec: {pod: {}}}

Nothing is built: a task names its image (`docker_image` in `[environment]`), or `image` in `kwargs`
does, in which `{name}` is the task's. Tasks that restrict networks are refused by Harbor itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

from swe_rollout.datasets.harbor_task import DEFAULT_WORKDIR, workdir_of
from swe_rollout.errors import SandboxError
from swe_rollout.integrations.sandboxes import transfer
from swe_rollout.integrations.sandboxes.box import Box
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.worker.standalone import LIFETIME_S


class SandboxEnvironment(BaseEnvironment):
    """A sandbox of the task's prebuilt image."""

    def __init__(
        self,
        *args: object,
        spec: SandboxSpec | Mapping[str, object] | None = None,
        image: str = "",
        lifetime_s: float = LIFETIME_S,
        **kwargs: object,
    ) -> None:
        """`spec` is the `sandbox` of a job file, by default pods. The rest is Harbor's.

        Commands start in the task's workdir, or in its Dockerfile's, or in /app.
        """
        self._image = image
        super().__init__(*args, **kwargs)
        dockerfile = self.environment_dir / "Dockerfile"
        text = dockerfile.read_text() if dockerfile.is_file() else ""
        workdir = self.task_env_config.workdir or workdir_of(text) or DEFAULT_WORKDIR
        self._box = Box(self._named_image, spec, workdir=workdir, lifetime_s=lifetime_s)

    @property
    def _named_image(self) -> str:
        named: str = self.task_env_config.docker_image or ""
        return named or self._image.replace("{name}", self.environment_name.lower())

    @staticmethod
    def type() -> str:
        """Return the name that Harbor displays."""
        return "swe-rollout"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        if not self._named_image:
            raise FileNotFoundError(
                f"{self.environment_name} names no image: set docker_image in its [environment], "
                "or `image` in the environment's kwargs"
            )

    async def start(self, force_build: bool) -> None:
        """Start the sandbox and create Harbor's folders. Raises the errors of our provider."""
        del force_build  # There is nothing to build.
        await self._box.start()
        made = await self.ensure_dirs(self._mount_targets(writable_only=True))
        if made is not None and made.return_code:
            await self._box.close()
            raise SandboxError("Harbor's folders can't be made in the sandbox", why=made.stderr)
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """End the sandbox. Idempotent."""
        del delete  # The sandbox can't be kept.
        await self._box.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a script; return code 124 if it ran out of time. SandboxError if it is lost."""
        result = await self._box.run(
            command,
            cwd=cwd,
            env=self._merge_env(env),
            timeout_s=timeout_sec,
            user=self._resolve_user(user),
        )
        out, err = result.stdout or None, result.stderr or None
        return ExecResult(stdout=out, stderr=err, return_code=result.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await transfer.upload_file(self._box.sandbox, Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await transfer.upload_folder(self._box.sandbox, Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await transfer.download_file(self._box.sandbox, source_path, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await transfer.download_folder(self._box.sandbox, source_dir, Path(target_dir))
