"""The names and ids of the policy's calls, as chat templates are given them.

A name or an id that is no plain word is never rendered, and a template may refuse others: those of
Mistral raise for an id that has not nine characters. `named_forms` lists what to render instead.
The sampled tokens hold what the policy wrote, whatever stands here. Used by `template` and
`renderer`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from swe_rollout.agent.dialect import Dialect
    from swe_rollout.agent.tools.base import ToolSpec
    from swe_rollout.turn import ToolCall


def name_of(call: ToolCall) -> str:
    """Return the name of a call in a form with which the policy can't forge a token."""
    return call.name if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", call.name) else "invalid"


def id_of(call: ToolCall, index: int, dialect: Dialect) -> str:
    """Return the id of a call: the policy's own where it gave a plain one."""
    if re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", call.id):
        return call.id
    return dialect.call_id.format(name=name_of(call), index=index)


def named_forms(
    calls: Sequence[ToolCall], tools: Sequence[ToolSpec], dialect: Dialect
) -> list[list[ToolCall]]:
    """Return the calls without arguments: as the policy named them, with ids of ours, with names of
    tools too.

    The last form has nothing of the policy's own but the number of calls, so a template that passed
    its probe renders it. A form that is equal to a later one is left out.
    """
    bare = [replace(call, name=name_of(call), arguments={}) for call in calls]
    known = {tool.name for tool in tools}
    some = tools[0].name if tools else "invalid"
    tamed = [call if call.name in known else replace(call, name=some) for call in bare]
    forms = [
        [replace(call, id=id_of(call, index, dialect)) for index, call in enumerate(bare)],
        _with_our_ids(bare, dialect),
        _with_our_ids(tamed, dialect),
    ]
    written = [[(call.name, call.id) for call in form] for form in forms]
    return [form for at, form in enumerate(forms) if written[at] not in written[at + 1 :]]


def _with_our_ids(calls: Sequence[ToolCall], dialect: Dialect) -> list[ToolCall]:
    nameless = [replace(call, id="") for call in calls]
    return [replace(call, id=id_of(call, index, dialect)) for index, call in enumerate(nameless)]
