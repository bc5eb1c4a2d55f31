"""Write the reference page of the public Python API, from the source of what it names.

The source is parsed and not imported: adapters import trainers that are not installed here.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

import swe_rollout
from swe_rollout.extension import ExtensionPoint

_ROOT: Final = Path(swe_rollout.__file__).parent
_WIDTH: Final = 96
_INTRO: Final = """\
<!-- Made by scripts/generate from the docstrings in swe_rollout. -->
# Python

Every public name: `from swe_rollout import NAME`, and the adapters of trainers and frameworks.
Names are imported when they are used, so importing the package costs nothing. How they work
together is in [Launch jobs from Python](../how-to/python.md).

Errors are a tree: [`SweRolloutError`](../troubleshooting.md) with `what`, `why` and `fix`, which
Python prints below the message. Times end in `_s` and are seconds; what ends in `_tokens` counts
tokens, and `_bytes` bytes.
"""
_NAMES: Final = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
SECTIONS: Final[Mapping[str, Sequence[str]]] = _NAMES["sections"]
ADAPTERS: Final[Mapping[str, Sequence[str]]] = _NAMES["adapters"]
_CODE: Final = re.compile(r"(async )?(with|for) |[\w.]+\(.*\)$|[a-z]\w* = ")
"""What an example in a docstring begins with."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.ClassDef | _Function


def python_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    for title, names in SECTIONS.items():
        yield f"## {title}\n"
        for name in names:
            yield from _public(name)
    yield "## Adapters\n"
    yield "Each is imported where its package is installed ([trainers](../how-to/trainers.md)).\n"
    for module, names in ADAPTERS.items():
        for name in names:
            home = f"swe_rollout.integrations.{module}"
            yield from _described(name, _find(home, name), home)


def _public(name: str) -> Iterator[str]:
    home, _, attribute = swe_rollout._HOMES[name].partition(":")  # noqa: SLF001 - its own table
    if attribute:
        yield from _registration(name)
    else:
        yield from _described(name, _find(home, name), "swe_rollout")


def _registration(name: str) -> Iterator[str]:
    point = getattr(swe_rollout, name).__self__
    if not isinstance(point, ExtensionPoint):
        raise TypeError(f"{name} registers nothing")
    article = "an" if point.kind[0] in "aeio" else "a"
    expected = point._expected  # noqa: SLF001 - for its page
    yield f"### {name}\n"
    yield f"```python\n@{name}\n@{name}(name: str)\n```\n"
    yield from _wrapped(
        f"Register {article} {point.kind} under its own name, or under another one: {expected}. "
        "Raises ExtensionError when another one has the name."
    )


def _described(name: str, node: _Definition, package: str) -> Iterator[str]:
    yield f"### {name}\n"
    yield "```python"
    if package != "swe_rollout":
        yield f"from {package} import {name}"
    yield from _signature(node, name)
    yield "```\n"
    yield from _docstring(node)
    if isinstance(node, ast.ClassDef):
        yield from _members(node)


def _find(module: str, name: str) -> _Definition:
    """Find a definition in a module, or where that imports it from."""
    base = _ROOT.parent / Path(*module.split("."))
    path = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, _Definition) and node.name == name and not _decorated(node, "overload"):
            return node
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                if (each.asname or each.name) == name:
                    return _find(node.module, each.name)
    raise LookupError(f"{module} has no {name}")


def _decorated(node: _Definition, *names: str) -> bool:
    return any(ast.unparse(each) in names for each in node.decorator_list)


def _signature(node: _Definition, name: str) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        made = _made(node)
        bases = [ast.unparse(each) for each in node.bases]
        yield f"class {name}({', '.join(bases)})" if bases else f"class {name}"
        if made is not None:
            yield from _call(name, made, skipped=1)
        return
    yield from _call(name, node)


