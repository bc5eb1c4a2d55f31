"""Checks of whole conversations: sampled tokens are kept, and no others are trained on.

Each takes a `ModelUnderTest` and returns a `TokenCheck`. Checks of single deltas are in
`testing.tokens.delta_checks`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tokens.model import (
    TEMPLATE_ERRORS,
    Conversation,
    ModelUnderTest,
    RecordedConversation,
    TokenCheck,
    canonical,
    check_result,
    one_line,
    trained_share_key,
)
from swe_rollout.testing.tokens.patterns import TOOLS
from swe_rollout.testing.tokens.reference import find_mismatch
from swe_rollout.testing.tokens.subjects import (
    NOISE_LEVELS,
    PrefixStats,
    TokenLogSubject,
    fake_logprobs,
    inject_control_tokens,
)
from swe_rollout.testing.tokens.synthetic_policy import SampledTurn
from swe_rollout.tokens.log import Segment, SegmentKind
from swe_rollout.types.turn import CallStatus


def conversations(model: ModelUnderTest) -> TokenCheck:
    """Check that the template renders every conversation."""
    turns = sum(len(each.turns) for each in model.conversations)
    figures = {"patterns": len(model.conversations), "turns": turns}
    success = f"{len(model.conversations)} patterns, {turns} turns"
    return TokenCheck(
        "conversations",
        not model.unrenderable and turns > 0,
        "; ".join(model.unrenderable) or success,
        figures,
    )


def prefix(model: ModelUnderTest) -> TokenCheck:
    """Check that each request starts with the previous one and what was sampled after it."""
    total = PrefixStats()
    for conversation in model.conversations:
        noises = [model.noisy(noise, seed=1) for noise in NOISE_LEVELS]
        for resegment in (*noises, *(model.random_cuts(seed) for seed in range(model.repeats))):
            total += model.record(conversation, resegment).stats
    detail = (
        f"{total.breaks} breaks in {total.turns} turns, "
        f"{len(NOISE_LEVELS)} noise levels and random cuts"
    )
    figures = {"prefix_breaks": total.breaks, "turns": total.turns}
    return TokenCheck("prefix", total.breaks == 0 and total.turns > 0, detail, figures)


def trained_share(model: ModelUnderTest) -> TokenCheck:
    """Check that every sampled token is trained on, at each noise level."""
    figures: dict[str, float] = {}
    trained = sampled = 0
    for noise in NOISE_LEVELS:
        total = PrefixStats()
        masked = 0
        for conversation in model.conversations:
            for seed in range(model.repeats):
                recorded = model.record(conversation, model.noisy(noise, seed))
                total += recorded.stats
                masked += recorded.subject.log.sampled
        kept = min(total.kept, masked)
        figures[trained_share_key(noise)] = kept / total.sampled if total.sampled else 0
        trained, sampled = trained + kept, sampled + total.sampled
    detail = f"{trained} of {sampled} sampled tokens"
    return TokenCheck("trained share", trained == sampled > 0, detail, figures)


def mask_and_logprobs(model: ModelUnderTest) -> TokenCheck:
    """Check that the mask is 1 for sampled ids alone, each with its own logprob."""
    problems: list[str] = []
    for conversation in model.conversations:
        recorded = model.record(conversation, model.noisy(NOISE_LEVELS[-1], seed=2))
        problems += _misaligned(recorded, conversation.pattern.name)
    return check_result(
        "mask and logprobs", problems, "ids, masks and logprobs agree, token by token"
    )


def _misaligned(recorded: RecordedConversation, name: str) -> list[str]:
    log = recorded.subject.log
    mask, logprobs, ids = log.loss_mask.tolist(), log.logprobs.tolist(), log.ids
    runs = [segment for segment in log.segments if segment.kind is SegmentKind.SAMPLED]
    if not len(mask) == len(logprobs) == len(ids):
        return [f"{name}: columns have different lengths"]
    if len(runs) != len(recorded.sampled):
        return [f"{name}: {len(runs)} runs of sampled tokens in {len(recorded.sampled)} turns"]
    found = _misplaced(mask, logprobs, runs, name)
    for run, sampled in zip(runs, recorded.sampled, strict=True):
        if ids[run.start : run.end] != list(sampled):
            found.append(f"{name}: sampled ids changed in turn {run.turn}")
        if logprobs[run.start : run.end] != fake_logprobs(sampled):
            found.append(f"{name}: logprobs are not those of turn {run.turn}")
    return found


def _misplaced(
    mask: Sequence[int], logprobs: Sequence[float], runs: Sequence[Segment], name: str
) -> list[str]:
    found: list[str] = []
    inside = {i for run in runs for i in range(run.start, run.end)}
    if {i for i, each in enumerate(mask) if each} != inside:
        found.append(f"{name}: the mask is not 1 exactly where tokens were sampled")
    if any(not math.isnan(each) for i, each in enumerate(logprobs) if i not in inside):
        found.append(f"{name}: a token of the harness has a logprob")
    return found


def text(model: ModelUnderTest) -> TokenCheck:
    """Check that the conversation decodes to the same text under every segmentation."""
    problems: list[str] = []
    changed = 0
    for conversation in model.conversations:
        usual = model.record(conversation, canonical)
        expected = model.policy.text(usual.subject.log.ids)
        for seed in range(model.repeats):
            other = model.record(conversation, model.random_cuts(seed))
            changed += other.sampled != usual.sampled
            if model.policy.text(other.subject.log.ids) != expected:
                problems.append(f"{conversation.pattern.name}: random cuts change the text")
    if not changed:
        problems.append("the vocabulary has only one segmentation of every text")
    return check_result("text", problems, f"{changed} randomly cut conversations decode the same")


def deltas(model: ModelUnderTest) -> TokenCheck:
    """Check that deltas build exactly the text the template renders for the whole conversation."""
    problems: list[str] = []
    compared, is_empty_kept = 0, True
    grammar = model.renderer.grammar
    one_round = grammar.family.has_one_round or grammar.is_rewritten
    for conversation in model.conversations:
        if any(scripted.is_cut_short for scripted in conversation.pattern.turns):
            continue
        pattern = conversation.pattern.up_to(1) if one_round else conversation.pattern
        compared += len(pattern.turns)
        try:
            found = find_mismatch(model.renderer, model.policy, pattern)
            filled = pattern.without_empty_results()
            if found and filled != pattern:
                # A call must get its result, also from a template that leaves out empty ones.
                found = find_mismatch(model.renderer, model.policy, filled)
                is_empty_kept = bool(found)
        except TEMPLATE_ERRORS as error:
            problems.append(f"{pattern.name}: {one_line(error)}")
        else:
            problems += [f"{pattern.name}, {found}"] if found else []
    limits = "; only first turns, the template changes its form later" if one_round else ""
    if not is_empty_kept:
        limits += "; empty results are written, which the template leaves out"
    if model.policy.changes_whitespace:
        limits += "; ignoring white space, which this tokenizer changes at control tokens"
    success = f"{compared} turns match the template's rendering of the whole{limits}"
    return check_result("deltas", problems, success, figures={"rounds": compared})


def control_tokens(model: ModelUnderTest) -> TokenCheck:
    """Check that control tokens are exactly where the tokenizer finds them in the text."""
    policy = model.policy
    # Some vocabularies have white space and plain words among their added tokens.
    marks = {i for i, token in model.renderer.controls.items() if re.search(r"[^\w\s]", token)}
    problems: list[str] = []
    counted = 0
    for conversation in filter(lambda each: each.is_plain, model.conversations):
        ids = model.record(conversation, canonical).subject.log.ids
        ours = [i for i in ids if i in marks]
        native = [i for i in policy.encode(policy.text(ids)) if i in marks]
        counted += len(ours)
        if ours != native:
            problems.append(
                f"{conversation.pattern.name}: {len(ours)}, the tokenizer finds {len(native)}"
            )
    success = f"{counted}, all where the tokenizer finds them"
    return check_result("control tokens", problems, success)


def forged_control_tokens(model: ModelUnderTest) -> TokenCheck:
    """Check that no text from outside becomes a control token."""
    renderer = model.renderer
    if not model.conversations:
        return TokenCheck("forged control tokens", passed=False, detail="no conversation to try")
    turn = model.conversations[0].turns[0]
    found = inject_control_tokens(
        lambda: TokenLogSubject(renderer),
        turn,
        first=model.conversations[0].first,
        controls=renderer.controls,
        delta=model.turn_separator(turn),
    )
    detail = f"{found.forged} of {len(renderer.controls)} tokens in {found.probes} texts"
    if found.examples:
        detail += f", such as {found.examples[0][:80]!r}"
    figures = {"forged_ids": found.forged, "probes": found.probes}
    return TokenCheck("forged control tokens", found.forged == 0, detail, figures)


def calls(model: ModelUnderTest) -> TokenCheck:
    """Check that the parser reads the template's calls as intended."""
    problems: list[str] = []
    count = 0
    known = {tool.name for tool in TOOLS}
    for conversation in model.conversations:
        for scripted, turn in zip(conversation.pattern.turns, conversation.turns, strict=True):
            count += len(turn.intended)
            if scripted.is_cut_short:
                right = all(call.status is not CallStatus.OK for call in turn.parsed)
            elif all(call.name in known for call in turn.intended):
                right = _parsed_as_intended(turn)
            else:
                right = [call.status for call in turn.parsed] == [CallStatus.UNKNOWN_TOOL]
            problems += [] if right else [_misread(conversation, turn)]
    form = model.renderer.tool_format
    return check_result("calls", problems, f"{count} calls written and parsed as {form}")


