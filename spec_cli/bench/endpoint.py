"""A running server that speaks OpenAI's API, and what is posted to it."""

import json
from dataclasses import dataclass
from typing import Any

import httpx

from spec_cli.bench.workload import WorkPrompt
from spec_cli.core.params import SamplingParams

CONNECT_S = 10.0
_MAX_WORDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server and what is asked of it.

    Attributes:
        url: Base address, with or without `/v1`.
        model: Name that the server knows the model by.
        api_key: Sent as a bearer token, or None.
        is_raw: Continue texts by `/completions` instead of answering by `/chat/completions`.
        stall_s: Seconds without a word after which a request has failed.
        left_out: Fields of the body that the server refuses.
    """

    url: str
    model: str
    api_key: str | None = None
    is_raw: bool = False
    stall_s: float = 30.0
    left_out: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """The address that paths are put after."""
        base = self.url.rstrip("/")
        return base if base.endswith("/v1") else f"{base}/v1"

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}

    def client(self) -> httpx.AsyncClient:
        """A client with as many connections as there are requests."""
        return httpx.AsyncClient(
            headers=self.headers,
            timeout=httpx.Timeout(self.stall_s, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    def body(self, prompt: WorkPrompt, params: SamplingParams, seed: int) -> dict[str, Any]:
        """What is posted for a prompt: a stream, always of the same number of tokens."""
        asked: dict[str, Any] = (
            {"prompt": prompt.text} if self.is_raw else {"messages": prompt.as_messages()}
        )
        body = {
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
        return {name: value for name, value in body.items() if name not in self.left_out}


def failure_words(error: Exception) -> str:
    """A failure in a few words, the same for every request that fails alike."""
    if isinstance(error, httpx.TimeoutException):
        return "timed out"
    if isinstance(error, httpx.ConnectError):
        return "cannot connect"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return "the connection was closed early"
    if isinstance(error, httpx.HTTPStatusError):
        return refusal_words(error.response.status_code, error.response.text)
    if isinstance(error, json.JSONDecodeError):
        return "the stream is not valid JSON"
    return str(error) or type(error).__name__


def refusal_words(status: int, text: str) -> str:
    """What a server that refuses a request says, such as `HTTP 503: Loading model`.

    Args:
        status: Of the answer.
        text: Its body: `{"error": {"message": ...}}` as OpenAI has it, `{"detail": ...}`, or plain
            text. A page of HTML tells no more than the status.
    """
    try:
        words = error_message(json.loads(text))
    except ValueError:
        words = "" if text.lstrip().startswith("<") else text
    words = " ".join(words.split())
    if len(words) > _MAX_WORDS:
        words = words[:_MAX_WORDS].rstrip() + "..."
    return f"HTTP {status}: {words}" if words else f"HTTP {status}"


def error_message(record: Any) -> str:
    """The message in an error's JSON; empty where it has none."""
    if isinstance(record, str):
        return record
    if isinstance(record, dict):
        for name in ("error", "message", "detail"):
            if record.get(name):
                return error_message(record[name]) or json.dumps(record[name])
    return ""
