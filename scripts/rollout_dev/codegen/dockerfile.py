"""Make the worker's Dockerfile from its recipe: the contents of `scripts/build-images worker`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rollout_dev.images import recipe
from rollout_dev.images.python import COMMAND, PACKAGES, metadata
from rollout_dev.images.recipe import Application, Debian, Python

NAME: Final = "sandbox_images/worker/Dockerfile"
IGNORE: Final = f"{NAME}.dockerignore"
_HEADER: Final = "# Made by scripts/generate; change recipe.toml instead."
_UV: Final = "requirements/uv.txt"


def dockerfile(root: Path) -> str:
    """Return the Dockerfile; `root` is the checkout, the context of the build."""
    worker, source, debian = _worker()
    site = PACKAGES.format(python=source.python)
    lock = source.requirements.relative_to(root).as_posix()
    cache = dict(worker.environment)["XDG_CACHE_HOME"]
    copies = "\n".join(
        f"COPY {path.relative_to(root).as_posix()} /code/{path.name}" for path in source.packages
    )
    packages = " ".join(debian.packages)
    return f"""\
{_HEADER}
# From the root of the repository:
#   docker build -f {NAME} -t {worker.image}:local .
# For a release, name the bases by digest, so that the next build has the same:
#   --build-arg PYTHON=NAME@sha256:… --build-arg DEBIAN=NAME@sha256:…
ARG PYTHON=python:{source.python}-slim-{debian.suite}
ARG DEBIAN=debian:{debian.suite}-slim

FROM ${{PYTHON}} AS installed
COPY {lock} {_UV} /requirements/
RUN pip install --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: \\
      --target /site -r /requirements/{source.requirements.name} \\
 && pip install --no-cache-dir --require-hashes --target /uv -r /requirements/uv.txt
RUN {leave_out(source)}
RUN {compile_all(source, "/site")}
{copies}
RUN {add_metadata()}
RUN {compile_all(source, "/code")}
RUN {add_command()}

FROM ${{DEBIAN}} AS worker
RUN apt-get update \\
 && apt-get install -y --no-install-recommends {packages} \\
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=installed /site {site}
COPY --from=installed /code {site}
COPY --from=installed /commands /usr/local/bin

# The prepared release pairs: a worker needs their records and image names, not their files.
FROM worker AS datasets
COPY --from=installed /uv /uv
RUN PYTHONPATH=/uv XDG_CACHE_HOME={cache} swe-rollout datasets rows release-pairs >/dev/null \\
 && cd {cache}/swe-rollout \\
 && find . -type f ! -path './release-pairs/*.json' ! -path './local-images/*/image.json' -delete \\
 && find . -type l -delete \\
 && find . -depth -type d -empty -delete

FROM worker
COPY --from=datasets {cache}/swe-rollout {cache}/swe-rollout
{_assignments("ENV", worker.environment)}
{_assignments("LABEL", [each for each in worker.labels if not each[0].endswith("base.name")])}
WORKDIR {worker.workdir}
USER {worker.user}
CMD {json.dumps(list(worker.cmd))}
"""  # noqa: S608 - no SQL


def dockerignore(root: Path) -> str:
    """Return what of the context goes to the builder: what the Dockerfile copies, nothing else."""
    _, source, _ = _worker()
    paths = [
        *(path.relative_to(root).as_posix() for path in (source.requirements, *source.packages)),
        _UV,
    ]
    lines = [_HEADER, "*", *(f"!{path}" for path in paths), "**/__pycache__"]
    return "\n".join(lines) + "\n"


def leave_out(source: Python) -> str:
    """Return the command that removes installed files which the recipe leaves out of /site."""
    names = " -o ".join(f"-path '/site/{glob}'" for glob in source.left_out)
    return f"find /site -type f \\( {names} \\) -delete"


def compile_all(source: Python, folder: str) -> str:
    """Return the command that compiles a folder which becomes the image's site."""
    return (
        "python3 -m compileall -q --invalidation-mode unchecked-hash \\\n"
        f"      -x {shlex.quote(source.not_compiled)} \\\n"
        f"      -s {folder} -p {PACKAGES.format(python=source.python)} {folder} >/dev/null || true"
    )


def add_metadata() -> str:
    """Return the command that writes what `importlib.metadata.version` reads."""
    lines = " ".join(map(shlex.quote, metadata().splitlines()))
    return (
        "mkdir /code/swe_rollout.dist-info \\\n"
        f" && printf '%s\\n' {lines} >/code/swe_rollout.dist-info/METADATA"
    )


def add_command() -> str:
    """Return the command that writes the program `swe-rollout`."""
    lines = " ".join(map(shlex.quote, COMMAND.splitlines()))
    return (
        "mkdir /commands \\\n"
        f" && printf '%s\\n' {lines} >/commands/swe-rollout \\\n"
        " && chmod 755 /commands/swe-rollout"
    )


def _assignments(keyword: str, values: Iterable[tuple[str, str]]) -> str:
    separator = f" \\\n{' ' * len(keyword)} "
    return f"{keyword} {separator.join(f'{key}={json.dumps(text)}' for key, text in values)}"


def _worker() -> tuple[Application, Python, Debian]:
    match recipe.read("worker"):
        case Application(source=Python() as source) as worker if isinstance(
            worker.base.source, Debian
        ):
            return worker, source, worker.base.source
        case _:
            raise SystemExit(f"{NAME}: the worker's recipe is not Python over a Debian")