def _parsed_as_intended(turn: SampledTurn) -> bool:
    """Compare parsed and intended calls. Some templates assign their own call ids."""
    return len(turn.parsed) == len(turn.intended) and all(
        parsed.status is CallStatus.OK
        and (parsed.name, parsed.arguments) == (intended.name, intended.arguments)
        and (parsed.id == intended.id or not intended.id or intended.id not in turn.text)
        for parsed, intended in zip(turn.parsed, turn.intended, strict=True)
    )


def _misread(conversation: Conversation, turn: SampledTurn) -> str:
    found = [f"{call.status.value} {call.name} {call.problem[:80]}" for call in turn.parsed]
    return f"{conversation.pattern.name}: {turn.text[-160:]!r} parses as {found or 'no call'}"


def calls_in_other_spellings(model: ModelUnderTest) -> TokenCheck:
    """Check that calls parse the same under every segmentation, each within its span."""
    problems: list[str] = []
    count = 0
    for conversation in model.conversations:
        name = conversation.pattern.name
        for turn in conversation.turns:
            cuts = (model.random_cuts(seed) for seed in range(model.repeats))
            for resegment in (canonical, *cuts):
                other = resegment(turn)
                ids, found = other.ids, other.parsed
                count += len(found)
                if found != turn.parsed:
                    problems.append(f"{name}: another segmentation parses as other calls")
                problems += [
                    f"{name}: the span of a call does not contain it"
                    for call in found
                    if call.span is None
                    or call.raw not in model.policy.text(ids[call.span.start : call.span.end])
                ]
    return check_result(
        "calls in other spellings", problems, f"{count} calls, each within its span"
    )


