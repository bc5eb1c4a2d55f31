"""Read YAML into plain values, with the line of every field and all syntax problems.

Only data is accepted: text, numbers, booleans, null, lists, mappings. Tags, multiple documents,
duplicate keys and aliases that expand without bound are refused. `swe_rollout.spec.load` checks the
fields of a job.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

import yaml

from swe_rollout.errors import Problem

MAX_CHARS = 1 << 18
"""The longest text accepted; with aliases expanded, sixteen times that."""
_NODE_COST = 64
_MAX_DEPTH = 60
_TOO_DEEP = "nested too deeply; no valid job is"
_TAG = "tag:yaml.org,2002:"

_INT = re.compile(r"^[-+]?(0|[1-9][0-9]{0,17})$")
_FLOAT = re.compile(
    r"^[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?$"
    r"|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"
)

FieldPath = tuple[str | int, ...]
"""Location of a value: field names and list indexes, from the root."""


@dataclass(frozen=True, slots=True)
class Document:
    """The value of a YAML text, the line of each path, and its syntax problems."""

    value: object
    lines: dict[FieldPath, int]
    problems: tuple[Problem, ...] = ()

    def line(self, path: FieldPath) -> int:
        """Return the line of `path`, or of its nearest enclosing field."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_document(text: str, *, source: str) -> Document:
    """Read the single document in `text`; its `problems` lists syntax errors by line."""
    if len(text) > MAX_CHARS:
        return _refused(source, f"longer than {MAX_CHARS // 1024} KiB; no valid job is")
    reader = _NodeReader(source)
    try:
        node = yaml.compose(text, Loader=_Loader)
        value = None if node is None else reader.read(node, ())
    except yaml.YAMLError as error:
        return Document(None, {}, (_syntax_problem(error, text, source),))
    except RecursionError:
        return _refused(source, _TOO_DEEP)
    return Document(value, reader.lines, tuple(reader.problems))


def dotted(path: FieldPath) -> str:
    """Format a path as users write it: `spec.agent.tools[1]`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _refused(source: str, message: str) -> Document:
    return Document(None, {}, (Problem(source, "", message),))


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core schema: `0:40`, `no` and `2024-01-01` are text, `1e3` is a number."""

    yaml_implicit_resolvers: ClassVar[dict[str | None, list[tuple[str, re.Pattern[str]]]]] = {  # type: ignore[misc]
        None: [  # for any first character
            (_TAG + "null", re.compile(r"^(~|null|Null|NULL|)$")),
            (_TAG + "bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$")),
            (_TAG + "int", _INT),
            (_TAG + "float", _FLOAT),
            (_TAG + "merge", re.compile(r"^<<$")),
        ]
    }


