"""Start SGLang's own server on a machine without a GPU. Runs in the server's environment.

The top level also runs in the processes that the server spawns: all of them need the operator
definitions.
"""

from __future__ import annotations

import os
import sys

import torch


def define_vision_operators() -> None:
    """Make torchvision importable on a CPU build of torch, where its CUDA library cannot load."""
    if torch.version.cuda is not None:
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    # The definitions disappear when their library object is garbage-collected.
    torch.swe_rollout_vision_operators = library


define_vision_operators()


def main() -> None:
    """Serve until killed; leave no child process."""
    # The server's modules are heavy and read the environment: only the first process imports them.
    from sglang.launch_server import run_server  # noqa: PLC0415
    from sglang.srt.server_args import (  # noqa: PLC0415
        prepare_server_args,
    )
    from sglang.srt.utils import (  # noqa: PLC0415
        kill_process_tree,
    )

    try:
        run_server(prepare_server_args(sys.argv[1:]))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main()
