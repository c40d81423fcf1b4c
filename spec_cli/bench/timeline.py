"""What happened to each request, read from the engine's events, and the latencies that follow.

All latencies count from the time a request was *planned* to be sent: a server that is too busy to
take it does not shorten its wait (coordinated omission; Tene 2013).
"""

from dataclasses import dataclass, field
from itertools import pairwise

from spec_cli.core.events import (
    Event,
    RequestFinished,
    RequestStarted,
    StepFinished,
    TokensEmitted,
)
from spec_cli.core.stats import RequestStats


@dataclass(slots=True)
class Timeline:
    """One request; times are seconds on the clock of the run.

    Attributes:
        index: Its number in the workload.
        request_id: The engine's name for it.
        planned_s: When it was to be sent.
        sent_s: When it was.
        num_prompt_tokens: Of its prompt.
        started_s: When it got a row, or None.
        deliveries: When tokens came and how many: a speculative step brings several at once.
        token_ids: All tokens.
        stats: The engine's figures, or None while it runs.
        failure: Why it did not complete, or None.
    """

    index: int
    planned_s: float
    sent_s: float
    num_prompt_tokens: int = 0
    started_s: float | None = None
    deliveries: list[tuple[float, int]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    stats: RequestStats | None = None
    failure: str | None = None
    is_complete: bool = False
    request_id: str = ""

    @property
    def num_tokens(self) -> int:
        """Tokens delivered."""
        return sum(count for _, count in self.deliveries)

    @property
    def finished_s(self) -> float | None:
        """When its last token came; None while it is not complete."""
        return self.deliveries[-1][0] if self.is_complete and self.deliveries else None

    @property
    def time_to_first_token_s(self) -> float | None:
        """TTFT: from the planned time to the first token."""
        return self.deliveries[0][0] - self.planned_s if self.deliveries else None

    @property
    def end_to_end_s(self) -> float | None:
        """From the planned time to the last token."""
        return None if self.finished_s is None else self.finished_s - self.planned_s

    @property
    def time_per_output_token_s(self) -> float | None:
        """TPOT: from the first token to the last, over the tokens after the first.

        The first delivery may hold several tokens (a server that speculates in its first step);
        those beyond the first cost no time then.
        """
        if self.finished_s is None or self.num_tokens < 2:
            return None
        return (self.finished_s - self.deliveries[0][0]) / (self.num_tokens - 1)

    @property
    def inter_token_latencies_s(self) -> list[float]:
        """ITL: the waits between deliveries, each of which may bring several tokens."""
        return [later[0] - earlier[0] for earlier, later in pairwise(self.deliveries)]

    @property
    def queue_s(self) -> float | None:
        """From the planned time until it got a row."""
        return None if self.started_s is None else self.started_s - self.planned_s


class Recorder:
    """Builds timelines from events.

    Attributes:
        timelines: In the order in which the requests were sent.
        steps: Every finished step.
        origin_s: The engine's time at which the run began.
    """

    def __init__(self, origin_s: float = 0.0) -> None:
        self.timelines: list[Timeline] = []
        self.steps: list[StepFinished] = []
        self._by_id: dict[str, Timeline] = {}
        self.origin_s = origin_s

    def sent(self, request_id: str, index: int, *, planned_s: float, sent_s: float) -> None:
        """A request was handed to the engine; both times count from the origin."""
        timeline = Timeline(index, planned_s, sent_s, request_id=request_id)
        self.timelines.append(timeline)
        self._by_id[request_id] = timeline

    @property
    def open_ids(self) -> list[str]:
        """Requests that are not complete."""
        return [name for name, timeline in self._by_id.items() if not timeline.is_complete]

    def read(self, events: list[Event]) -> None:
        """Take in the events of a step."""
        for event in events:
            if isinstance(event, StepFinished):
                self.steps.append(event)
                continue
            timeline = self._by_id.get(event.request_id)
            if timeline is None:
                continue
            now = event.time_s - self.origin_s
            if isinstance(event, RequestStarted):
                timeline.started_s = now
                timeline.num_prompt_tokens = event.num_prompt_tokens
            elif isinstance(event, TokensEmitted):
                timeline.deliveries.append((now, len(event.tokens)))
                timeline.token_ids += [token.token_id for token in event.tokens]
            elif isinstance(event, RequestFinished):
                timeline.stats = event.stats
                if event.reason == "interrupted":
                    timeline.failure = "not finished in time"
                else:
                    timeline.is_complete = True
