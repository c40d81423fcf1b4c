"""The same load against a running server that speaks OpenAI's API: vLLM, SGLang, llama.cpp, ours.

Whatever a server does, a request ends: with its answer, or as a failure that says what happened.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from spec_cli.bench.arms import Arm
from spec_cli.bench.arrivals import ArrivalPlan
from spec_cli.bench.harness import Clock, LoadRun, StoppedError
from spec_cli.bench.timeline import Timeline
from spec_cli.bench.workload import WorkPrompt
from spec_cli.core.errors import SpecCliError
from spec_cli.core.params import SamplingParams

_TICK_S = 0.05
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server and what is asked of it.

    Attributes:
        url: Base address, with or without `/v1`.
        model: Name that the server knows the model by.
        api_key: Sent as a bearer token, or None.
        is_raw: Continue texts by `/completions` instead of answering by `/chat/completions`.
        stall_s: Seconds without a word after which a request has failed.
    """

    url: str
    model: str
    api_key: str | None = None
    is_raw: bool = False
    stall_s: float = 30.0

    @property
    def base(self) -> str:
        """The address that paths are put after."""
        base = self.url.rstrip("/")
        return base if base.endswith("/v1") else f"{base}/v1"

    def client(self) -> httpx.AsyncClient:
        """A client with as many connections as there are requests."""
        return httpx.AsyncClient(
            headers=_headers(self.api_key),
            timeout=httpx.Timeout(self.stall_s, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    def body(self, prompt: WorkPrompt, params: SamplingParams, seed: int) -> dict[str, Any]:
        """What is posted for a prompt: a stream, always of the same number of tokens."""
        asked: dict[str, Any] = (
            {"prompt": prompt.text} if self.is_raw else {"messages": prompt.as_messages()}
        )
        return {
            "model": self.model,
            **asked,
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": seed,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


def _headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


def first_model(url: str, api_key: str | None) -> str:
    """The name of the first model that a server offers.

    Raises:
        SpecCliError: It cannot be asked, or offers none.
    """
    base = Endpoint(url=url, model="").base
    try:
        answer = httpx.get(f"{base}/models", headers=_headers(api_key), timeout=_CONNECT_S)
        answer.raise_for_status()
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise SpecCliError(
            f"{base}/models does not name a model: {_words(error)}.",
            hint="-m NAME, if the server is up and needs no other address",
        ) from error


@dataclass(slots=True)
class _Stream:
    """What one answer brought.

    Attributes:
        num_tokens: As the server counts, or None.
        drafted: Draft tokens and those accepted, as llama.cpp counts, or None.
    """

    timeline: Timeline
    num_tokens: int | None = None
    drafted: tuple[int, int] | None = None
    is_finished: bool = False

    def read(self, record: dict[str, Any], now: float) -> None:
        """Take in one event of the stream.

        Raises:
            ValueError: It tells of an error.
        """
        if record.get("error"):
            raise ValueError("the server sent an error")
        for choice in record.get("choices") or []:
            delta = choice.get("delta") or {}
            text = choice.get("text") or delta.get("content") or delta.get("reasoning_content")
            if text:
                self.timeline.deliveries.append((now, 1))
            self.is_finished = self.is_finished or choice.get("finish_reason") is not None
        usage = record.get("usage") or {}
        self.num_tokens = usage.get("completion_tokens", self.num_tokens)
        if usage.get("prompt_tokens"):
            self.timeline.num_prompt_tokens = int(usage["prompt_tokens"])
        timings = record.get("timings") or {}
        if timings.get("draft_n"):
            self.drafted = (timings["draft_n"], timings.get("draft_n_accepted", 0))

    def close(self) -> None:
        """The stream is over: complete, or ended early."""
        timeline = self.timeline
        if not self.is_finished or not timeline.deliveries:
            timeline.failure = "the stream ended early"
            return
        missing = (self.num_tokens or 0) - timeline.num_tokens
        if missing > 0:
            # A chunk may hold several tokens; only their number matters to the figures.
            moment, count = timeline.deliveries[-1]
            timeline.deliveries[-1] = (moment, count + missing)
        timeline.is_complete = True


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
    """

    endpoint: Endpoint
    prompts: list[WorkPrompt]
    params: SamplingParams
    clock: Clock
    is_stopped: Callable[[], bool] = lambda: False
    drafted: list[tuple[int, int]] = field(default_factory=list)

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
        stream = _Stream(timeline)
        path = "completions" if self.endpoint.is_raw else "chat/completions"
        try:
            async with client.stream("POST", f"{self.endpoint.base}/{path}", json=body) as answer:
                if answer.status_code != httpx.codes.OK:
                    timeline.failure = f"HTTP {answer.status_code}"
                    return
                async for record in _records(answer):
                    stream.read(record, self.clock() - origin)
            stream.close()
            if stream.drafted is not None:
                self.drafted.append(stream.drafted)
        except (httpx.HTTPError, ValueError, AttributeError, TypeError) as error:
            timeline.failure = _words(error)


async def _records(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The events of a stream up to `[DONE]`."""
    async for line in answer.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        record = json.loads(data)
        if isinstance(record, dict):
            yield record


def _words(error: Exception) -> str:
    """A failure in a few words, the same for every request that fails alike."""
    if isinstance(error, httpx.TimeoutException):
        return "timed out"
    if isinstance(error, httpx.ConnectError):
        return "cannot connect"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return "the connection was closed early"
    if isinstance(error, httpx.HTTPStatusError):
        return f"HTTP {error.response.status_code}"
    if isinstance(error, json.JSONDecodeError):
        return "the stream is not valid JSON"
    return str(error) or type(error).__name__


def speculation_counters(url: str, api_key: str | None) -> dict[str, float]:
    """Draft tokens and accepted ones that a server counts in its `/metrics`; empty without them.

    vLLM and spec-cli publish counters named `...spec_decode_num_draft_tokens` and
    `...spec_decode_num_accepted_tokens`, with or without `_total`.
    """
    root = Endpoint(url=url, model="").base.removesuffix("/v1")
    found: dict[str, float] = {}
    with contextlib.suppress(httpx.HTTPError):
        answer = httpx.get(f"{root}/metrics", headers=_headers(api_key), timeout=_CONNECT_S)
        for line in answer.text.splitlines() if answer.is_success else []:
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0].removesuffix("_total")
            for key in ("num_draft_tokens", "num_accepted_tokens"):
                if name.endswith(f"spec_decode_{key}"):
                    with contextlib.suppress(ValueError):
                        found[key] = found.get(key, 0.0) + float(value)
    return found
