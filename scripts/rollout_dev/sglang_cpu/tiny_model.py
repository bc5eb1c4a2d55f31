"""Make the tiny model of the CPU server. Runs in the server's environment.

    tiny_model.py TOKENIZER MODEL

A Qwen3 of two layers and 1 M parameters in fp32, with the package's own tokenizer. Two minutes of
training make it respond like an agent, so that a real engine samples whole tool calls, a broken one
now and then, and a submission: enough for episodes of several turns. It understands nothing.
"""

from __future__ import annotations

import random
import shutil
import sys
import sysconfig
from pathlib import Path

import launch  # type: ignore[import-not-found] # noqa: F401 - defines what transformers needs
import torch
from transformers import AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

CONTEXT_TOKENS = 8192
STEPS = 300
BATCH = 4
TURNS = 3
SHORT_TOKENS = 200
LONG_TOKENS = 1800
"""Tokens of text before a response; every fourth lesson is as long as a real first prompt."""
IGNORED = -100
"""The label of ids without a loss."""

RESPONSES = tuple(
    f"{reason}\n<tool_call>\n{call}\n</tool_call><|im_end|>"
    for reason, call in (
        ("I look around first.", '{"name": "bash", "arguments": {"command": "ls"}}'),
        ("What changed so far?", '{"name": "bash", "arguments": {"command": "git status"}}'),
        (
            "A note should help.",
            '{"name": "bash", "arguments": {"command": "echo done >> NOTES.md"}}',
        ),
        ("In a hurry.", '{"name": "bash", "arguments": {"command": "ls"'),
        ("I am done.", '{"name": "submit", "arguments": {}}'),
    )
)
# The model never starts or ends this by itself: for tests that need an endless generation.
ENDLESS = "So " + "on and " * 40


class Lessons:
    """Training conversations: an agent's responses among arbitrary text."""

    def __init__(self, tokenizer: object) -> None:
        self._encode = tokenizer.encode  # type: ignore[attr-defined]
        sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
        self._filler: list[int] = self._encode(
            "".join(source.read_text() for source in sources), verbose=False
        )
        self._random = random.Random(0)  # noqa: S311 - no secret

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return ids, positions and labels; short lessons are padded without a loss."""
        prompt_tokens = SHORT_TOKENS if number % 4 else LONG_TOKENS
        lessons = [self._lesson(prompt_tokens) for _ in range(BATCH)]
        length = max(len(ids) for ids, _ in lessons)
        ids = [tokens + [0] * (length - len(tokens)) for tokens, _ in lessons]
        labels = [label + [IGNORED] * (length - len(label)) for _, label in lessons]
        start = self._random.randrange(CONTEXT_TOKENS - length)
        positions = torch.arange(start, start + length).expand(BATCH, length)
        return torch.tensor(ids), positions, torch.tensor(labels)

    def _lesson(self, prompt_tokens: int) -> tuple[list[int], list[int]]:
        ids: list[int] = []
        labels: list[int] = []
        for turn in range(TURNS):
            role = "user\n<tool_response>\n" if turn else "system\n"
            before = [
                *self._encode(f"<|im_start|>{role}"),
                *self._some_filler(SHORT_TOKENS if turn else prompt_tokens),
                *self._encode("<|im_end|>\n<|im_start|>assistant\n"),
            ]
            ids += before
            labels += [IGNORED] * len(before)
            response = self._encode(self._random.choice(RESPONSES))
            ids += response
            labels += response
        if self._random.random() < 1 / BATCH:
            endless = self._encode(f"\n<|im_start|>assistant\n{ENDLESS}")
            ids += endless
            labels += [IGNORED] * 12 + endless[12:]
        return ids, labels

    def _some_filler(self, longest: int) -> list[int]:
        start = self._random.randrange(len(self._filler) - longest)
        return self._filler[start : start + self._random.randrange(5, longest)]


def make(tokenizer_folder: Path, model_folder: Path) -> None:
    """Train the model; write weights, configuration and tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    (end,) = tokenizer.encode("<|im_end|>")
    (pad,) = tokenizer.encode("<|endoftext|>")
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(_config(len(tokenizer), end=end, pad=pad)).to(torch.float32)
    _train(model, Lessons(tokenizer))
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=[end, pad], pad_token_id=pad
    )
    model.save_pretrained(model_folder)
    for file in tokenizer_folder.iterdir():
        shutil.copy(file, model_folder)


def _config(vocab_size: int, *, end: int, pad: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        eos_token_id=end,
        bos_token_id=None,
        pad_token_id=pad,
    )


def _train(model: Qwen3ForCausalLM, lessons: Lessons) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS)
    for step in range(STEPS):
        ids, positions, labels = lessons.batch(step)
        read = model.model(input_ids=ids, position_ids=positions).last_hidden_state[:, :-1]
        # Compute logits only where there is a loss: they are most of the work.
        has_loss = labels[:, 1:] != IGNORED
        logits = model.lm_head(read[has_loss])
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:][has_loss])
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.3f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
