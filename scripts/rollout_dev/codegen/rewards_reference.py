"""Write the reference page of the built-in reward terms: what each scores, which options it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rollout_dev.codegen.reference import table
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.spec.fields import SpecField, fields_of
from swe_rollout.spec.model import Model
from swe_rollout.spec.reward_terms import OPTIONS

_INTRO: Final = """\
<!-- Made by scripts/generate; change swe_rollout/spec/reward_terms.py instead. -->
# Reward terms

The reward of an episode is the sum of its terms, each multiplied by its weight. The default is
`[resolved]`. [Your own](../how-to/extend/rewards.md) stand in the same list.

```yaml
grading:
  reward:
    - resolved
    - {use: fraction, with: {tests: fail_to_pass}, weight: 0.2}
    - {use: length, with: {free: 8000, limit: 32000}, weight: 0.1}
    - use: judge
      weight: 0.3
      with:
        openai: {url: "http://judge:30000/v1", model: Qwen/Qwen3-32B, apiKeyEnv: JUDGE_KEY}
        highest: 10
```
"""
_SCORES: Final = {
    "resolved": ("1 when the tests resolve the task, else 0", "0 or 1"),
    "fraction": ("the share of the expected tests that end as the task's rule asks", "0 to 1"),
    "reward_file": ("what the task's own tests wrote into their file of rewards", "any"),
    "length": ("the tokens that the policy sampled, against a budget", "`worst` to `best`"),
    "turns": ("the turns that the policy took, against a budget", "`worst` to `best`"),
    "format": ("the share of the tool calls that could be run as sampled", "0 to 1"),
    "judge": ("a model's opinion of the diff", "`lowest` to `highest`"),
}
_RULES: Final = """\
## Rules

- A verdict that was [tampered with](../explanation/grading.md) earns 0, whatever the terms say;
  no judge is asked.
- A term that fails never scores 0. The episode has a `failure` that names the term, no reward,
  and keeps its tokens, its diff and its verdict. `swe-rollout regrade` grades such diffs again.
  Nothing is sampled again, unless a term of your own raises an error that may be retried.
- An option that is wrong is refused when the job is read, with its line.
- `fraction` is 1 only for a resolved task. It is 0 for a diff that does not apply, for tests that
  did not end, and for a run whose log says that all is well while its exit code does not. Partial
  credit rests on the log alone: the twins of the tests run only for a diff that resolves the
  task. Give it a small weight.
- `length` and `turns` count all branches. `format` counts calls of unknown tools and with bad
  arguments as failed. An episode that ends at once has the best `length`: weigh it below what the
  tests earn.

## A model as judge

The judge reads the issue and the diff, not the sandbox. Its answer counts if its last line is
`Score: NUMBER`, with a number of the range; the judge is asked again for an answer that can't be
read, `attempts` times in all. No score is a failure of the engine. The term's `model` and the end
of its `answer` are in the record. An SGLang server is `openai` at its `/v1`. The key is in the
environment (`apiKeyEnv`; on a cluster from `workers.secrets`), never in the job. A job does not
start while its judge can't be reached.

Issue and diff stand between lines with a marker that is new for each episode, so that no text can
end its own block, and the judge is told to take nothing in them for an instruction. **What
remains possible:** a model may listen all the same, be flattered by comments, or miss what is in
the middle of a diff that was cut. A diff that keeps the judge from answering costs its episode
the reward, and so is left out of training rather than punished. Keep the weight below that of
`resolved`, read the answers of the best scores, and never use a judge alone.
"""


def rewards_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    names = [*_SCORES, *(name for name in REWARD_TERMS.names() if name not in _SCORES)]
    rows = ((f"`{name}`", *_SCORES[name], _options(name)) for name in names)
    yield from table(("term", "scores", "range", "options"), rows)
    for model in dict.fromkeys(OPTIONS.values()):
        terms = " and ".join(f"`{name}`" for name, each in OPTIONS.items() if each is model)
        yield f"## Options of {terms}\n"
        yield from table(("option", "type", "default", "meaning"), _rows(model))
    yield _RULES.removesuffix("\n")


def _options(name: str) -> str:
    fields = fields_of(OPTIONS[name]) if name in OPTIONS else ()
    return ", ".join(f"`{field.name}`" for field in fields)


def _rows(model: type[Model]) -> Iterator[tuple[str, ...]]:
    for field in fields_of(model):
        yield f"`{field.name}`", field.type, _default(field), field.doc


def _default(field: SpecField) -> str:
    if field.required:
        return "required"
    if "\n" in field.default:
        return "a general one"
    return f"`{field.default}`" if field.default else ""
