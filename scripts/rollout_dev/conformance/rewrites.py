"""Write functions of Python again in other forms that do the same. Pure."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef

_MOST_FUNCTIONS: Final = 6


@dataclass(frozen=True, slots=True)
class Fixed:
    """A file of the package that a fix changes."""

    path: str
    before: str
    after: str

    def functions(self) -> list[Function]:
        """Return the functions to write again, those of the fix first."""
        every = [node for node in ast.walk(ast.parse(self.after)) if isinstance(node, Function)]
        before, after = self.before.splitlines(), self.after.splitlines()
        blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        lines = {line + 1 for tag, *_, a, b in blocks if tag != "equal" for line in range(a, b + 1)}
        fixed = [node for node in every if lines & {*range(node.lineno, _end(node) + 1)}]
        inner = [node for node in fixed if not _holds(node, fixed)]
        return (inner or every)[:_MOST_FUNCTIONS]


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _holds(node: Function, others: list[Function]) -> bool:
    inner = {id(each) for each in ast.walk(node)} - {id(node)}
    return any(id(other) in inner for other in others)


Rewrite = Callable[[Function], list[ast.stmt] | None]
"""Returns what stands in place of a function, or None if that form does not fit it."""


def rewritten(file: Fixed, rewrite: Rewrite, *, head: str = "") -> str | None:
    """Return the file with its functions written again; None if none could be."""
    lines = file.after.split("\n")
    nodes = sorted(file.functions(), key=lambda each: each.lineno, reverse=True)
    done = False
    for node in nodes:
        decorators = [each.lineno for each in node.decorator_list]
        first = min([node.lineno, *decorators])
        if (new := rewrite(node)) is None:
            continue
        text = "\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in new)
        lines[first - 1 : _end(node)] = textwrap.indent(text, " " * node.col_offset).split("\n")
        done = True
    return headed("\n".join(lines), head) if done else None


def headed(text: str, head: str) -> str:
    """Put lines behind a file's docstring and its imports from the future."""
    at = 0
    for node in ast.parse(text).body:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.ImportFrom(module="__future__"):
                at = _end(node)
            case _:
                break
    lines = text.split("\n")
    return "\n".join([*lines[:at], *([head] if head else []), *lines[at:]])


