"""`make stats`: the shape of this code, beside projects that it learns from. Not a gate.

Lines include docstrings and blank lines. Functions include methods and nested functions.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

ROOT: Final = Path(__file__).resolve().parents[2]
MODULE_LIMIT: Final = 350
FUNCTION_LIMIT: Final = 50
_PACKAGES: Final = {
    "swe_rollout": ("swe_rollout", "tests"),
    "operator": ("operator", "tests/controller"),
    "scripts": ("scripts", "tests/unit/scripts"),
}
"""Each package's sources and tests; the first has the tests that no other has."""
_SUPPRESSION: Final = re.compile(r"#\s*(noqa|type: ignore)")


@dataclass(frozen=True, slots=True)
class Module:
    """One file of Python."""

    lines: int
    functions: tuple[int, ...]
    """Lines of each function."""
    public: int
    """Public classes and functions."""
    documented: int
    """Those with a docstring."""
    suppressions: int
    """`noqa` and `type: ignore` comments."""

    @classmethod
    def read(cls, path: Path) -> Module:
        """Parse a file."""
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        functions = [node for node in ast.walk(tree) if _is_function(node)]
        public = [node for node in _definitions(tree) if not node.name.startswith("_")]
        return cls(
            lines=len(text.splitlines()),
            functions=tuple((node.end_lineno or 0) - node.lineno + 1 for node in functions),
            public=len(public),
            documented=sum(ast.get_docstring(node) is not None for node in public),
            suppressions=len(_SUPPRESSION.findall(text)),
        )


@dataclass(frozen=True, slots=True)
class Project:
    """Figures of a package, in the form that the projects to learn from were measured in."""

    name: str
    modules: int
    module_lines: tuple[int, int, int]
    """Median, 90th percentile, maximum."""
    function_lines: tuple[int, int, int]
    """Median, 90th and 99th percentile."""
    documented: float
    """Share of public functions with a docstring (ours: of public classes and functions)."""
    suppressions: float
    """Per 1000 lines."""
    tests: float | None
    """Test lines per source line."""


MODELS: Final = (
    Project("mini-swe-agent a83fcae", 47, (98, 193, 316), (9, 27, 56), 0.38, 0.8, 1.90),
    Project("verifiers v1 a60a606", 174, (97, 403, 1034), (10, 44, 109), 0.44, 1.5, 0.10),
    Project("prime-rl 559b447", 39, (79, 459, 1068), (7, 30, 89), 0.43, 0.3, 0.33),
    Project("slime rollout 624b824", 20, (112, 493, 649), (12, 42, 131), 0.38, 1.9, None),
    Project("slime agent 624b824", 12, (146, 508, 523), (10, 40, 76), 0.54, 0.7, 1.08),
    Project("kopf 60d02ae", 79, (158, 530, 968), (9, 49, 118), 0.34, 0.5, 1.62),
    Project("kr8s 418ce61", 20, (137, 782, 2422), (6, 32, 81), 0.51, 8.8, 0.50),
    Project("inspect_k8s_sandbox 5fc4e04", 23, (113, 623, 730), (12, 38, 81), 0.42, 4.4, 2.08),
    Project("structlog 025edaf", 20, (265, 1241, 1249), (7, 29, 81), 0.81, 5.8, 1.33),
    Project("httpx ae1b9f6", 23, (248, 641, 2019), (9, 34, 80), 0.48, 2.5, 1.01),
    Project("strands-sglang 82f8a46", 12, (120, 300, 476), (10, 46, 95), 0.97, 0.5, 2.68),
    Project("agent-sandbox client 2fd412d", 31, (124, 459, 623), (13, 52, 112), 0.66, 0.7, 0.92),
)


def main() -> None:
    """Print two tables: this code with its limits, and beside other projects."""
    ours = {name: [Module.read(path) for path in _sources(name)] for name in _PACKAGES}
    tests = {name: _test_lines(name) for name in _PACKAGES}
    tests["swe_rollout"] -= sum(lines for name, lines in tests.items() if name != "swe_rollout")
    print("\n".join(_own_table(ours)), end="\n\n")
    projects = [_project(name, modules, tests[name]) for name, modules in ours.items()]
    print("\n".join(_comparison([*projects, *MODELS])))


def _own_table(ours: dict[str, list[Module]]) -> Iterator[str]:
    yield (
        f"{'':14}{'modules':>8}  {'lines: median p95 max':>22}{f'over {MODULE_LIMIT}':>9}  "
        f"{'functions':>9}  {'lines: median p95 max':>22}{f'over {FUNCTION_LIMIT}':>8}  "
        f"{'documented':>10}  {'noqa, type: ignore':>18}"
    )
    for name, modules in ours.items():
        lines = [module.lines for module in modules]
        functions = [count for module in modules for count in module.functions]
        documented = _share(modules)
        yield (
            f"{name:14}{len(lines):8}  {_spread(lines):>22}"
            f"{sum(n > MODULE_LIMIT for n in lines):9}  {len(functions):9}  "
            f"{_spread(functions):>22}{sum(n > FUNCTION_LIMIT for n in functions):8}  "
            f"{documented:>10.0%}  {sum(module.suppressions for module in modules):18}"
        )


def _comparison(projects: Iterable[Project]) -> Iterator[str]:
    yield (
        f"{'':30}{'modules':>8}  {'lines: median p90 max':>22}  "
        f"{'functions: median p90 p99':>25}  {'documented':>10}  {'ignores/1000':>12}  {'tests':>5}"
    )
    for each in projects:
        tests = "–" if each.tests is None else f"{each.tests:.2f}"
        yield (
            f"{each.name:30}{each.modules:8}  {_joined(each.module_lines):>22}  "
            f"{_joined(each.function_lines):>25}  {each.documented:>10.0%}  "
            f"{each.suppressions:12.1f}  {tests:>5}"
        )


def _project(name: str, modules: Sequence[Module], test_lines: int) -> Project:
    lines = [module.lines for module in modules]
    functions = [count for module in modules for count in module.functions]
    thousands = sum(lines) / 1000
    return Project(
        name,
        len(modules),
        (_percentile(lines, 50), _percentile(lines, 90), max(lines)),
        (_percentile(functions, 50), _percentile(functions, 90), _percentile(functions, 99)),
        _share(modules),
        sum(module.suppressions for module in modules) / thousands,
        test_lines / sum(lines),
    )


def _sources(name: str) -> list[Path]:
    return _python_files(ROOT / _PACKAGES[name][0])


def _test_lines(name: str) -> int:
    files = _python_files(ROOT / _PACKAGES[name][1])
    return sum(len(path.read_text("utf-8").splitlines()) for path in files)


def _python_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if path.read_text("utf-8").strip())


def _is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _definitions(
    tree: ast.Module | ast.ClassDef,
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield classes and functions of a module, and methods of its public classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield node
            if not node.name.startswith("_"):
                yield from _definitions(node)


def _share(modules: Iterable[Module]) -> float:
    public, documented = 0, 0
    for module in modules:
        public += module.public
        documented += module.documented
    return documented / max(public, 1)


def _percentile(values: Sequence[int], percent: int) -> int:
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1])


def _spread(values: Sequence[int]) -> str:
    return _joined((_percentile(values, 50), _percentile(values, 95), max(values)))


def _joined(values: Iterable[int]) -> str:
    return " / ".join(map(str, values))


if __name__ == "__main__":
    main()
