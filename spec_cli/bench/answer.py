"""One streamed answer of a server, as it comes."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from spec_cli.bench.endpoint import error_message
from spec_cli.bench.timeline import Timeline


@dataclass(slots=True)
class Answer:
    """What one answer brought.

    Attributes:
        timeline: Of its request.
        num_tokens: As the server counts, or None.
        drafted: Draft tokens and those accepted, as llama.cpp counts, or None.
        finished_s: When the server said why it ended, or None.
    """

    timeline: Timeline
    num_tokens: int | None = None
    drafted: tuple[int, int] | None = None
    finished_s: float | None = None

    def read(self, record: dict[str, Any], now: float) -> None:
        """Take in one event of the stream.

        Raises:
            ValueError: It tells of an error.
        """
        if record.get("error"):
            words = error_message(record)
            raise ValueError("the server sent an error" + (f": {words}" if words else ""))
        for choice in record.get("choices") or []:
            delta = choice.get("delta") or {}
            # Thoughts are tokens too; vLLM calls them `reasoning`.
            texts = (delta.get(name) for name in ("content", "reasoning_content", "reasoning"))
            if choice.get("text") or any(texts):
                self.timeline.deliveries.append((now, 1))
            if choice.get("finish_reason") is not None:
                self.finished_s = now
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
        if self.finished_s is None:
            timeline.failure = "the stream ended early"
            return
        if not timeline.deliveries:
            timeline.failure = "the answer has no text"
            return
        missing = (self.num_tokens or 0) - timeline.num_tokens
        if missing > 0:
            # A chunk may hold several tokens, and a special token none of the text: the last of
            # them came no later than the end.
            _, count = timeline.deliveries[-1]
            timeline.deliveries[-1] = (self.finished_s, count + missing)
        timeline.is_complete = True


async def stream_records(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The events of a stream up to `[DONE]`, or to its end where a server sends none."""
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        record = json.loads(data)
        if isinstance(record, dict):
            yield record
