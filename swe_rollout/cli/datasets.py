"""`prefetch` and `datasets rows`: prepare and convert a dataset."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.files import require_new, writing
from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.options import (
    Context,
    DatasetName,
    Form,
    Globs,
    Namespace,
    OutputFormat,
    Overwrite,
    SkipBadRows,
    option,
)
from swe_rollout.cli.output import say, write_data, write_table

if TYPE_CHECKING:
    from swe_rollout.cli.dataset_argument import NamedDataset
    from swe_rollout.sandbox.pods.prefetch import PrefetchedImage

PullSeconds = Annotated[
    float, option(min=1, max=86_400, help="Seconds for each batch of eight images.")
]
RowsFile = Annotated[Path | None, option("--output-file", "-O", help="The file. Default: stdout.")]


def prefetch(
    dataset: DatasetName,
    include: Globs = None,
    namespace: Namespace = None,
    context: Context = None,
    *,
    timeout: PullSeconds = 3600.0,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Pull the images of a dataset's tasks onto every node that may run its sandboxes.

    With a job.yaml, the node selectors, tolerations and pull secrets of its pod template apply.
    Exit 1 when an image is not on every node.

    swe-rollout prefetch job.yaml

    swe-rollout prefetch job.yaml -n rollouts -o wide
    """
    from swe_rollout.cli.dataset_argument import named_dataset

    named = named_dataset(dataset, include=include or ())
    found = run_async(_prefetch(named, namespace, context, timeout), on_note=say)
    if output.is_data:
        write_data({"images": [asdict(each) for each in found]}, output)
    else:
        rows = [[each.image, str(each.nodes), each.problem or "ok"] for each in found]
        write_table(["IMAGE", "NODES#", "RESULT"], rows, output)
    if any(each.problem for each in found):
        raise typer.Exit(1)


async def _prefetch(
    named: NamedDataset, namespace: str | None, context: str | None, within_s: float
) -> list[PrefetchedImage]:
    from swe_rollout.cluster.client import ClusterClient
    from swe_rollout.sandbox.pods import prefetch as pods
    from swe_rollout.spec.sandbox import PodSandbox

    images = {instance.image for instance in await named.load()}
    pod = (named.sandbox and named.sandbox.pod) or PodSandbox()
    pod = pod.model_copy(update={"namespace": namespace or pod.namespace})
    found: list[PrefetchedImage] = []
    async with aclosing(await ClusterClient.connect(context or pod.context)) as client:
        say(f"{len(images)} images")
        async for each in pods.prefetch(client, images, pod, within_s=within_s):
            found.append(each)
            state = each.problem or f"on {each.nodes} nodes"
            say(f"[{len(found)}/{len(images)}] {each.image}: {state}")
    return found


def rows(
    dataset: DatasetName,
    include: Globs = None,
    output_file: RowsFile = None,
    *,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a dataset as rows in SWE-bench's format, one JSON object per line.

    swe-rollout datasets rows release-pairs -O rows.jsonl

    swe-rollout datasets rows job.yaml --include 'sqlparse-*' -O rows.jsonl
    """
    from swe_rollout.cli.dataset_argument import named_dataset
    from swe_rollout.datasets.swebench_row import to_row

    if output_file is not None:
        output_file = require_new(output_file, overwrite=overwrite)
    named = named_dataset(dataset, include=include or (), skip_bad_rows=skip_bad_rows)
    instances = asyncio.run(named.load())
    lines = [json.dumps(to_row(instance), ensure_ascii=False) for instance in instances]
    text = "".join(f"{line}\n" for line in lines)
    if output_file is None:
        typer.echo(text, nl=False)
    else:
        with writing(output_file):
            output_file.write_text(text, encoding="utf-8")
        say(f"{len(lines)} rows in {output_file}")
