"""The same load against a running server: vLLM, SGLang, llama.cpp, transformers, ours.

Whatever a server does, a request ends: with its answer, or as a failure that says what happened.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import httpx

from spec_cli.bench.answer import Answer, stream_records
from spec_cli.bench.arms import Arm
from spec_cli.bench.arrivals import ArrivalPlan
from spec_cli.bench.endpoint import Endpoint, failure_words, refusal_words
from spec_cli.bench.harness import Clock, LoadRun, StoppedError
from spec_cli.bench.timeline import Timeline
from spec_cli.bench.workload import WorkPrompt, plain_prompts
from spec_cli.core.params import SamplingParams

_TICK_S = 0.05
_WARM_UP_TOKENS = 8
_WARM_UP_LIMIT_S = 600.0
_REFUSED = ("HTTP 400", "HTTP 422")
_OPTIONAL = ("ignore_eos", "stream_options", "seed", "top_p")
"""Fields that a load can do without, though its answers may then differ in length or text."""


@dataclass(slots=True)
class LoadSender:
    """Sends a plan to a server.

    Attributes:
        endpoint: The server.
        prompts: Request i asks prompt i, from the start again at the end.
        params: Of every request.
        clock: Seconds, monotonic.
        is_stopped: Whether the user wants an end.
        drafted: Draft tokens and accepted ones that answers told of.
        num_uncounted: Answers whose tokens the server did not count.
    """

    endpoint: Endpoint
    prompts: list[WorkPrompt]
    params: SamplingParams
    clock: Clock
    is_stopped: Callable[[], bool] = lambda: False
    drafted: list[tuple[int, int]] = field(default_factory=list)
    num_uncounted: int = 0

    def warm_up(self, arm: Arm) -> None:
        """Send a short request that is not counted, and learn which fields the server refuses.

        A server may load its model at the first request. Strict ones (transformers, OpenAI) answer
        400 or 422 to a field they do not know and name it: it is left out from then on. Of any
        other failure the sweep will tell.

        Raises:
            StoppedError: The user wants an end.
        """
        trial = LoadSender(
            endpoint=self.endpoint,
            prompts=plain_prompts(["Hello."]),
            params=replace(self.params, max_tokens=min(_WARM_UP_TOKENS, self.params.max_tokens)),
            clock=self.clock,
            is_stopped=self.is_stopped,
        )
        while True:
            run = trial.run(arm, ArrivalPlan(math.inf, (0.0,)), _WARM_UP_LIMIT_S)
            refused = _refused_fields(run.timelines[0].failure or "", trial.endpoint)
            if not refused:
                break
            left_out = (*trial.endpoint.left_out, *refused)
            trial.endpoint = replace(trial.endpoint, left_out=left_out)
        self.endpoint = trial.endpoint

    def run(self, arm: Arm, plan: ArrivalPlan, limit_s: float) -> LoadRun:
        """Send every request at its time and wait for the answers, at most `limit_s` seconds.

        Raises:
            StoppedError: The user wants an end.
        """
        timelines = [Timeline(i, planned, planned) for i, planned in enumerate(plan.times_s)]
        origin = asyncio.run(self._send_all(timelines, limit_s))
        return LoadRun(arm, plan, timelines, [], origin, self.clock() - origin)

    async def _send_all(self, timelines: list[Timeline], limit_s: float) -> float:
        """Send and wait; returns when it began, which is once the client is set up."""
        tasks: list[asyncio.Task[None]] = []
        async with self.endpoint.client() as client:
            origin = self.clock()
            try:
                for timeline in timelines:
                    await self._wait(origin, min(timeline.planned_s, limit_s))
                    if timeline.planned_s > limit_s:
                        break
                    timeline.sent_s = self.clock() - origin
                    tasks.append(asyncio.create_task(self._ask(client, timeline, origin)))
                while any(not task.done() for task in tasks) and self.clock() - origin < limit_s:
                    await self._wait(origin, self.clock() - origin + _TICK_S)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        for timeline in timelines[len(tasks) :]:
            timeline.failure = "not sent in time"
        for timeline in timelines[: len(tasks)]:
            if not timeline.is_complete and timeline.failure is None:
                timeline.failure = "not finished in time"
        return origin

    async def _wait(self, origin: float, until_s: float) -> None:
        """Sleep until an absolute time, in naps so that Ctrl-C is seen."""
        while (left := until_s - (self.clock() - origin)) > 0.0:
            if self.is_stopped():
                raise StoppedError
            await asyncio.sleep(min(_TICK_S, left))

    async def _ask(self, client: httpx.AsyncClient, timeline: Timeline, origin: float) -> None:
        """One request; whatever goes wrong becomes its failure."""
        prompt = self.prompts[timeline.index % len(self.prompts)]
        seed = (self.params.seed or 0) + timeline.index
        body = self.endpoint.body(prompt, self.params, seed)
        answer = Answer(timeline)
        path = "completions" if self.endpoint.is_raw else "chat/completions"
        address = f"{self.endpoint.base}/{path}"
        try:
            async with client.stream("POST", address, json=body) as response:
                if response.status_code != httpx.codes.OK:
                    text = (await response.aread()).decode(errors="replace")
                    timeline.failure = refusal_words(response.status_code, text)
                    return
                async for record in stream_records(response):
                    answer.read(record, self.clock() - origin)
            answer.close()
            self.num_uncounted += answer.num_tokens is None
            if answer.drafted is not None:
                self.drafted.append(answer.drafted)
        except (httpx.HTTPError, ValueError, AttributeError, TypeError) as error:
            timeline.failure = failure_words(error)


def _refused_fields(failure: str, endpoint: Endpoint) -> list[str]:
    """Fields that a refusal names and that can still be left out."""
    if not failure.startswith(_REFUSED):
        return []
    return [name for name in _OPTIONAL if name in failure and name not in endpoint.left_out]
