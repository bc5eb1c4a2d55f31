"""Which changes of a patch take no part in its grading."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratios import cpu_ratio, growth
from swe_rollout.grading.build_files import is_build_file, steers
from swe_rollout.grading.steering import IMPORTED, RUNNER_FILES, Task
from swe_rollout.types.instance import LOG_PARSER_FAMILIES

TASK = Task(
    gold=frozenset({"src/pkg/a.py", "tox.ini"}),
    hidden=frozenset({"tests/sub/test_a.py"}),
    commands="python -m pytest tests/sub/test_a.py\n./bin/check --all",
)


def undone(*touched: str, task: Task = TASK) -> list[str]:
    return [each.path for each in task.undone(touched)]


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py",
        "src/conftest.py",
        "pytest.ini",
        "setup.cfg",
        "setup.py",
        "a/sitecustomize.py",
        "usercustomize.pyc",
        "x/y.pth",
        ".env",
        "pytest.env",
        "tests/sub/local.env",
        "pkg.egg-info/entry_points.txt",
        "jest.config.mjs",
        "packages/a/.babelrc",
        "src/test/resources/junit-platform.properties",
        ".mvn/maven.config",
        "app/build.gradle.kts",
        "gradle/wrapper/gradle-wrapper.properties",
        "build.rs",
        "crates/a/build.rs",
        ".cargo/config.toml",
        "go.work",
        ".mvn/extensions.xml",
        "buildSrc/src/main/groovy/a.groovy",
        "src/main/resources/META-INF/services/org.junit.platform.launcher.TestExecutionListener",
        "lib/minitest/quiet_plugin.rb",
        ".bundle/config",
        "bin/check",
        "src/pkg/b.so",
        "src/pkg/b.cpython-311-x86_64-linux-gnu.so",
        "src/pkg/__pycache__/b.cpython-311.pyc",
        "tests/sub/test_a.py",
        "tests/helper.py",
        "tests/__init__.py",
        "tests",
    ],
)
def test_what_steers_tests_or_is_compiled_goes_back(path: str) -> None:
    assert undone(path) == [path]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "src/pkg/a.py",
            "src/pkg/b.py",
            "tox.ini",
            "README.md",
            "src/build.rs",
            "crates/a/src/deep/build.rs",
            "src/config.toml",
            "testsuite.py",
            "src/pkg/tests.py",
            "spec/openapi.yaml",
            "lib/plugin.rb",
            "src/makefiles.py",
            "docs/phpunit.xml.md",
            "src/vite.configure.ts",
        ),
        *("src/pkg/default.env", "lib/production.env"),
    ],
)
def test_what_a_fix_may_change_stays(path: str) -> None:
    assert undone(path) == []


@pytest.mark.parametrize("family", LOG_PARSER_FAMILIES)
def test_the_files_of_every_runner_whose_logs_are_read_go_back_and_are_documented(
    family: str,
) -> None:
    """Whoever adds a parser says which files steer its runner."""
    page = (Path(__file__).parents[3] / "docs/explanation/grading.md").read_text()
    for name in RUNNER_FILES[family].split():
        path = f"packages/a/{name.replace('*', 'x.y')}"
        assert undone(path) == [path]
        assert f"`{name}`" in page


@pytest.mark.parametrize(
    ("hidden", "touched", "found"),
    [
        ("calc/calc_test.go", "calc/main_test.go", ["calc/main_test.go"]),
        ("calc_test.go", "main_test.go", ["main_test.go"]),
        ("calc/calc_test.go", "other/main_test.go", []),
        ("calc/calc_test.go", "calc/testing.go", []),
        ("src/a.test.ts", "src/b.spec.tsx", ["src/b.spec.tsx"]),
        ("src/a.test.ts", "src/latest.ts", []),
    ],
)
def test_test_files_among_sources_go_back_beside_graded_ones(
    hidden: str, touched: str, found: list[str]
) -> None:
    """In Go, they are one program: another file's TestMain or init would run first."""
    assert undone(touched, task=Task(frozenset(), frozenset({hidden}), "go test ./...")) == found


def test_a_package_beside_a_hidden_test_goes_as_a_whole() -> None:
    task = Task(frozenset(), frozenset({"pkg/test_b.py"}), "pytest")
    assert undone("pkg/test_b/__init__.py", "pkg/test_b/more.py", task=task) == ["pkg/test_b"] * 2


