"""Extension points for everything a user may supply: tools, agents, call formats, dataset sources,
log parsers, reward terms, engines, sandbox back ends.

Each kind has one `ExtensionPoint`, defined in the package that uses it. Refer to an extension by
name or as `module:attr`; built-in extensions are loaded the same way. Nothing is imported before a
job names it.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar, cast, overload

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.text.user_code import said, user_code

T = TypeVar("T")
R = TypeVar("R")
_Convert = Callable[[Callable[..., object], Collection[str]], object]


class ExtensionError(UsageError):
    """An extension can't be found, imported, or used as the kind that the spec expects."""


class ExtensionPoint(Generic[T]):
    """One kind of extension, and the ways to refer to one."""

    def __init__(
        self,
        kind: str,
        *,
        group: str,
        accepts: Callable[[object], bool],
        expected: str,
        builtin: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        one_argument: bool = False,
        from_function: str = "",
    ) -> None:
        """`kind` is its name in messages, such as `tool`; `group` is the entry points' group.

        `accepts` says whether a value can be used as a `T`; `expected` describes such a value.
        `builtin` maps names to `module:attr`; `aliases` does so for names that load but are not
        listed. With `one_argument`, `load` refuses anything that can't be called with a single
        argument. `from_function`, as `module:attr`, takes a plain function and the names of the
        parameters that are set, and returns the extension that it is; a factory unchanged.
        """
        self.kind = kind
        self.group = group
        self._accepts = accepts
        self._expected = expected
        self._builtin = dict(builtin)
        self._aliases = dict(aliases or {})
        self._one_argument = one_argument
        self._from_function = from_function
        self._registered: dict[str, object] = {}

    @overload
    def register(self, value: str, /) -> Callable[[R], R]: ...
    @overload
    def register(self, value: R, /) -> R: ...
    def register(self, value: object, /) -> object:
        """Register a class or function under its own name, or the one in `@register("name")`.

        Registering the same definition again replaces it, as when its module is reloaded. Raises
        ExtensionError if another extension has the name.
        """
        if isinstance(value, str):
            return partial(self._add, value)
        return self._add(_own_name(value), value)

    def names(self) -> tuple[str, ...]:
        """Return all names that work without a `module:` prefix, sorted."""
        installed = {entry.name for entry in entry_points(group=self.group)}
        return tuple(sorted({*self._builtin, *self._registered, *installed}))

    def modules(self) -> set[str]:
        """Return the modules that define what was registered in this process."""
        return {getattr(each, "__module__", "") for each in self._registered.values()}

    def load(self, use: str, parameters: Mapping[str, object] | None = None) -> T:
        """Return the extension that `use` refers to, created with `parameters`.

        A class is instantiated; a factory is called; a function that is itself the extension gets
        its parameters bound. Raises ExtensionError, which lists what exists.
        """
        value = self._import(use) if ":" in use else self._named(use)
        if self._from_function and inspect.isfunction(value):
            convert = cast("_Convert", self._import(self._from_function))
            value = convert(value, parameters or {})
        made = self._made(use, value, parameters or {})
        if not self._accepts(made):
            raise ExtensionError(
                f"{use} is no {self.kind}",
                why=f"it is {_described(made)}; a {self.kind} is {self._expected}",
                fix=f"see docs/how-to/extend.md, or take one of {', '.join(self.names())}",
            )
        if self._one_argument and callable(made):
            self._check_call(use, made)
        return cast("T", made)

    def reference(self, value: object) -> str:
        """Return a name by which `load` finds the object again.

        The name is `module:attr` if any process can import the object from there; otherwise it is
        registered in this process only.
        """
        if isinstance(value, str):
            return value
        for name, known in self._registered.items():
            if known is value and not _importable(value):
                return name
        if home := _importable(value):
            return home
        name = _own_name(value)
        self._add(name, value)
        return name

    def is_local(self, use: str) -> bool:
        """Whether the name is valid in this process only."""
        return ":" not in use and use in self._registered and not self.is_shipped(use)

    def is_shipped(self, name: str) -> bool:
        """Whether the name is built in or installed, and so can't be registered."""
        return (
            name in self._builtin
            or name in self._aliases
            or any(entry.name == name for entry in entry_points(group=self.group))
        )

    def _add(self, name: str, value: R) -> R:
        known = self._registered.get(name)
        if self.is_shipped(name) or (known is not None and not _same_definition(known, value)):
            raise ExtensionError(
                f"there is already a {self.kind} named {name}",
                fix="give it another name, or name yours as module:attr",
            )
        self._registered[name] = value
        return value

    def _named(self, name: str) -> object:
        if name in self._registered:
            return self._registered[name]
        if home := self._builtin.get(name) or self._aliases.get(name):
            return self._import(home)
        for entry in entry_points(group=self.group):
            if entry.name == name:
                return self._import(entry.value)
        names = self.names()
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ExtensionError(
            f"there is no {self.kind} named {name}",
            why=f"{hint}it is none of {', '.join(names)}",
            fix="name your own as module:attr, such as my_extensions:name",
        )

    def _import(self, reference: str) -> object:
        module_name, _, path = reference.partition(":")
        if module_name.partition(".")[0] in sys.stdlib_module_names:
            # A job file must not call `os:system` in a worker.
            raise ExtensionError(
                f"{reference} is no {self.kind}",
                why=f"{module_name} belongs to Python's standard library",
                fix="name a module of your own, such as my_extensions:name",
            )
        try:
            module = import_module(module_name)
        except (Exception, SystemExit) as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == module_name
            raise ExtensionError(
                f"the {self.kind} {reference} can't be imported",
                why=f"there is no module {module_name}" if missing else _said(error),
                fix="install it where the job runs, or bring its file: --with FILE.py"
                if missing
                else f"python -c 'import {module_name}' shows where it fails",
            ) from error
        try:
            return attrgetter(path)(module)
        except AttributeError as error:
            close = get_close_matches(path, dir(module), n=1)
            raise ExtensionError(
                f"the {self.kind} {reference} does not exist",
                why=f"the module {module_name} has no {path or 'empty name'}"
                + (f"; did you mean {close[0]}?" if close else ""),
                fix="write module:attr, such as my_extensions:name",
            ) from error

    def _made(self, use: str, value: object, parameters: Mapping[str, object]) -> object:
        if not isinstance(value, type) and self._accepts(value):
            if not parameters:
                return value
            if (bind := getattr(value, "bind", None)) is not None:
                return self._called(use, bind, dict(parameters))
            if callable(value):
                self._check_parameters(use, value, parameters)
                return partial(value, **parameters)
        if callable(value):
            self._check_parameters(use, value, parameters)
            return self._called(use, value, **parameters)
        return value

    def _called(
        self, use: str, maker: Callable[..., object], *arguments: object, **parameters: object
    ) -> object:
        try:
            return maker(*arguments, **parameters)
        except (ExtensionError, PrerequisiteError):
            raise  # its message already says what to do
        except (Exception, SystemExit) as error:
            needed = f"; a {self.kind} is {self._expected}" if inspect.isfunction(maker) else ""
            raise ExtensionError(
                f"the {self.kind} {use} can't be made",
                why=_said(error),
                fix=f"check its parameters: {{use: …, with: {{…}}}}{needed}",
            ) from error

    def _check_parameters(
        self, use: str, maker: Callable[..., object], parameters: Mapping[str, object]
    ) -> None:
        signature = _signature(maker)
        if signature is None:
            return
        known = signature.parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()):
            return
        for name in parameters:
            if name in known and known[name].kind is not inspect.Parameter.POSITIONAL_ONLY:
                continue
            close = get_close_matches(name, known, n=1)
            raise ExtensionError(
                f"the {self.kind} {use} has no parameter {name}",
                why=f"did you mean {close[0]}?"
                if close
                else f"it has {', '.join(known) or 'none'}",
                fix="correct the names under `with`",
            )

    def _check_call(self, use: str, made: Callable[..., object]) -> None:
        try:
            if (signature := _signature(made)) is not None:
                signature.bind(None)
        except TypeError as error:
            raise ExtensionError(
                f"the {self.kind} {use} can't be called with one argument",
                why=str(error),
                fix="give its other parameters defaults, or values under `with`",
            ) from error


