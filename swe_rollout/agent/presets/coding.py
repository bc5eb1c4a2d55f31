"""`coding`: phases from understanding to refinement, with guidance and a summary between them."""

from __future__ import annotations

import re
from enum import Enum, StrEnum, auto
from typing import Final

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.presets.rounds import Behind, Count, Preset, Rules
from swe_rollout.agent.sampled_turn import SampledTurn
from swe_rollout.types.episode import StopReason
from swe_rollout.types.turn import Observation, ToolCall

_SHOWN = 10


class Work(Enum):
    """The kind of work a call does on code. Only guidance and counts depend on it."""

    VIEW = auto()
    SEARCH = auto()
    EDIT = auto()
    TEST = auto()
    COMMAND = auto()
    OTHER = auto()


_BY_NAME: Final = {
    **dict.fromkeys(("view_file", "k8s_file_read", "Read"), Work.VIEW),
    **dict.fromkeys(
        ("search", "search_code", "search_files", "k8s_search", "r2e_search", "Grep", "Glob"),
        Work.SEARCH,
    ),
    **dict.fromkeys(
        ("edit_file", "create_file", "k8s_file_edit", "Replace", "Edit", "Write"), Work.EDIT
    ),
    "run_tests": Work.TEST,
}
_EDITORS: Final = {
    "view": Work.VIEW,
    **dict.fromkeys(("create", "str_replace", "insert", "undo_edit"), Work.EDIT),
}
_TESTS: Final = re.compile(
    r"(?:^|[\s;&|/(])(?:pytest|py\.test|unittest|tox|nox|runtests\.py|ctest"
    r"|(?:bin|make|npm|go|cargo)[ /](?:run )?test)\b"
)
_EDITS: Final = re.compile(r"(?:^|[\s;&|(])(?:git apply|patch -|sed -i|git am)\b")


def work_of(call: ToolCall) -> Work:
    """Return the kind of work of a call, judging by its tool's name and its arguments.

    The effect of a shell command can't be known.
    """
    if (named := _BY_NAME.get(call.name)) is not None:
        return named
    command = call.arguments.get("command", call.arguments.get("cmd"))
    if not isinstance(command, str):
        return Work.OTHER
    if "path" in call.arguments:
        return _EDITORS.get(command, Work.OTHER)
    if _EDITS.search(command):
        return Work.EDIT
    return Work.TEST if _TESTS.search(command) else Work.COMMAND


class Phase(StrEnum):
    """What a coding agent is doing."""

    UNDERSTANDING = "understanding"
    EXPLORATION = "exploration"
    PLANNING = "planning"
    IMPLEMENTATION = "implementation"
    TESTING = "testing"
    REFINEMENT = "refinement"


_GUIDANCE: Final = {
    Phase.UNDERSTANDING: "Say in your own words what is asked for, and what would show it is done.",
    Phase.EXPLORATION: "Find the code that the task is about, and what depends on it.",
    Phase.PLANNING: "Name the files to change, what changes in each, and how you will test it.",
    Phase.IMPLEMENTATION: "Make the smallest change that does it, in the style of the code.",
    Phase.TESTING: "Run the tests near the change, and inputs at the edges.",
    Phase.REFINEMENT: "Find out from the failure what is wrong before you change code again.",
}
_NAMED = re.compile(rf"^Phase:[ \t]*({'|'.join(Phase)})\b", re.MULTILINE | re.IGNORECASE)


class Coding(Preset):
    """Work on code in phases."""

    max_files_to_explore: Count = 20
    """Maximum number of different files to view; views of further files are refused."""
    max_search_results: Count = 10
    """Maximum `max_results` of a search."""
    enable_bash_execution: bool = True
    """Whether to run shell commands."""
    test_after_changes: bool = True
    """Refuse, once, to submit changes that no test run has covered."""
    max_implementation_attempts: Count = 3
    """Maximum failed test runs after changes; the last one ends the episode (`turn_limit`)."""
    max_errors: Count = 5
    """Maximum consecutive tool errors; the last one ends the episode (`format_errors`)."""
    stop_when_tests_pass: bool = False
    """End the episode (`finished`) at the first test run after a change that passes."""

    @property
    def messages(self) -> frozenset[Behind]:
        return frozenset({Behind.CALLS})

    def rules(self, context: AgentContext) -> Rules:
        return _Rules(context, self)


