"""Stand-in for SGLang's GPU kernels, for a server without a GPU.

SGLang imports names from `sgl_kernel` at start but calls none of them on a CPU without AMX kernels:
it uses plain torch. So every name exists here, and calling one raises an error that explains it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

__version__ = "0.0.0"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} needs a GPU; this is a stand-in for the CPU")

    return absent