def import_file(path: Path) -> ModuleType:
    """Import a single Python file, once, as a module named after the file.

    A loaded module with that name and the same content, such as a copy sent with the job, counts as
    the same. Raises ExtensionError if the import fails or another module has the name.
    """
    name = path.stem
    is_name = name.isidentifier()
    known = importlib.util.find_spec(name) if is_name else None
    is_same = known is not None and known.origin and _same_content(Path(known.origin), path)
    if not is_name or (known is not None and not is_same):
        raise ExtensionError(
            f"{path.name} can't be imported under its name",
            why=f"there is already a module {name}" if is_name else f"{name} is no Python name",
            fix="rename the file, such as my_extensions.py",
        )
    try:
        return import_module(name) if is_same else _import_from(path)
    except (Exception, SystemExit) as error:
        raise ExtensionError(
            f"{path.name} can't be imported",
            why=_said(error, is_blamed=True),
            fix=getattr(error, "fix", "") or "correct this line",
        ) from error


def _import_from(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ExtensionError(f"{path} is no Python file", fix="name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _signature(value: Callable[..., object]) -> inspect.Signature | None:
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):  # callables written in C may have none
        return None


def _same_content(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other) or one.read_bytes() == other.read_bytes()
    except OSError:  # a built-in module's origin is not a path
        return False


def _own_name(value: object) -> str:
    for attribute in ("name", "__name__"):
        name = getattr(value, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(value).__name__


def _importable(value: object) -> str | None:
    """Return `module:attr` if any process can import the value, else None (as for `__main__`)."""
    module_name = getattr(value, "__module__", None)
    path = getattr(value, "__qualname__", None)
    if not isinstance(module_name, str) or not isinstance(path, str) or module_name == "__main__":
        return None
    try:
        found = attrgetter(path)(sys.modules[module_name])
    except (KeyError, AttributeError):
        return None
    return f"{module_name}:{path}" if found is value else None


def _same_definition(one: object, other: object) -> bool:
    def where(value: object) -> tuple[object, object]:
        return getattr(value, "__module__", None), getattr(value, "__qualname__", None)

    return one is other or (where(one) == where(other) and where(one)[1] is not None)


def _described(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _said(error: BaseException, *, is_blamed: bool = False) -> str:
    found = user_code(error, is_blamed=is_blamed)
    return f"{said(error)} ({found.where})" if found else said(error)
