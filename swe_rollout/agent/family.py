"""Families: facts about the chat grammars of models, before a template is probed.

They say which tokens identify a family, which tokens end a turn, and what the template writes after
them. `agent.template_probe` checks each fact against the template itself. The grammar of a model
that belongs to no family here is derived from its template alone, or refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.spec.tool_format import ToolFormat

_THINK: Final = Reasoning()


@dataclass(frozen=True, slots=True)
class Family:
    """One chat grammar."""

    name: str
    needs: tuple[str, ...]
    """Tokens that must all be in the vocabulary."""
    end: str
    """The token that the policy samples at the end of a turn with calls."""
    formats: tuple[ToolFormat, ...]
    """The formats of its calls."""
    after: str = ""
    """The template's text after the end, which the policy does not sample."""
    other_ends: tuple[str, ...] = ()
    """Further tokens that end a turn; they are kept, and nothing is added after them."""
    end_is_header: bool = False
    """Whether the end is also the next header, and so is written only once."""
    cut_end: str | None = None
    """The text that closes a truncated turn; by default `end` and `after`."""
    reasoning: Reasoning = _THINK
    reasoning_end: str = "\n</think>\n\n"
    """The text that closes truncated reasoning."""
    has_one_round: bool = False
    """Whether its templates are only correct up to the second turn with calls; later deltas then
    have the form of the first."""
    moves_system: bool = False
    """Whether its templates may write the system message only while the task is the last message.
    The prompt stays as it was sent."""
    tools_text: Callable[[Sequence[ToolSpec]], str] | None = None
    """Describes tools in the system message as the vendor does, if its template does not."""
    is_guess: bool = False
    """Whether its end is only guessed, from a token between a call and its result."""
    call_id: str = "call{index:05}"
    """Format string over `name` and `index` for the id of a call without one. Nine letters and
    digits is the only form that every template accepts."""


def _deepseek_tools(tools: Sequence[ToolSpec]) -> str:
    written = "\n\n".join(
        f"### {tool.name}\nDescription: {tool.description}\n\n"
        f"Parameters: {json.dumps(tool.arguments.schema, ensure_ascii=False)}"
        for tool in tools
    )
    return (
        f"\n\n## Tools\nYou have access to the following tools:\n\n{written}\n\n"
        "IMPORTANT: ALWAYS adhere to this exact format for tool use:\n{example}\n\n"
        "Where the name is one of the tools above, and the arguments are one JSON object that "
        "fits its parameters. Several calls follow one another without separators."
    )


FAMILIES: Final = (
    Family(
        "harmony",
        ("<|start|>", "<|channel|>", "<|message|>", "<|call|>"),
        "<|call|>",
        (ToolFormat.HARMONY,),
        other_ends=("<|return|>",),
        cut_end="<|end|>",
        # Channels mark the reasoning; the parser reads them.
        reasoning=Reasoning(
            "<|channel|>analysis<|message|>",
            "<|end|>",
            headers=frozenset({"<|start|>", "<|channel|>", "<|constrain|>"}),
            header_ends=frozenset({"<|channel|>", "<|constrain|>", "<|message|>"}),
        ),
        reasoning_end="",
    ),
    Family(
        "glm",
        ("<|observation|>", "<|user|>", "<|assistant|>"),
        "<|observation|>",
        (ToolFormat.GLM45, ToolFormat.GLM47, ToolFormat.GLM4),
        other_ends=("<|user|>", "<|endoftext|>"),
        end_is_header=True,
        cut_end="",
    ),
    Family(
        "kimi_k2",
        ("<|im_end|>", "<|im_middle|>", "<|im_assistant|>"),
        "<|im_end|>",
        (ToolFormat.KIMI_K2,),
        call_id="functions.{name}:{index}",
    ),
    Family(
        "deepseek",
        ("<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        "<｜end▁of▁sentence｜>",
        (ToolFormat.DEEPSEEK_V3, ToolFormat.DEEPSEEK_V31, ToolFormat.DEEPSEEK_V32),
        has_one_round=True,
        tools_text=_deepseek_tools,
    ),
    Family(
        "minimax_m2",
        ("[e~[", "]~b]"),
        "[e~[",
        (ToolFormat.MINIMAX_M2,),
        after="\n",
    ),
    Family(
        "llama3",
        ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
        "<|eot_id|>",
        (ToolFormat.LLAMA3,),
        other_ends=("<|eom_id|>",),
    ),
    Family(
        "mistral",
        ("[INST]", "[/INST]", "[TOOL_CALLS]"),
        "</s>",
        (ToolFormat.MISTRAL, ToolFormat.MISTRAL_V11),
        reasoning=Reasoning("[THINK]", "[/THINK]"),
        reasoning_end="[/THINK]",
        moves_system=True,
    ),
    Family(
        "gemma4",
        ("<|turn>", "<turn|>", "<|tool_call>", "<|tool_response>"),
        "<|tool_response>",
        (ToolFormat.GEMMA4,),
        other_ends=("<turn|>",),
        end_is_header=True,
        cut_end="",
        reasoning=Reasoning("<|channel>thought\n", "<channel|>"),
        reasoning_end="<channel|>",
    ),
    Family(
        "functiongemma",
        ("<start_function_call>", "<end_function_call>", "<start_function_response>"),
        "<start_function_response>",
        (ToolFormat.FUNCTIONGEMMA,),
        other_ends=("<end_of_turn>",),
        end_is_header=True,
        cut_end="",
    ),
    Family(
        "chatml",
        ("<|im_start|>", "<|im_end|>"),
        "<|im_end|>",
        (ToolFormat.HERMES, ToolFormat.QWEN_XML),
        after="\n",
    ),
)
