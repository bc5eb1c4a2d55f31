"""ChatTemplate: render a model's own template as text.

`agent.renderer` makes the token ids. Conversations are plain dicts only here, because templates
accept nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import product
from typing import TYPE_CHECKING, Final, Protocol

import jinja2

from swe_rollout.agent.template_input import DEFAULT_DAY, find_input, pinned_to
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.errors import InternalError

if TYPE_CHECKING:  # commands without a model start in less time
    from tokenizers import Tokenizer

TEMPLATE_ERRORS: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    InternalError,
)
"""Exceptions of a template, which is a program, when it does not support its input."""

SYSTEM: Final[dict[str, object]] = {"role": "system", "content": "You fix code."}
"""The system message of conversations that probe a template."""


class Pretrained(Protocol):
    """The part of a tokenizer of transformers that is used here."""

    @property
    def backend_tokenizer(self) -> Tokenizer: ...

    @property
    def chat_template(self) -> str | dict[str, str] | None:
        """The source of the template, or of several by name."""
        ...

    @property
    def eos_token_id(self) -> int | None: ...

    def __len__(self) -> int: ...

    def apply_chat_template(
        self,
        conversation: list[dict[str, object]],
        *,
        tools: list[dict[str, object]] | None,
        tokenize: bool,
        add_generation_prompt: bool,
        **template_kwargs: object,
    ) -> object: ...


_RETAIN: Final[dict[str, object]] = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "drop_thinking": False,
    "truncate_history_thinking": False,
}
"""Variables that make templates keep the reasoning of earlier turns."""


class ChatTemplate:
    """Renders conversations as the model was trained to read them."""

    def __init__(
        self,
        tokenizer: Pretrained,
        kwargs: Mapping[str, object] | None = None,
        *,
        day: date = DEFAULT_DAY,
    ) -> None:
        """`kwargs` are template variables that a job sets, such as `enable_thinking`.

        `day` is the date that the template sees instead of the clock's, so that all workers of a
        job, including those that resume it, render the same prompt.
        """
        self._tokenizer = tokenizer
        self._set_by_job = dict(kwargs or {})
        self._kwargs = _RETAIN | self._set_by_job | pinned_to(day, tokenizer.chat_template)
        self._day = day
        self._shows_tools = True
        self._input = find_input(self._rendered, TEMPLATE_ERRORS)

    def without_tools(self) -> ChatTemplate:
        """Return the same template, which is given no tools."""
        silent = ChatTemplate(self._tokenizer, self._set_by_job, day=self._day)
        silent._shows_tools = False
        return silent

    @property
    def source(self) -> str:
        """The template and the variables that a job sets, for a fingerprint."""
        given = self._set_by_job
        variables = json.dumps(given, sort_keys=True, default=str) if given else ""
        text = json.dumps(self._tokenizer.chat_template) + variables
        return text + (f"\n{self._day}" if "strftime_now" in text else "")

    def render(
        self, conversation: list[dict[str, object]], tools: Sequence[ToolSpec], *, prompted: bool
    ) -> str:
        """Render a whole conversation; `prompted` adds the start of the policy's next turn."""
        shown = tools if self._shows_tools else ()
        functions = self._input.tools([tool.function() for tool in shown])
        return self._rendered(self._input.conversation(conversation), functions, prompted=prompted)

    def _rendered(
        self,
        conversation: list[dict[str, object]],
        functions: list[dict[str, object]],
        *,
        prompted: bool = False,
    ) -> str:
        told = {"xml_tools": functions} if functions else {}
        text = self._tokenizer.apply_chat_template(
            conversation,
            tools=functions or None,
            tokenize=False,
            add_generation_prompt=prompted,
            **{**told, **self._kwargs},
        )
        if not isinstance(text, str):
            raise InternalError(f"a chat template gave {type(text).__name__} instead of text")
        return text

    def render_any(
        self,
        conversation: Sequence[dict[str, object]],
        *toolsets: Sequence[ToolSpec],
        prompted: bool = False,
    ) -> str:
        """Render with the first of `toolsets` that the template accepts, after a system message if
        it accepts one. Raises the template's last error if it accepts none of them.
        """
        errors: list[Exception] = []
        for tools, start in product(toolsets, ([SYSTEM], [])):
            try:
                return self.render([*start, *conversation], tools, prompted=prompted)
            except TEMPLATE_ERRORS as error:
                errors.append(error)
        raise errors[-1]
