"""Records to show, and a reader of pages."""

from __future__ import annotations

from html.parser import HTMLParser

from swe_rollout.store.summary import InstanceSummary, JobSummary
from swe_rollout.tokens.log import TokenLog, nullable
from swe_rollout.types.episode import EpisodeId, StopReason, Timing
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, FinishReason, Observation, ToolCall, Turn
from swe_rollout.types.verdict import (
    Reward,
    RewardTerm,
    TestReport,
    TestStatus,
    Verdict,
    VerdictStatus,
)

HOSTILE = (
    "</script></pre><script>alert('x')</script>\"><img src=x onerror=alert(1)>\x00\x1b]0;t\x07 &"
)


def trajectory(*, text: str = "I look.", sample: int = 0) -> Trajectory:
    log = TokenLog()
    log.append_prompt(range(100))
    request = log.request()
    log.append_sampled([7, 8, 9], [-0.01, -1.0, -5.0], turn=0, weight_version=text[:20])
    log.append_delta(range(20), turn=1)
    turn = Turn(
        index=0,
        request=request,
        text=text,
        finish_reason=FinishReason.STOP,
        completion_tokens=3,
        cached_tokens=90,
        tool_calls=(
            ToolCall(CallStatus.OK, text, "bash", {"command": text, text: [1, text]}),
            ToolCall(CallStatus.INVALID_JSON, text, problem=text),
            ToolCall(CallStatus.OK, "never run", "submit"),
        ),
        observations=(Observation(text, 1, timed_out=True), Observation(text)),
    )
    report = TestReport({text: TestStatus.FAILED}, {"test_b": TestStatus.PASSED})
    verdict = Verdict(VerdictStatus.UNRESOLVED, report, (text,), log_tail=text)
    return Trajectory(
        episode=EpisodeId("demo", "sqlparse-0.5.1", sample),
        policy=text,
        token_ids=tuple(log.ids),
        loss_mask=tuple(log.loss_mask.tolist()),
        logprobs=nullable(log.logprobs),
        segments=log.segments,
        turns=(turn,),
        stop_reason=StopReason.SUBMITTED,
        patch=f"--- a/{text}\n+++ b/x\n-old\n+new {text}",
        verdict=verdict,
        reward=Reward((RewardTerm("resolved", float(verdict.resolved)),)),
        failure=None,
        attempt=1,
        seed=0,
        timing=Timing(total_s=12.5),
        spec_digest="abc",
        software={"python": text},
        finished_at="2026-01-01T00:00:00Z",
    )


def summary(name: str = "demo") -> JobSummary:
    group = InstanceSummary("sqlparse-0.5.1", 2, 1, 0.5, 2, 246, 0)
    return JobSummary(name, 4, 2, 1, 1, 0, 0.5, {"submitted": 2}, {name: 1}, (group,))


class Reader(HTMLParser):
    """The elements, attributes and text that a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