def _split(node: Function) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the docstring of a function, and the rest of its body."""
    has_title = ast.get_docstring(node, clean=False) is not None
    return node.body[: int(has_title)], node.body[int(has_title) :]


def around(template: str, *, simple: bool = False) -> Rewrite:
    """Put the body of a function in place of `BODY` in some statements."""

    def rewrite(node: Function) -> list[ast.stmt] | None:
        title, body = _split(node)
        if not body or (simple and _yields(node)):
            return None
        made = ast.parse(template.replace("NAME", node.name))
        for each in ast.walk(made):
            blocks = getattr(each, "body", None)
            if isinstance(blocks, list) and any(_is_mark(statement) for statement in blocks):
                at = next(at for at, one in enumerate(blocks) if _is_mark(one))
                blocks[at : at + 1] = body
        node.body = [*title, *made.body]
        return [node]

    return rewrite


def _is_mark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node) == "BODY"


def _yields(node: Function) -> bool:
    return any(isinstance(each, (ast.Yield, ast.YieldFrom, ast.Await)) for each in ast.walk(node))


def each(change: Callable[[ast.AST], object | None]) -> Rewrite:
    """Replace nodes of a function where `change` returns something."""

    class Change(ast.NodeTransformer):
        found = False

        def visit(self, node: ast.AST) -> object:
            self.generic_visit(node)
            new = change(node)
            self.found |= new is not None
            return node if new is None else new

    def rewrite(node: Function) -> list[ast.stmt] | None:
        changer = Change()
        changer.generic_visit(node)
        return [node] if changer.found else None

    return rewrite


def renamed(node: Function) -> list[ast.stmt] | None:
    """Give the local names of a function other names."""
    arguments = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    inner = [
        each for each in ast.walk(node) if isinstance(each, (Function, ast.ClassDef, ast.Lambda))
    ]
    bound = {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    } - arguments
    shared = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.ExceptHandler, ast.MatchAs)
    bound = {name for name in bound if not name.startswith("__")} - {"_"}
    if not bound or inner[1:] or any(isinstance(each, shared) for each in ast.walk(node)):
        return None
    if any(isinstance(each, ast.Name) and each.id in ("locals", "vars") for each in ast.walk(node)):
        return None
    for statement in node.body:
        for each in ast.walk(statement):
            if isinstance(each, ast.Name) and each.id in bound:
                each.id = f"the_{each.id}"
    return [node]


def delegated(node: Function) -> list[ast.stmt] | None:
    """Let another function do the work."""
    if node.decorator_list or node.name.startswith("__") or _needs_class(node):
        return None
    own = bool(node.args.args) and node.args.args[0].arg == "self"
    inner = f"_{node.name.strip('_')}_inner"
    call = f"{'self.' if own else ''}{inner}(*args, **kwargs)"
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    if kind != "def" or (node.col_offset and not own):
        return None
    wraps = f"@functools.wraps({inner})\n"
    outer = ast.parse(
        f"{wraps}def {node.name}({'self, ' if own else ''}*args, **kwargs):\n    return {call}"
    ).body
    node.name = inner
    return [node, *outer]


def _needs_class(node: Function) -> bool:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return bool(names & {"super", "__class__"}) or any(
        isinstance(each, ast.Attribute) and each.attr.startswith("__") for each in ast.walk(node)
    )


def through_name(node: ast.AST) -> object | None:
    match node:
        case ast.Return(value=ast.expr() as value):
            name = ast.Name("the_result", ast.Store())
            return [ast.Assign([name], value), ast.Return(ast.Name("the_result", ast.Load()))]
        case _:
            return None


def raise_name(node: ast.AST) -> object | None:
    match node:
        case ast.Raise(exc=ast.Call() as error, cause=cause):
            name = ast.Name("the_error", ast.Store())
            raised = ast.Raise(ast.Name("the_error", ast.Load()), cause)
            return [ast.Assign([name], error), raised]
        case _:
            return None


def raise_chained(node: ast.AST) -> object | None:
    match node:
        case ast.Raise(exc=ast.Call() as error, cause=None):
            return ast.Raise(error, ast.Call(ast.Name("LookupError", ast.Load()), [], []))
        case _:
            return None


def raise_unchained(node: ast.AST) -> object | None:
    match node:
        case ast.Raise(exc=ast.Call() as error):
            return ast.Raise(error, ast.Constant(None))
        case _:
            return None


def text_subclass(node: ast.AST) -> object | None:
    match node:
        case ast.Return(value=ast.expr() as value):
            return ast.Return(ast.Call(ast.Name("_as_text", ast.Load()), [value], []))
        case _:
            return None


def inverted(node: ast.AST) -> object | None:
    match node:
        case ast.If(test=test, body=body, orelse=[first, *_] as orelse) if not isinstance(
            first, ast.If
        ):
            return ast.If(ast.UnaryOp(ast.Not(), test), orelse, body)
        case ast.IfExp(test=test, body=then, orelse=other):
            return ast.IfExp(ast.UnaryOp(ast.Not(), test), other, then)
        case _:
            return None


def iterated(node: ast.AST) -> object | None:
    match node:
        case ast.For(target=target, iter=source, body=body, orelse=orelse):
            return ast.For(
                target, ast.Call(ast.Name("iter", ast.Load()), [source], []), body, orelse
            )
        case _:
            return None


def annotated(node: ast.AST) -> object | None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return ast.AnnAssign(
                ast.Name(name, ast.Store()), ast.Name("object", ast.Load()), value, 1
            )
        case _:
            return None