class _RefusedError(yaml.YAMLError):
    """A text that is not read to its end."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(slots=True)
class _NodeReader:
    """Converts nodes to values, and records lines and problems."""

    source: str
    lines: dict[FieldPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    budget: int = 16 * MAX_CHARS
    above: set[yaml.Node] = field(default_factory=set)
    """The nodes that hold the one which is read."""

    def read(self, node: yaml.Node, path: FieldPath) -> object:
        self.lines.setdefault(path, node.start_mark.line + 1)
        size = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        self.budget -= size + _NODE_COST
        if self.budget < 0 or node in self.above:
            self._stop(node, "its aliases expand without bound; write the values instead")
        if len(path) > _MAX_DEPTH:
            self._stop(node, _TOO_DEEP)
        self.above.add(node)
        value = self._value(node, path)
        self.above.discard(node)
        return value

    def _value(self, node: yaml.Node, path: FieldPath) -> object:
        match node:
            case yaml.MappingNode() if node.tag == _TAG + "map":
                return self._mapping(node, path)
            case yaml.SequenceNode() if node.tag == _TAG + "seq":
                return [self.read(item, (*path, i)) for i, item in enumerate(node.value)]
            case yaml.ScalarNode() if node.tag.startswith(_TAG):
                return self._scalar(node, path)
            case _:
                self._refuse(node, path, f"the tag `{node.tag}` is not data")
                return None

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, object]:
        mine: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                merged |= self._merged(value, path)
            elif not isinstance(key, yaml.ScalarNode) or key.tag != _TAG + "str":
                self._refuse(key, path, f"a field name is text{_name_meant(key)}")
            elif key.value in mine:
                first = self.lines[*path, key.value]
                self._refuse(
                    key, (*path, key.value), f"repeated; first set on line {first}; remove one"
                )
            else:
                self.lines[*path, key.value] = key.start_mark.line + 1
                mine[key.value] = self.read(value, (*path, key.value))
        return merged | mine

    def _merged(self, node: yaml.Node, path: FieldPath) -> dict[str, object]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, object] = {}
        for source in reversed(sources):
            value = self.read(source, (*path, "<<"))
            if isinstance(value, dict):
                merged |= value
            else:
                self._refuse(source, (*path, "<<"), "only a mapping can be merged")
        return merged

    def _scalar(self, node: yaml.ScalarNode, path: FieldPath) -> object:
        text: str = node.value
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" if _INT.fullmatch(text):
                return int(text)
            case "float" if _FLOAT.fullmatch(text):
                number = float(re.sub(r"\.(?=[a-z])", "", text.lower()))
                if not math.isfinite(number):  # not a number equals nothing, not even itself
                    self._refuse(node, path, f"expected a finite number, found {number}")
                return number
            case "str" | "merge" if not re.search("[\ud800-\udfff]", text):
                return text
            case other:
                self._refuse(node, path, f"`!!{other} {text[:40]}` is not data")
                return None

    def _refuse(self, node: yaml.Node, path: FieldPath, message: str) -> None:
        self.problems.append(Problem(self._place(node), dotted(path), message))

    def _stop(self, node: yaml.Node, message: str) -> NoReturn:
        raise _RefusedError(Problem(self._place(node), "", message))

    def _place(self, node: yaml.Node) -> str:
        return f"{self.source}:{node.start_mark.line + 1}"


def _name_meant(key: yaml.Node) -> str:
    if isinstance(key, yaml.MappingNode):
        return "; is `{{ … }}` a template that was not filled in?"
    return f"; write `'{key.value}'`" if isinstance(key, yaml.ScalarNode) else ""


def _syntax_problem(error: yaml.YAMLError, text: str, source: str) -> Problem:
    match error:
        case _RefusedError():
            return error.problem
        case yaml.composer.ComposerError(context=str(context)) if "single document" in context:
            return Problem(
                _at(error, source),
                "",
                "a second document; a file has one job: put this one into a file of its own",
            )
        case yaml.MarkedYAMLError():
            what = ": ".join(part for part in (error.context, error.problem) if part)
            if "unexpected end of stream" in what and error.context_mark is not None:
                place = f"{source}:{error.context_mark.line + 1}"
                return Problem(place, "", "not YAML: a quote is opened and not closed")
            hint = _hint(error)
            if "{{" in text:
                hint = "; is `{{ … }}` a template that was not filled in?"
            return Problem(_at(error, source), "", f"not YAML: {what}{hint}")
        case yaml.reader.ReaderError():
            line = text.count("\n", 0, error.position) + 1
            return Problem(f"{source}:{line}", "", "a control character; expected text")
        case _:
            return Problem(source, "", f"not YAML: {error}")


def _at(error: yaml.MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    return source if mark is None else f"{source}:{mark.line + 1}"


def _hint(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "; indent with spaces, not with tabs"
    if "mapping values are not allowed" in problem:
        return "; align this line with its siblings, or put text that contains `: ` in quotes"
    if "block end" in problem or "':'" in problem:
        return "; check the indentation of this line and the previous one"
    return ""
