"""Compaction: replace a long history by the policy's own summary of it.

The request for a summary is a user message, and the summary a turn like any other, trained on in
the branch that it ends. The next branch begins with the first prompt and the summary, with mask 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.spec.limits import Limits
from swe_rollout.tokens.log import TokenLog

REQUEST = """\
There is little room left in this conversation. It ends here, and you go on in a new one that \
holds the task and what you write now, nothing else. Call no tool in this turn. Write down what \
you need to go on:
- what you found out, with the paths and names that matter;
- which files you changed, and how;
- commands that worked, and attempts that failed and why;
- what is left to do, in order."""
_NOTES = """\


You have worked on this before. These are your notes from then; what you changed in the files is \
still there. Go on from here.

<notes>
{summary}
</notes>"""


def with_summary(first: Sequence[Message], summary: str) -> tuple[Message, ...]:
    """Return the first messages of a branch, the last of the user's followed by a summary.

    One message, because many templates take no second one of the user's. The summary is the
    policy's text: like a dataset row's, it can't forge control tokens.
    """
    notes = _NOTES.replace("{summary}", summary or "(none)")
    users = [at for at, message in enumerate(first) if message.role is MessageRole.USER]
    if not users:
        return (*first, Message(MessageRole.USER, notes.lstrip()))
    changed = replace(first[users[-1]], content=first[users[-1]].content + notes)
    return (*first[: users[-1]], changed, *first[users[-1] + 1 :])


def is_due(log: TokenLog, more: int, limits: Limits) -> bool:
    """Whether a log that grows by `more` tokens is beyond `limits.compactAt`.

    Never while most of it is the prompt: that would be there again.
    """
    if limits.compact_at_tokens is None:
        return False
    prompt = log.segments[0].end
    return len(log) + more > limits.compact_at_tokens >= prompt
