"""Small tokenizers, one per chat grammar: our own templates over the package's vocabulary.

They are for tests and conformance, ours and yours: `write("kimi_k2", folder)` writes a folder that
`Renderer.load` and transformers can load. Each template follows its family's grammar; control
tokens are marked special, or not, as in the real vocabularies.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_dev.families import vocabulary
from swe_rollout.spec.tool_format import ToolFormat

_THINK: Final = ("<think>", "</think>")
_CALL: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_CHATML: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_GLM: Final = (
    *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
    *("<|observation|>",),
)
_GLM_ARGUMENTS: Final = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_KIMI: Final = (
    *("<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
)
_DEEPSEEK: Final = (
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    *("<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    *("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
)
_LLAMA: Final = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>"),
)
_MISTRAL: Final = (
    *("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]"),
)
_HARMONY: Final = (
    *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
    *("<|call|>", "<|return|>", "<|endoftext|>"),
)
_MINIMAX: Final = ("]~!b[", "]~b]", "[e~[")


@dataclass(frozen=True, slots=True)
class TokenizerFamily:
    """One small tokenizer: the tokens it adds, and the family and format to detect."""

    name: str
    family: str
    tool_format: ToolFormat
    special: tuple[str, ...]
    eos: str
    plain: tuple[str, ...] = _THINK
    """Added tokens that are not marked special, as in the real vocabulary."""


def _chatml(name: str, tool_format: ToolFormat) -> TokenizerFamily:
    return TokenizerFamily(
        name, "chatml", tool_format, special=_CHATML, eos="<|im_end|>", plain=(*_CALL, *_THINK)
    )


def _glm(name: str, tool_format: ToolFormat) -> TokenizerFamily:
    plain = (*_CALL, *_THINK, *_GLM_ARGUMENTS)
    return TokenizerFamily(name, "glm", tool_format, special=_GLM, eos="<|endoftext|>", plain=plain)


def _deepseek(name: str, tool_format: ToolFormat) -> TokenizerFamily:
    eos = "<｜end▁of▁sentence｜>"
    return TokenizerFamily(name, "deepseek", tool_format, special=_DEEPSEEK[:2], eos=eos,
                   plain=(*_DEEPSEEK[2:], *_THINK))  # fmt: skip


FAMILIES: Final = {
    each.name: each
    for each in (
        _chatml("qwen2_5", ToolFormat.HERMES),
        _chatml("qwen3", ToolFormat.HERMES),
        _chatml("qwen3_thinking", ToolFormat.HERMES),
        _chatml("qwen3_coder", ToolFormat.QWEN_XML),
        _chatml("qwen3_5", ToolFormat.QWEN_XML),
        _glm("glm4_0414", ToolFormat.GLM4),
        _glm("glm4_5", ToolFormat.GLM45),
        _glm("glm4_7", ToolFormat.GLM47),
        TokenizerFamily("kimi_k2", "kimi_k2", ToolFormat.KIMI_K2, special=_KIMI, eos="<|im_end|>"),
        _deepseek("deepseek_v3", ToolFormat.DEEPSEEK_V3),
        _deepseek("deepseek_r1", ToolFormat.DEEPSEEK_V3),
        _deepseek("deepseek_v3_1", ToolFormat.DEEPSEEK_V31),
        _deepseek("deepseek_v3_2", ToolFormat.DEEPSEEK_V32),
        TokenizerFamily(
            "llama3", "llama3", ToolFormat.LLAMA3, special=_LLAMA, eos="<|eot_id|>", plain=()
        ),
        TokenizerFamily("mistral", "mistral", ToolFormat.MISTRAL, _MISTRAL, "</s>", ()),
        TokenizerFamily("mistral_v11", "mistral", ToolFormat.MISTRAL_V11, _MISTRAL, "</s>", ()),
        TokenizerFamily(
            "gpt_oss", "harmony", ToolFormat.HARMONY, special=_HARMONY, eos="<|return|>", plain=()
        ),
        TokenizerFamily(
            "functiongemma",
            "functiongemma",
            ToolFormat.FUNCTIONGEMMA,
            special=("<bos>", "<start_of_turn>", "<end_of_turn>"),
            eos="<end_of_turn>",
            plain=(
                *("<escape>", "<start_function_call>", "<end_function_call>"),
                *("<start_function_response>", "<end_function_response>"),
                *("<start_function_declaration>", "<end_function_declaration>"),
            ),
        ),
        TokenizerFamily(
            "minimax_m2",
            "minimax_m2",
            ToolFormat.MINIMAX_M2,
            special=_MINIMAX,
            eos="[e~[",
            plain=(*_THINK, "<minimax:tool_call>", "</minimax:tool_call>"),
        ),
    )
}
"""The tokenizers by name, which is also the name of the template next to this file."""


def template(name: str) -> str:
    """Read the chat template of a family."""
    return (Path(__file__).parent / f"{name}.jinja").read_text("utf-8")


def write(name: str, folder: Path) -> Path:
    """Write the tokenizer of a family to `folder`, creating it; return the folder."""
    family = FAMILIES[name]
    tokens = (*family.special, *family.plain)
    return vocabulary.write_tokenizer(
        template(name), folder, tokens=tokens, special=family.special, eos=family.eos
    )
