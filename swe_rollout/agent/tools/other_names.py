"""Tools under the names that policies of other systems know them by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from swe_rollout.agent.tools.base import Tool
from swe_rollout.agent.tools.editor import FileEditor, StrReplaceEditor
from swe_rollout.agent.tools.executor import BashExecutor
from swe_rollout.agent.tools.offered import Offered
from swe_rollout.agent.tools.search import Search
from swe_rollout.agent.tools.submit import Submit


def _named(name: str, make: Callable[..., Tool], **parameters: object) -> Tool:
    return Offered(make(**parameters), name=name)


k8s_bash_executor = partial(_named, "k8s_bash_executor", BashExecutor)
k8s_file_editor = partial(_named, "k8s_file_editor", FileEditor)
k8s_search = partial(_named, "k8s_search", Search)
r2e_file_editor = partial(_named, "r2e_file_editor", FileEditor)
r2e_str_replace_editor = partial(_named, "r2e_str_replace_editor", StrReplaceEditor)
r2e_submit = partial(_named, "r2e_submit", Submit)
