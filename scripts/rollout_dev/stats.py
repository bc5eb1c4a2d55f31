"""The size and the shape of the code, beside the limits in budget.toml.

`make stats` prints them; `make lint` runs the same program with `--check`. Lines include docstrings
and blank lines; functions include methods and nested functions.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "swe_rollout"
_TOTALS: Final = {"source": PACKAGE, "tests": "tests", "scripts": "scripts"}
_SUPPRESSION: Final = re.compile(r"#\s*(noqa|type: ignore)")
_BROAD: Final = frozenset({"Exception", "BaseException"})
_HEAD: Final = """\
# How large the code may be; `make lint` holds it. A room may shrink freely.
# `make stats ARGS=--write` lowers every number to what is there, and
# `make stats ARGS="--write --raise ROOM"` lets one room grow.
"""


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file."""

    path: Path
    """Path relative to the checkout."""
    lines: int
    functions: tuple[int, ...]
    """Length of each function in lines."""
    ignores: int
    """Number of `noqa` and `type: ignore` comments."""
    broad_excepts: int
    """Number of handlers that catch Exception, BaseException or everything."""
    imports: frozenset[str]
    """Dotted names imported when the module is, without those under TYPE_CHECKING."""

    @classmethod
    def read(cls, root: Path, path: Path) -> Module:
        """Parse the file at `path`, which is inside `root`."""
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        return cls(
            path=path.relative_to(root),
            lines=len(text.splitlines()),
            functions=tuple(
                (node.end_lineno or 0) - node.lineno + 1
                for node in nodes
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ),
            ignores=len(_SUPPRESSION.findall(text)),
            broad_excepts=sum(isinstance(n, ast.ExceptHandler) and _is_broad(n) for n in nodes),
            imports=frozenset(_imports(tree.body)),
        )

    @property
    def name(self) -> str:
        """The dotted name under which the module is imported."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @property
    def room(self) -> str:
        """The part of the code that the budget counts the module in."""
        folders = self.path.parent.parts
        match folders:
            case ("tests", "unit", *_):
                return "/".join(folders[:3])
            case ("scripts", "rollout_dev", *rest):
                return "/".join(("scripts", *rest[:1]))
            case ("operator", *_):
                return "operator"
        return "/".join(folders[:2])


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on one figure of the whole code."""

    goal: float
    today: float | None = None
    """The figure that holds until the goal is reached; it may only get better."""
    is_floor: bool = False
    """Whether more is better."""

    def holds(self, figure: float) -> bool:
        """Whether the figure is within the limit."""
        bound = self.goal if self.today is None else self.today
        return figure >= bound if self.is_floor else figure <= bound

    def tightened(self, figure: float, *, may_loosen: bool) -> Limit:
        """Return the limit with its ratchet moved to the figure, or removed at the goal."""
        if replace(self, today=None).holds(figure):
            return replace(self, today=None)
        return replace(self, today=figure) if may_loosen or self.holds(figure) else self


