"""Listen on an address, then become another program, which inherits the socket as descriptor 3.

python -m rollout_dev.dev_cluster.listen ADDRESS PORT -- PROGRAM…
"""

from __future__ import annotations

import os
import socket
import sys

_DESCRIPTOR = 3


def main() -> None:
    """Listen in this process's network namespace, and exec the program."""
    address, port, _, *program = sys.argv[1:]
    listener = socket.create_server((address, int(port)), backlog=512)
    os.dup2(listener.fileno(), _DESCRIPTOR)
    # dup2 does not do this if the socket already has that number.
    os.set_inheritable(_DESCRIPTOR, True)  # noqa: FBT003 - the parameter has no name
    os.execvp(program[0], program)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