def test_a_folder_that_holds_the_fix_is_no_folder_of_tests() -> None:
    task = Task(
        frozenset({"numpy/testing/utils.py"}),
        frozenset({"numpy/testing/tests/test_utils.py"}),
        "pytest",
    )
    touched = ("numpy/testing/utils.py", "numpy/testing/more.py", "numpy/testing/tests/x.py")
    assert undone(*touched, task=task) == ["numpy/testing/tests/x.py"]


@pytest.mark.parametrize(
    ("hidden", "touched", "found"),
    [
        ("lib/testing/tests/test_a.py", "lib/testing/helpers.py", []),
        ("lib/testing/tests/test_a.py", "lib/testing/tests/util.py", ["lib/testing/tests/util.py"]),
        ("testing/test_a.py", "testing/util.py", ["testing/util.py"]),
        ("tests/unit/testing/test_a.py", "tests/util.py", ["tests/util.py"]),
        ("src/a/__tests__/b.test.js", "src/a/__tests__/setup.js", ["src/a/__tests__/setup.js"]),
        ("spec/models/a_spec.rb", "spec/support/quiet.rb", ["spec/support/quiet.rb"]),
        ("features/a.feature", "features/support/env.rb", ["features/support/env.rb"]),
        ("features/tests/test_a.py", "features/flags.py", []),
        ("src/features/a/a.test.js", "src/features/a/a.js", []),
    ],
)
def test_a_package_that_helps_tests_is_no_folder_of_tests(
    hidden: str, touched: str, found: list[str]
) -> None:
    assert undone(touched, task=Task(frozenset(), frozenset({hidden}), "pytest")) == found


def test_folders_of_tests_of_the_command_and_the_root_are_searched_for_modules() -> None:
    touched = ("json.py", "tests/sub/json.py", "bin/check/json.py", "src/json.py", "a\tb/json.py")
    task = Task(frozenset(), TASK.hidden, "PYTHONPATH=bin/check pytest")
    found = {each.path: each.is_searched for each in task.shadows(touched)}
    assert found == {
        "json.py": True,
        "tests/sub/json.py": True,
        "bin/check/json.py": True,
        "src/json.py": False,
    }


def test_modules_that_may_stand_in_for_others_are_named_with_their_folders() -> None:
    touched = ("pytest.py", "src/json/__init__.py", "src/pkg/a.py", "a/pluggy.abi3.so", "x.txt")
    found = {(each.folder, each.name, each.path) for each in TASK.shadows(touched)}
    assert found == {
        ("", "pytest", "pytest.py"),
        ("src", "json", "src/json"),
        ("a", "pluggy", "a/pluggy.abi3.so"),
    }


def test_names_of_runners_and_of_the_standard_library_are_known() -> None:
    assert {"pytest", "pluggy", "json", "difflib", "sitecustomize"} <= IMPORTED
    assert "semver" not in IMPORTED


POM = "<project xmlns='http://maven.apache.org/POM/4.0.0'>{}</project>"