class _Rules(Rules):
    def __init__(self, context: AgentContext, options: Coding) -> None:
        super().__init__(context)
        self._options = options
        self._phase = self._told = Phase.UNDERSTANDING
        self._viewed = dict[str, None]()
        self._changed = dict[str, None]()
        self._untested = False
        self._was_asked_to_test = False
        self._runs = self._attempts = self._errors = 0

    def refusal(self, turn: SampledTurn, index: int) -> str:
        call, options = turn.calls[index], self._options
        match work_of(call):
            case Work.VIEW if (
                _path(call) not in self._viewed
                and len(self._viewed) >= options.max_files_to_explore
            ):
                return f"{options.max_files_to_explore} files were viewed; go on with those"
            case Work.SEARCH if _asks_for(call) > options.max_search_results:
                return f"max_results may be {options.max_search_results} at most"
            case Work.COMMAND | Work.TEST if (
                not options.enable_bash_execution and "command" in call.arguments
            ):
                return "no commands are run here"
        needs_test = (
            options.test_after_changes
            and self._untested
            and not self._was_asked_to_test
            and self.context.parts.toolbox.ends_episode(call)
        )
        if needs_test:
            self._was_asked_to_test = True
            return "run the tests near your change first, then hand it in again"
        return ""

    def observed(self, call: ToolCall, observation: Observation) -> None:
        is_error = observation.text.startswith("error:")
        self._errors = self._errors + 1 if is_error else 0
        if self._errors >= self._options.max_errors:
            self.end = StopReason.FORMAT_ERRORS
        if is_error:
            return
        match work_of(call):
            case Work.VIEW | Work.SEARCH as work:
                if work is Work.VIEW:
                    self._viewed[_path(call)] = None
                if self._phase is Phase.UNDERSTANDING:
                    self._phase = Phase.EXPLORATION
            case Work.EDIT:
                self._changed[_path(call)] = None
                self._untested, self._was_asked_to_test = True, False
                late = self._phase in (Phase.TESTING, Phase.REFINEMENT)
                self._phase = Phase.REFINEMENT if late else Phase.IMPLEMENTATION
            case Work.TEST:
                self._tested(has_passed=observation.exit_code == 0)

    def _tested(self, *, has_passed: bool) -> None:
        was_changed, self._untested = bool(self._changed), False
        self._runs += 1
        self._phase = Phase.TESTING if has_passed else Phase.REFINEMENT
        if not was_changed:
            self._phase = Phase.EXPLORATION
        elif not has_passed:
            self._attempts += 1
            if self._attempts >= self._options.max_implementation_attempts:
                self.end = StopReason.TURN_LIMIT
        elif self._options.stop_when_tests_pass:
            self.end = StopReason.FINISHED

    def between(self, turn: SampledTurn, rounds: int) -> str:
        del rounds
        if named := _NAMED.search(turn.words):
            self._phase = Phase(named[1].lower())
        if self._phase is self._told:
            return ""
        self._told = self._phase
        options = self._options
        return (
            f"Phase: {self._phase}. {_GUIDANCE[self._phase]}\n"
            f"So far: {len(self._viewed)} of {options.max_files_to_explore} files viewed; "
            f"changed: {_listed(self._changed)}; {self._runs} test runs, {self._attempts} of "
            f"{options.max_implementation_attempts} attempts failed."
        )


def _path(call: ToolCall) -> str:
    found = call.arguments.get("path", call.arguments.get("file_path", ""))
    return found if isinstance(found, str) else ""


def _asks_for(call: ToolCall) -> int:
    wanted = call.arguments.get("max_results", 0)
    return wanted if isinstance(wanted, int) else 0


def _listed(paths: dict[str, None]) -> str:
    shown = ", ".join(path[:120] for path in list(paths)[-_SHOWN:])
    return shown + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "") or "nothing"
