"""Put extensions that a program passes as objects into a job's spec, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypedDict, TypeVar

from swe_rollout.agent.program import AGENTS
from swe_rollout.agent.tools import TOOLS
from swe_rollout.datasets import DATASETS
from swe_rollout.engine.chat.function import CHAT_ENGINES
from swe_rollout.errors import UsageError
from swe_rollout.extension import ExtensionError, ExtensionPoint
from swe_rollout.grading.parsers import LOG_PARSERS
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.spec.agent import AgentSpec, ToolUse
from swe_rollout.spec.dataset import Dataset
from swe_rollout.spec.grading import RewardUse
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.model import REFERENCE, Use
from swe_rollout.spec.policy import Policy
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.worker.engines import ENGINES
from swe_rollout.worker.sandboxes import SANDBOXES

T = TypeVar("T")
U = TypeVar("U", bound=Use)
_POINTS: Final[Mapping[str, tuple[str, ExtensionPoint[Any]]]] = {
    "agent.use": ("agent", AGENTS),
    "agent.tools": ("tool", TOOLS),
    "grading.reward": ("reward term", REWARD_TERMS),
    "grading.reward.with.chat": ("judge", CHAT_ENGINES),
    "grading.logParser": ("log parser", LOG_PARSERS),
    "dataset.source": ("dataset source", DATASETS),
    "policy.engine": ("engine", ENGINES),
    "policy.chat": ("chat engine", CHAT_ENGINES),
}
"""Fields whose extensions a worker must find, by their names in `extension_names`."""


class Extensions(TypedDict, total=False):
    """The arguments of `RolloutJob.from_yaml` for extensions, given as objects or by name.

    None means that an argument is not given.
    """

    agent: object
    chat: object
    """An async function that responds to a conversation, or a ChatEngine."""
    dataset: object
    engine: object
    log_parser: object
    reward: object
    """A reward term, or a sequence of terms."""
    sandbox: object
    tools: Sequence[object]
    """Tools offered in addition to the file's."""


def bring(job: RolloutJob, given: Extensions) -> RolloutJob:
    """Name the extensions in the spec: tools are added to the file's, others replace the field.

    Raises ExtensionError if a name is taken, TypeError for an unknown argument.
    """
    for unknown in given.keys() - Extensions.__annotations__.keys():
        close = get_close_matches(unknown, Extensions.__annotations__, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise TypeError(f"from_yaml() got an unexpected keyword argument {unknown!r}{hint}")
    spec, changed = job.spec, dict[str, object]()
    agent, grading = dict[str, object](), dict[str, object]()
    own = spec.agent
    if (program := given.get("agent")) is not None:
        found = _use(AGENTS, Use, program)
        # Fields that the file left unset now take this agent's defaults.
        said = {name: getattr(own, name) for name in own.model_fields_set}
        own = AgentSpec.model_validate({**said, "use": found.use, "with_": found.with_})
    if tools := given.get("tools"):
        agent["tools"] = (*own.tools, *_tools(tools))
    changed["agent"] = own.model_copy(update=agent)
    if (dataset := given.get("dataset")) is not None:
        kept = spec.dataset.model_dump(
            include={"include", "exclude", "slice", "quarantine", "skip_bad_rows"}
        )
        changed["dataset"] = Dataset(source=_use(DATASETS, Use, dataset), **kept)
    if (engine := given.get("engine")) is not None:
        same = {"tokenizer", "chat_template_kwargs", "template_date"}
        kept = spec.policy.model_dump(include=same)
        changed["policy"] = Policy(engine=_use(ENGINES, Use, engine), **kept)
    if (chat := given.get("chat")) is not None:
        changed["policy"] = Policy(chat=_use(CHAT_ENGINES, Use, chat))
    if (sandbox := given.get("sandbox")) is not None:
        changed["sandbox"] = SandboxSpec(backend=_use(SANDBOXES, Use, sandbox))
    if (reward := given.get("reward")) is not None:
        terms = reward if isinstance(reward, (list, tuple)) else (reward,)
        grading["reward"] = tuple(_use(REWARD_TERMS, RewardUse, each) for each in terms)
    if (log_parser := given.get("log_parser")) is not None:
        grading["log_parser"] = _use(LOG_PARSERS, Use, log_parser)
    changed |= {"grading": spec.grading.model_copy(update=grading)} if grading else {}
    return job.with_spec(**changed)


def _tools(given: Sequence[object]) -> list[ToolUse]:
    if isinstance(given, str):
        raise UsageError(
            "tools are no list", why="one text was given", fix=f"put it into a list: [{given!r}]"
        )
    return [_use(TOOLS, ToolUse, each) for each in given]


def require_shippable(job: RolloutJob) -> None:
    """Raise UsageError for an extension that exists only in this process, not in workers."""
    for field, use in job.spec.extension_names():
        found = _POINTS.get(re.sub(r"\[\d+\]", "", field))
        if found is not None and found[1].is_local(use):
            raise UsageError(
                f"the {found[0]} {use} exists in this process alone",
                why="a worker on the cluster imports extensions by name",
                fix="define it in a file such as my_extensions.py, import it from there, and "
                'launch with files=["my_extensions.py"], or install it in the workers\' image',
            )


def _use(point: ExtensionPoint[T], kind: type[U], value: object) -> U:
    if isinstance(value, kind):
        return value
    if not (isinstance(value, str) or callable(value) or hasattr(value, "spec")):
        raise ExtensionError(
            f"{value!r:.60} is no {point.kind}",
            why=f"it is of the type {type(value).__name__}",
            fix="give a function, an object or a name (docs/how-to/extend.md)",
        )
    name = point.reference(value)
    if not re.match(REFERENCE, name):
        raise ExtensionError(
            f"the {point.kind} {name} has no name to call it by",
            why="a job names its extensions, so that a worker finds them; a lambda has no name",
            fix="define it by `def` at the top of a module",
        )
    return kind(use=name)