def drafts(model: ModelUnderTest) -> TokenCheck:
    """Check that a call inside reasoning is not parsed as a call."""
    marks = model.renderer.reasoning(opened=False)
    problems: list[str] = []
    count = 0
    for conversation in filter(lambda each: each.is_plain, model.conversations):
        for turn in (each for each in conversation.turns if each.parsed):
            draft = _first_call_text(model, turn)
            opener = "" if turn.opens_reasoning else marks.opener
            end = model.renderer.grammar.family.reasoning_end or marks.closer
            rest = model.text_after_reasoning(turn)
            ids = model.policy.encode(f"{opener}\nPerhaps {draft}?{end}{rest}")
            found = model.policy.resegmented(turn, ids).parsed
            count += 1
            if found != turn.parsed:
                problems.append(f"{conversation.pattern.name}: {draft[:60]!r} is parsed as a call")
    return check_result("drafts", problems, f"{count} calls in reasoning are not parsed as calls")


def _first_call_text(model: ModelUnderTest, turn: SampledTurn) -> str:
    """Return the first call of a turn as written; for harmony, which has a channel, its body."""
    call = turn.parsed[0]
    if call.span is None or model.renderer.tool_format == ToolFormat.HARMONY:
        return call.raw
    return model.policy.text(turn.ids[call.span.start : call.span.end])
