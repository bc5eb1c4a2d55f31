"""Run one of several programs by name: `scripts/bench NAME`, `scripts/conformance NAME`.

A program is a module with `main(arguments)`; the list shows the first line of its docstring.
"""

from __future__ import annotations

import ast
import importlib
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rollout_dev.peers import environment

_HERE = Path(__file__).parent
_HELP = {"-h", "--help"}


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs behind one executable."""

    folder: str
    """The name of the subpackage and of the executable in `scripts/`."""
    with_peers: tuple[str, ...]
    """Programs that compare with peers and run in the peers' environment."""
    others: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The executable, as typed."""
        return f"scripts/{self.folder}"

    def run(self, arguments: Sequence[str]) -> int:
        """Run the program that is named first, or list all; return the exit status."""
        if not arguments or arguments[0] in _HELP:
            print("\n".join(self._listing()))
            return 0
        name, rest = arguments[0].replace("-", "_"), arguments[1:]
        if name not in (*self.with_peers, *self.others):
            known = ", ".join((*self.with_peers, *self.others))
            sys.stderr.write(f"error: {self.command} has no program {name}\n  fix   {known}\n")
            return 2
        package = f"rollout_dev.{self.folder}"
        if name in self.with_peers and not {*_HELP, "--no-peers"} & set(rest):
            environment.enter(package, arguments)
        module = importlib.import_module(f"{package}.{name}")
        main = cast("Callable[[Sequence[str]], int]", module.main)
        # A program that is terminated removes what it made, as one that is interrupted does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return main(rest)

    def _listing(self) -> Iterable[str]:
        yield f"usage: {self.command} NAME [--json] …     (NAME --help: all options)\n"
        for name in sorted((*self.with_peers, *self.others)):
            module = _HERE / self.folder / name
            file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            source = file.read_text("utf-8")
            doc = ast.get_docstring(ast.parse(source)) or ""
            yield f"  {name:15}{doc.partition(chr(10))[0]}"