@pytest.mark.parametrize(
    ("path", "before", "after", "steering"),
    [
        ("package.json", '{"scripts": {"test": "a"}}', '{"scripts": {"test": "b"}}', True),
        ("a/package.json", "", '{"jest": {}}', True),
        ("package.json", '{"jest": {}, "version": "1"}', '{"version": "2", "jest": {}}', False),
        ("package.json", "{}", '{"dependencies": {"a": "1"}, "exports": "./a.js"}', False),
        ("package.json", '{"name": "a"}', "", False),
        ("package.json", "{}", "[]", True),
        ("package.json", "{}", "{", True),
        ("package.json", "{}", "[" * 100_000, True),
        ("package.json", "{}", '{"version": 1' + "0" * 10_000 + "}", True),
        ("package.json", "{}", None, True),
        ("composer.json", "{}", '{"require": {"a": "1"}, "autoload": {}}', False),
        ("composer.json", "{}", '{"scripts": {"test": "true"}}', True),
        ("Cargo.toml", '[package]\nname = "a"', '[package]\nname = "a"\nversion = "2"', False),
        ("Cargo.toml", "", '[features]\na = []\n[dependencies]\nb = "1"', False),
        ("Cargo.toml", '[package]\nname = "a"', '[package]\nname = "a"\nbuild = "b.rs"', True),
        ("Cargo.toml", "", "[profile.test]\ndebug-assertions = false", True),
        ("Cargo.toml", "", "[[test]]\nname = 'a'\nharness = false", True),
        ("go.mod", "module a\ngo 1.18", "module a\n\ngo 1.22\nrequire b v1 // c", False),
        ("go.mod", "module a", "module a\nrequire (\n b v1\n c v2\n)\n", False),
        ("go.mod", "module a", "module a\nreplace b => ./b", True),
        ("go.mod", "module a\ngo 1.18", "module a\ngo 1.21rc1\ntoolchain go1.22.1", False),
        ("go.mod", "module a", "module a\nrequire(\nb v1 // (c)\n)\nreplace b => c v1", True),
        ("go.mod", "module a", "module a\nreplace (\n b => ./b\n)", True),
        ("go.mod", 'replace a => "b//c"', 'replace a => "b//d"', True),
        ("go.mod", "replace (\na => b\n)", "exclude (\na => b\n)", True),
        ("Cargo.toml", "[workspace]", '[workspace]\npackage.version = "2"', False),
        ("Cargo.toml", "[workspace]", '[workspace.dependencies]\na = "1"', False),
        ("Cargo.toml", "[workspace]", '[workspace]\nmembers = ["a"]', True),
        ("Cargo.toml", "", "[workspace]", True),
        ("package.json", "{}", '{"overrides": {"a": "1"}, "packageManager": "npm@9"}', False),
        ("pom.xml", POM.format("<version>1</version>"), POM.format("<dependencies/>\n"), False),
        ("pom.xml", POM.format(""), POM.format("<build><plugins/></build>"), True),
        ("pom.xml", POM.format("<!-- a -->"), POM.format("<!-- b --><scm/>"), False),
        ("pom.xml", POM.format(""), "<!DOCTYPE a [<!ENTITY b 'c'>]>" + POM.format("&b;"), True),
        (
            "pom.xml",
            POM.format(""),
            "<?a <!-- ?><!DOCTYPE a [<!ENTITY b 'c'>]><?a --> ?>" + POM.format("<scm>&b;</scm>"),
            True,
        ),
        ("pom.xml", POM.format(""), "<a>" * 50_000, True),
        ("pom.xml", POM.format(""), POM.format("<a>" * 50_000 + "</a>" * 50_000), True),
    ],
)
def test_a_build_file_may_say_more_about_its_package(
    path: str, before: str | None, after: str | None, *, steering: bool
) -> None:
    assert is_build_file(path)
    assert steers(path, before, after) is steering


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("go.mod", "\n" * 400_000),
        ("go.mod", "require (\n" * 100_000),
        ("pom.xml", "<!--" * 250_000),
        ("Cargo.toml", ".".join("a" * 400_000) + " = 1"),
    ],
)
def test_a_huge_build_file_is_read_once(path: str, after: str) -> None:
    """Each took minutes to hours."""
    assert steers(path, "", after) is (path != "go.mod")


def test_commands_and_folders_are_read_once_for_any_number_of_paths() -> None:
    paths = [f"src/pkg/m{number}.py" for number in range(400)]
    hidden = frozenset(f"tests/a{number}/test.txt" for number in range(200))
    script = "echo a b c\n" * 2_000

    def look(hidden: frozenset[str], commands: str) -> None:
        task = Task(TASK.gold, hidden, commands)
        assert not task.undone(paths)
        assert len(task.shadows(paths)) == len(paths)

    assert cpu_ratio(lambda: look(hidden, script), lambda: look(frozenset(), "")) < 20


def test_many_changes_are_not_compared_with_all_files_of_a_task() -> None:
    def look(count: int) -> None:
        hidden = frozenset(f"tests/a{number}/test_a.py" for number in range(count))
        task = Task(frozenset(f"src/m{number}.py" for number in range(count)), hidden, "pytest")
        paths = [f"lib/m{number}.py" for number in range(count)]
        assert not task.undone(paths)
        assert len(task.shadows(paths)) == count

    assert growth(look, 1_000, 4_000) < 3


def test_a_path_that_no_file_can_have_costs_nothing() -> None:
    """It took gigabytes and minutes."""

    def look(count: int) -> None:
        path = "test/" * count + "a.py"
        assert undone("a/b.env", task=Task(frozenset({path}), frozenset({path}), "")) == []

    assert growth(look, 4_000, 16_000) < 3
