"""The extension door: every way to name an extension, and every way to get it wrong."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from swe_rollout import extension
from swe_rollout.extension import ExtensionError, ExtensionPoint, import_file


class Greeter:
    """Something that greets."""

    def __init__(self, greeting: str = "hello", *, loud: bool = False) -> None:
        self.greeting = greeting.upper() if loud else greeting


def german() -> Greeter:
    return Greeter("hallo")


def spoken(greeting: str, *, times: int = 1) -> str:
    return greeting * times


@pytest.fixture
def point() -> ExtensionPoint[Greeter]:
    return ExtensionPoint(
        "greeter",
        group="swe_rollout.test_greeters",
        accepts=lambda value: isinstance(value, Greeter),
        expected="a Greeter",
        builtin={"plain": f"{__name__}:Greeter", "german": f"{__name__}:german"},
    )


@pytest.fixture
def functions() -> ExtensionPoint[object]:
    return ExtensionPoint(
        "function", group="swe_rollout.none", accepts=callable, expected="a function", builtin={}
    )


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Greeter.__module__])


def test_a_built_in_name_makes_its_class_with_parameters(point: ExtensionPoint[Greeter]) -> None:
    assert point.load("plain").greeting == "hello"
    assert point.load("plain", {"greeting": "hi", "loud": True}).greeting == "HI"


def test_a_factory_function_is_called(point: ExtensionPoint[Greeter]) -> None:
    assert point.load("german").greeting == "hallo"


def test_module_and_attribute_name_anything_importable(point: ExtensionPoint[Greeter]) -> None:
    assert point.load(f"{__name__}:Greeter").greeting == "hello"


def test_parameters_of_a_function_are_bound(functions: ExtensionPoint[object]) -> None:
    bound = functions.load(f"{__name__}:spoken", {"times": 2})

    assert callable(bound)
    assert bound("ho") == "hoho"


def test_an_entry_point_is_found_by_its_name(
    point: ExtensionPoint[Greeter], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("installed", f"{__name__}:german", "swe_rollout.test_greeters")
    monkeypatch.setattr(extension, "entry_points", lambda group: EntryPoints([entry]))  # noqa: ARG005

    assert point.load("installed").greeting == "hallo"
    assert "installed" in point.names()


def test_a_registered_name_is_found(point: ExtensionPoint[Greeter]) -> None:
    @point.register
    class Loud(Greeter): ...

    @point.register("quiet")
    class Quiet(Greeter): ...

    assert isinstance(point.load("Loud"), Loud)
    assert isinstance(point.load("quiet"), Quiet)
    assert {"Loud", "quiet", "plain"} <= set(point.names())


def test_an_unknown_name_is_refused_with_what_exists(point: ExtensionPoint[Greeter]) -> None:
    with pytest.raises(ExtensionError, match="no greeter named plian") as refused:
        point.load("plian")

    assert "did you mean plain?" in refused.value.why
    assert "german, plain" in refused.value.why


@pytest.mark.parametrize(
    ("use", "parameters", "expected"),
    [
        ("no_such_module_here:x", {}, "there is no module no_such_module_here"),
        (f"{__name__}:Greter", {}, "did you mean Greeter?"),
        (f"{__name__}:", {}, "no empty name"),
        ("plain", {"greting": "x"}, "did you mean greeting?"),
        ("german", {"loud": True}, "it has none"),
        (f"{__name__}:spoken", {"greeting": "x"}, "a str; a greeter is a Greeter"),
        ("plain", {"greeting": 5, "loud": True}, "AttributeError"),
        ("numpy:linalg", {}, "a module; a greeter is a Greeter"),
        ("os:system", {"command": "true"}, "os belongs to Python's standard library"),
        ("os.path:join", {}, "os.path belongs to Python's standard library"),
        ("builtins:eval", {}, "standard library"),
    ],
)
def test_what_can_not_be_used_says_why(
    point: ExtensionPoint[Greeter], use: str, parameters: dict[str, object], expected: str
) -> None:
    with pytest.raises(ExtensionError) as refused:
        point.load(use, parameters)

    assert expected in refused.value.why
    assert refused.value.fix


def test_a_module_that_fails_to_import_says_how(
    point: ExtensionPoint[Greeter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_greeter.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ExtensionError) as refused:
        point.load("broken_greeter:x")

    assert refused.value.why == (
        "RuntimeError: not today (broken_greeter.py:1: raise RuntimeError('not today'))"
    )


def test_a_name_belongs_to_one_definition(point: ExtensionPoint[Greeter]) -> None:
    point.register("mine")(german)
    point.register("mine")(german)

    with pytest.raises(ExtensionError, match="already a greeter named mine"):
        point.register("mine")(spoken)
    with pytest.raises(ExtensionError, match="already a greeter named plain"):
        point.register("plain")(german)


def test_an_importable_object_is_named_by_its_module(point: ExtensionPoint[Greeter]) -> None:
    reference = point.reference(german)

    assert reference == f"{german.__module__}:german"
    assert not point.is_local(reference)


def test_an_object_of_this_process_alone_is_known_as_such(point: ExtensionPoint[Greeter]) -> None:
    def inner() -> Greeter:
        return Greeter("inside")

    reference = point.reference(inner)

    assert (reference, point.is_local(reference)) == ("inner", True)
    assert point.load(reference).greeting == "inside"
    assert point.reference(inner) == "inner"
    assert not point.is_local("plain")


def test_a_file_is_imported_once_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my_greeters_file.py"
    path.write_text("count = 0\n")
    monkeypatch.delitem(sys.modules, "my_greeters_file", raising=False)

    first = import_file(path)
    first.__dict__["count"] = 1

    assert import_file(path) is first
    copy = tmp_path / "elsewhere" / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    assert import_file(copy) is first
    assert sys.modules["my_greeters_file"].__dict__["count"] == 1
    del sys.modules["my_greeters_file"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("json.py", "", "already a module json"),
        ("not-a-name.py", "", "no Python name"),
        ("my_broken_file.py", "1 / 0", "ZeroDivisionError"),
        ("my_open_file.py", "def f(:", "SyntaxError"),
    ],
)
def test_a_file_that_can_not_be_imported_says_why(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(ExtensionError) as refused:
        import_file(path)

    assert expected in refused.value.why
    assert path.stem == "json" or path.stem not in sys.modules


def test_a_value_that_lacks_arguments_is_refused_where_it_is_called_with_one() -> None:
    point: ExtensionPoint[object] = ExtensionPoint(
        "function",
        group="swe_rollout.none",
        accepts=callable,
        expected="a function",
        builtin={"repeat": f"{__name__}:repeat"},
        one_argument=True,
    )
    with pytest.raises(ExtensionError, match="repeat can't be called with one argument: missing"):
        point.load("repeat")
    assert callable(point.load("repeat", {"times": 2}))


def repeat(text: str, *, times: int) -> str:
    return text * times