Rooms: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Budget:
    """The contents of budget.toml."""

    rooms: Rooms
    """The most lines of each room."""
    limits: Mapping[str, Limit]

    @classmethod
    def read(cls, path: Path) -> Budget:
        """Parse the file."""
        tables = tomllib.loads(path.read_text("utf-8"))
        limits = {
            name: Limit(
                row.get("at_least", row.get("at_most")), row.get("today"), "at_least" in row
            )
            for name, row in tables["limits"].items()
        }
        return cls(rooms=tables["rooms"], limits=limits)

    def text(self) -> str:
        """Return the file's text."""
        lines = [_HEAD, "[limits]"]
        for name, limit in self.limits.items():
            kind = "at_least" if limit.is_floor else "at_most"
            today = "" if limit.today is None else f", today = {limit.today:g}"
            lines.append(f"{name} = {{ {kind} = {limit.goal:g}{today} }}")
        lines += ["", "[rooms]", *(f'"{room}" = {n}' for room, n in sorted(self.rooms.items()))]
        return "\n".join(lines).replace("e+", "e") + "\n"

    def problems(self, rooms: Rooms, figures: Mapping[str, float]) -> Iterator[str]:
        """Yield what is over budget, and how to fix it."""
        for room, lines in rooms.items():
            if (over := lines - self.rooms.get(room, 0)) > 0:
                yield f"{room} has {lines} lines, {over} over its budget: {_cure(room)}"
        for name, limit in self.limits.items():
            if not limit.holds(figures[name]):
                yield f"{name} is {figures[name]:g}, the limit {_bound(limit)}: {_cure(name)}"

    def written(self, rooms: Rooms, figures: Mapping[str, float], raised: Sequence[str]) -> Budget:
        """Return the budget lowered to the current figures; only rooms in `raised` may grow."""
        lines = {
            room: count if room in raised else min(count, self.rooms[room])
            for room, count in rooms.items()
            if room in raised or room in self.rooms
        }
        limits = {
            name: limit.tightened(figures[name], may_loosen=name in raised)
            for name, limit in self.limits.items()
        }
        return Budget(lines, limits)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Run the program on a checkout and return the exit status."""
    parser = argparse.ArgumentParser(prog="make stats", description=__doc__)
    parser.add_argument("--check", action="store_true", help="print only what is over budget")
    parser.add_argument("--write", action="store_true", help="lower budget.toml to what is there")
    parser.add_argument("--raise", dest="raised", action="append", default=[], metavar="NAME")
    options = parser.parse_args(arguments)
    modules = read_modules(root)
    rooms, figures = _rooms(modules), _figures(modules)
    path = root / "budget.toml"
    budget = Budget.read(path)
    if options.write:
        budget = budget.written(rooms, figures, options.raised)
        path.write_text(budget.text(), "utf-8")
    if not options.check:
        print("\n".join(_table(modules, budget)))
    problems = list(budget.problems(rooms, figures))
    for problem in problems:
        print(f"over budget: {problem}", file=sys.stderr)
    return 1 if problems and (options.check or options.write) else 0


def read_modules(root: Path) -> list[Module]:
    """Parse the files that are not empty."""
    return [
        module
        for folder in (PACKAGE, "operator", "tests", "scripts")
        for path in sorted((root / folder).rglob("*.py"))
        if (module := Module.read(root, path)).lines
    ]


def circles(modules: Sequence[Module]) -> list[list[str]]:
    """Return the import circles; cutting the last import of each leaves none."""
    names = {module.name for module in modules}
    graph = {
        module.name: sorted({each for name in module.imports if (each := _module(name, names))})
        for module in modules
    }
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            found.append(circle)
            graph[circle[-1]].remove(circle[-2])
        else:
            return found


def _rooms(modules: Sequence[Module]) -> dict[str, int]:
    rooms: dict[str, int] = {}
    for module in modules:
        rooms[module.room] = rooms.get(module.room, 0) + module.lines
    return rooms


def _figures(modules: Sequence[Module]) -> dict[str, float]:
    source = [module for module in modules if module.path.parts[0] == PACKAGE]
    product = [module for module in modules if module.path.parts[0] in {PACKAGE, "operator"}]
    functions = sorted(length for module in source for length in module.functions) or [0]
    thousands = sum(module.lines for module in source) / 1000 or 1
    return {
        **{
            f"{name}_lines": sum(each.lines for each in modules if each.path.parts[0] == folder)
            for name, folder in _TOTALS.items()
        },
        "module_lines_p50": statistics.median([module.lines for module in source] or [0]),
        "module_lines_max": max((module.lines for module in product), default=0),
        "function_lines_p90": functions[int(len(functions) * 0.9)],
        "function_lines_max": max((n for module in product for n in module.functions), default=0),
        "ignores_per_1000_lines": round(sum(m.ignores for m in source) / thousands, 2),
        "broad_excepts_per_1000_lines": round(sum(m.broad_excepts for m in source) / thousands, 2),
        "top_level_modules": sum(len(module.path.parts) == 2 for module in source),  # noqa: PLR2004
        "import_circles": len(circles(source)),
    }


def _table(modules: Sequence[Module], budget: Budget) -> Iterator[str]:
    figures = _figures(modules)
    for name, limit in budget.limits.items():
        yield f"{name:32} {figures[name]:>8g}  {_bound(limit)}"
    yield ""
    for room, lines in sorted(_rooms(modules).items()):
        yield f"{room:32} {lines:>8}  budget {budget.rooms.get(room, 0)}"
    yield ""
    product = [module for module in modules if module.path.parts[0] in {PACKAGE, "operator"}]
    for module in sorted(product, key=lambda module: -module.lines)[:5]:
        longest = max(module.functions, default=0)
        yield f"{module.path}: {module.lines} lines, longest function {longest}"
    for circle in circles(product):
        yield f"import circle: {' <- '.join(circle)}"


def _cure(name: str) -> str:
    write = f'make stats ARGS="--write --raise {name}"'
    return f"delete something there, or run `{write}` and say why in the commit"


def _bound(limit: Limit) -> str:
    goal = f"{'at least' if limit.is_floor else 'at most'} {limit.goal:g}"
    return goal if limit.today is None else f"{goal} (today {limit.today:g})"


def _is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in _BROAD) for kind in kinds)


def _imports(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the imports of the statements at the top of a module."""
    for statement in body:
        match statement:
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=rest):
                yield from _imports(rest)
            case ast.If(body=inner, orelse=rest):
                yield from _imports([*inner, *rest])
            case ast.Try(body=inner, handlers=handlers):
                yield from _imports([*inner, *(each for h in handlers for each in h.body)])


def _module(imported: str, names: set[str]) -> str | None:
    """Return the module that an imported name is, or is in."""
    owner = imported.rpartition(".")[0]
    return next((name for name in (imported, owner) if name in names), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
