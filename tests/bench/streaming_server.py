"""A small HTTP server that speaks enough of OpenAI's API, well or badly, on real sockets."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMPLETE = ("fine", "as-transformers", "uncounted")
BROKEN_EVENTS = {
    "garbage": "{oops",
    "error-event": '{"error": {"message": "broken"}}',
    "error-words": '{"error": "out of memory"}',
}
BEHAVIOURS = ("fine", "stalls", "500", "closes", "no-end", "garbage", "error-event")


class _Handler(BaseHTTPRequestHandler):
    """Answers as the server's behaviour says; `mixed` behaves by the number of the request."""

    protocol_version = "HTTP/1.1"
    server: "StreamingServer"

    def log_message(self, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        """Models and metrics."""
        if self.path.endswith("/models"):
            self._send(json.dumps({"object": "list", "data": self.server.models}))
        elif self.path == "/metrics" and self.server.has_metrics:
            count = len(self.server.bodies)
            self._send(
                "# TYPE vllm:spec_decode_num_draft_tokens counter\n"
                f'vllm:spec_decode_num_draft_tokens_total{{model="tiny"}} {40.0 * count}\n'
                f'vllm:spec_decode_num_accepted_tokens_total{{model="tiny"}} {30.0 * count}\n'
            )
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        """One streamed answer."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            number = len(self.server.bodies) - 1
        behaviour = self.server.behaviour
        if behaviour == "mixed":
            behaviour = BEHAVIOURS[number % len(BEHAVIOURS)]
        unknown = [name for name in self.server.unknown_fields if name in body]
        if unknown:
            self._send(json.dumps({"detail": f"Unexpected fields: {unknown}"}), 422)
            return
        if behaviour == "500":
            self.send_error(500)
            return
        if behaviour == "loading":
            self._send(json.dumps({"error": {"message": "Loading model", "code": 503}}), 503)
            return
        with contextlib.suppress(OSError):
            self._stream(body, behaviour)

    def _stream(self, body: dict[str, Any], behaviour: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        length = body["max_tokens"]
        if self.server.eos_after is not None and not body.get("ignore_eos"):
            length = min(length, self.server.eos_after)
        for number in range(length):
            time.sleep(self.server.token_s)
            self._event({"choices": [{"index": 0, "delta": {self.server.text_field: "x"}}]})
            if number == 2 and behaviour not in COMPLETE:
                break
        if behaviour == "stalls":
            self.server.stop.wait(20)
        elif behaviour == "closes":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        elif behaviour in COMPLETE:
            self._end(body, behaviour, length)
        elif behaviour in BROKEN_EVENTS:
            self._chunk(f"data: {BROKEN_EVENTS[behaviour]}\n\n")
        self._chunk("")

    def _end(self, body: dict[str, Any], behaviour: str, length: int) -> None:
        """Why it ended, how many tokens there were, and the end mark: as the server does it."""
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
        if behaviour == "as-transformers":
            # The count comes with the reason, and no end mark.
            self._event(end | {"usage": {"prompt_tokens": 5, "completion_tokens": length}})
            return
        self._event(end)
        if behaviour == "fine":
            usage = {"prompt_tokens": 5, "completion_tokens": body["max_tokens"] + 2}
            timings = {"draft_n": 10, "draft_n_accepted": 7} if self.server.has_timings else {}
            self._event({"choices": [], "usage": usage, "timings": timings})
        self._chunk("data: [DONE]\n\n")

    def _event(self, record: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(record)}\n\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, text: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class StreamingServer(ThreadingHTTPServer):
    """The server, and what it was asked."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behaviour: str, **options: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = behaviour
        self.models = options.get("models", [{"id": "tiny"}])
        self.unknown_fields = options.get("unknown_fields", ())
        self.eos_after = options.get("eos_after")
        self.text_field = options.get("text_field", "content")
        self.has_metrics = options.get("has_metrics", False)
        self.has_timings = options.get("has_timings", False)
        self.token_s = options.get("token_s", 0.005)
        self.bodies: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.stop = threading.Event()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


@contextlib.contextmanager
def serving(behaviour: str, **options: Any) -> Iterator[StreamingServer]:
    """A server while it is needed."""
    server = StreamingServer(behaviour, **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()