def _call(name: str, node: _Function, *, skipped: int = 0) -> Iterator[str]:
    arguments = _arguments(node.args, skipped)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    if _decorated(node, "asynccontextmanager"):
        prefix = "async with "
    if skipped and name[0].isupper():
        prefix, returned = "", ""
    whole = f"{prefix}{name}({', '.join(arguments)}){returned}"
    if len(whole) <= _WIDTH:
        yield whole
        return
    yield f"{prefix}{name}("
    for each in arguments:
        yield f"    {each},"
    yield f"){returned}"


def _arguments(args: ast.arguments, skipped: int) -> list[str]:
    found: list[str] = []
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
    for argument, default in list(zip(positional, defaults, strict=True))[skipped:]:
        found.append(_argument(argument, default))
    if args.vararg is not None:
        found.append(f"*{_argument(args.vararg, None)}")
    elif args.kwonlyargs:
        found.append("*")
    pairs = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    found += [_argument(argument, default) for argument, default in pairs]
    if args.kwarg is not None:
        found.append(f"**{_argument(args.kwarg, None)}")
    return found


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    if default is not None:
        text += f" = {ast.unparse(default)}" if argument.annotation else f"={ast.unparse(default)}"
    return text


def _functions(node: _Definition) -> Iterator[_Function]:
    return (each for each in node.body if isinstance(each, _Function))


def _made(node: _Definition) -> _Function | None:
    """Return what makes an instance of a class; none of a function."""
    found = _functions(node) if isinstance(node, ast.ClassDef) else ()
    return next((each for each in found if each.name == "__init__"), None)


def _docstring(node: _Definition) -> Iterator[str]:
    yield from _paragraphs(ast.get_docstring(node) or "")
    if (made := _made(node)) is not None:
        yield from _paragraphs(ast.get_docstring(made) or "")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield a docstring as Markdown: what is indented, or looks like code, as code."""
    for part in re.split(r"\n\s*\n", text.strip()):
        if not part:
            continue
        plain = textwrap.dedent(part)
        if part.startswith("    ") or _CODE.match(plain):
            yield f"```python\n{plain}\n```\n"
        else:
            yield from _wrapped(plain)


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(" ".join(text.split()).replace("<", "&lt;"), 110)
    yield ""


def _members(node: ast.ClassDef) -> Iterator[str]:
    fields = list(_fields(node))
    methods = [
        each
        for each in _functions(node)
        if not each.name.startswith("_") and ast.get_docstring(each)
    ]
    for name, kind, about in fields:
        yield f"- `{name}`{f': `{kind}`' if kind else ''}{f'. {about}' if about else ''}"
    if fields:
        yield ""
    for method in methods:
        if _decorated(method, "property", "cached_property"):
            kind = ast.unparse(method.returns) if method.returns else ""
            yield f"- `.{method.name}`: `{kind}`. {_flat(ast.get_docstring(method) or '')}"
            continue
        skipped = 0 if _decorated(method, "staticmethod") else 1
        call = " ".join(line.strip() for line in _call(method.name, method, skipped=skipped))
        call = call.replace("( ", "(").replace(", )", ")")
        yield f"- `.{call}`".replace("`.await ", "`await .").replace(
            "`.async with ", "`async with ."
        )
        if about := _flat(ast.get_docstring(method) or ""):
            yield f"  <br>{about}"
    if methods:
        yield ""


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    for index, each in enumerate(node.body):
        after = node.body[index + 1] if index + 1 < len(node.body) else None
        about = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            about = _flat(str(after.value.value))
        match each:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                yield name, ast.unparse(each.annotation), about
            case ast.Assign(targets=[ast.Name(id=name)]) if name.isupper():
                yield name, "", about
            case _:
                pass


def _flat(text: str) -> str:
    """Return the prose of a docstring on one line; examples are left out."""
    parts = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text.strip())]
    prose = [part for part in parts if not _CODE.match(part)]
    return " ".join(prose or parts[:1]).replace("<", "&lt;").replace("|", "\\|")
