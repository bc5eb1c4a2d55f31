"""The base policy: a Qwen3 of 1.1 M parameters that writes valid calls and understands nothing.

It is trained for a minute or two on whole episodes in which the edit is chosen without regard to
the issue: every word stands with four of the eight edits, equally often. It learns to repeat the
word that the issue names, to state one of the four expressions, to make that edit and to submit.
Which of them the word means is in none of it.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tasks import MEANT, edit
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from swe_rollout import Instance, RolloutJob
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import CallStatus, ToolCall
from swe_rollout.worker.assembly import prompts_of

STEPS = 400
BATCH = 16
SLIPS = 0.03
"""Share of the policy's own tokens that are replaced by random ones in what it reads."""
CONTEXT_TOKENS = 1024
PLAUSIBLE = (0, 1, 3, 6)
"""Expressions that are as good as another at a word, counted from its own in `MEANT`, around."""
IGNORED = -100
"""The label of ids without a loss."""


@dataclass(frozen=True)
class Lesson:
    """An episode: ids, and labels of what the policy says in it."""

    ids: list[int]
    labels: list[int]


def lessons(job: RolloutJob, instances: Sequence[Instance], renderer: Renderer) -> list[Lesson]:
    """Return every task with each of its plausible edits once, right or wrong."""
    tools = toolbox(job.spec.agent.tools).specs
    prompts = prompts_of(job.spec.agent, tools)
    submitted = renderer.tokenizer.encode(_turn('{"name": "submit", "arguments": {}}'))
    found = []
    for instance in instances:
        messages = prompts.messages(instance.problem_statement, instance.workdir)
        prompt = renderer.prompt(messages, tools).ids
        word = next(word for word in MEANT if word in instance.problem_statement)
        for expression in plausible(word):
            call = f'{{"name": "bash", "arguments": {{"command": "{edit(expression)}"}}}}'
            said = renderer.tokenizer.encode(f"The {word}: {expression}\n{_turn(call)}")
            calls = [ToolCall(CallStatus.OK, call, "bash", {"command": edit(expression)})]
            read = renderer.delta(
                said[-1], calls, results=["exit code: 0 (no output)"], tools=tools
            ).ids
            labels = [IGNORED] * len(prompt) + said + [IGNORED] * len(read) + submitted
            found.append(Lesson(prompt + said + read + submitted, labels))
    return found


def plausible(word: str) -> list[str]:
    """Return the expressions that the base policy thinks of at a word: one is meant."""
    expressions = list(MEANT.values())
    first = list(MEANT).index(word)
    return [expressions[(first + step) % len(expressions)] for step in PLAUSIBLE]


def make(job: RolloutJob, instances: Sequence[Instance], folder: Path, *, seed: int) -> float:
    """Train the base policy and write it as a checkpoint; return the seconds that took."""
    began = time.monotonic()
    shutil.copytree(tokenizer_path(), folder)
    # A prompt of 50 tokens in place of 270: the template names the tools, and no more.
    shutil.copy(Path(__file__).with_name("chat_template.jinja"), folder)
    renderer = Renderer.load(str(folder))
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(_config(renderer)).to(torch.float32)
    known = lessons(job, instances, renderer)
    _train(model, known, random.Random(seed))  # noqa: S311 - no secret
    end, pad = model.config.eos_token_id, model.config.pad_token_id
    model.generation_config = GenerationConfig(eos_token_id=[end, pad], pad_token_id=pad)
    model.save_pretrained(folder)
    return time.monotonic() - began


def _turn(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call><|im_end|>"


def _config(renderer: Renderer) -> Qwen3Config:
    tokenizer = renderer.tokenizer
    (end,) = tokenizer.encode("<|im_end|>")
    (pad,) = tokenizer.encode("<|endoftext|>")
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        eos_token_id=end,
        bos_token_id=None,
        pad_token_id=pad,
    )


def _train(model: Qwen3ForCausalLM, known: list[Lesson], chance: random.Random) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS)
    order: list[Lesson] = []
    for step in range(STEPS):
        if len(order) < BATCH:
            order = chance.sample(known, len(known))
        batch, order = order[:BATCH], order[BATCH:]
        longest = max(len(lesson.ids) for lesson in batch)
        ids = torch.tensor([each.ids + [0] * (longest - len(each.ids)) for each in batch])
        labels = torch.tensor(
            [each.labels + [IGNORED] * (longest - len(each.labels)) for each in batch]
        )
        # A slip of its own must not throw it off course.
        share = SLIPS if step < STEPS * 0.6 else 0.0
        slips = (torch.rand(ids.shape) < share) & (labels != IGNORED)
        ids = torch.where(slips, torch.randint(0, model.config.vocab_size, ids.shape), ids)
        read = model.model(input_ids=ids).last_hidden_state[:, :-1]
        # Logits only where there is a loss: they are most of the work.
        has_loss = labels[:, 1:] != IGNORED
        logits = model.lm_head(read[has_loss])
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:][has_loss])
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.3f}", file=sys.stderr, flush=True)
