"""What a running server tells of itself: its models, and how it speculates."""

import contextlib
from typing import Any

import httpx

from spec_cli.bench.endpoint import CONNECT_S, Endpoint, failure_words
from spec_cli.core.errors import SpecCliError


def offered_models(url: str, api_key: str | None) -> list[str]:
    """The names of the models that a server offers, at least one, loaded ones first.

    llama.cpp and transformers list models that they would load when asked, and say which are.

    Raises:
        SpecCliError: It cannot be asked, or offers none.
    """
    endpoint = Endpoint(url=url, model="", api_key=api_key)
    address = f"{endpoint.base}/models"
    hint = "-m NAME, if the server is up and needs no other address"
    try:
        answer = httpx.get(address, headers=endpoint.headers, timeout=CONNECT_S)
        answer.raise_for_status()
        offered = [(_is_loaded(each), str(each["id"])) for each in answer.json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        words = failure_words(error)
        raise SpecCliError(f"{address} names no model: {words}.", hint=hint) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SpecCliError(
            f"{address} names no model: its answer is no list of models.", hint=hint
        ) from error
    if not offered:
        raise SpecCliError(f"{address} names no model: its list is empty.", hint=hint)
    return [name for _, name in sorted(offered, key=lambda each: not each[0])]


def _is_loaded(record: dict[str, Any]) -> bool:
    status = record.get("status")
    return isinstance(status, dict) and status.get("value") == "loaded"


def speculation_counters(url: str, api_key: str | None) -> dict[str, float]:
    """Draft tokens and accepted ones that a server counts in its `/metrics`; empty without them.

    vLLM and llama.cpp publish counters named `...spec_decode_num_draft_tokens` and
    `...spec_decode_num_accepted_tokens`, with or without `_total`.
    """
    endpoint = Endpoint(url=url, model="", api_key=api_key)
    root = endpoint.base.removesuffix("/v1")
    found: dict[str, float] = {}
    with contextlib.suppress(httpx.HTTPError):
        answer = httpx.get(f"{root}/metrics", headers=endpoint.headers, timeout=CONNECT_S)
        for line in answer.text.splitlines() if answer.is_success else []:
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0].removesuffix("_total")
            for key in ("num_draft_tokens", "num_accepted_tokens"):
                if name.endswith(f"spec_decode_{key}"):
                    with contextlib.suppress(ValueError):
                        found[key] = found.get(key, 0.0) + float(value)
    return found
