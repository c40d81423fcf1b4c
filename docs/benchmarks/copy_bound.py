"""The most that lookup could bring on a text, beside what it brings.

    python docs/benchmarks/copy_bound.py code qa summary

The prompts of each suite are answered one at a time, 128 tokens at most: by the target alone, then
with `--spec suffix -k auto`. From the answers and what forwards of 1 to 25 tokens take follows the
speed of a lookup that always knew where to copy from, after at least one token alike, and how far
the copy would hold: the least time over all ways to cut the answer into steps. No lookup in prompt
and answer can be faster on that text.
"""

import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise

from spec_cli import LLM, SamplingParams
from spec_cli.bench.workload import load_suites
from spec_cli.core.events import StepFinished, TokensEmitted
from spec_cli.models.base import RowInput

NUM_TOKENS = 128
CONTEXT = 300
SIZES = (1, 2, 3, 5, 9, 17, 25)
REPEATS = 9


def forward_times(llm: LLM) -> list[tuple[int, float]]:
    """Median seconds of forwards of one row, by tokens, timed in rounds."""
    target = llm.assembly.engine.parts.target
    token_ids = [7919 * i % target.vocab_size for i in range(CONTEXT + max(SIZES))]
    row = target.acquire(token_ids[:1], len(token_ids), 1)
    if row is None:
        raise SystemExit("no memory for a row")
    target.forward([RowInput(row, token_ids[:CONTEXT], 1)])
    times: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(REPEATS):
        for size in SIZES:
            begin = time.perf_counter()
            target.forward([RowInput(row, token_ids[CONTEXT : CONTEXT + size], size)])
            times[size].append(time.perf_counter() - begin)
            target.truncate(row, CONTEXT)
    target.release(row)
    return [(size, statistics.median(found)) for size, found in times.items()]


def interpolated(points: list[tuple[int, float]]) -> Callable[[int], float]:
    """Seconds by tokens, by straight lines between the points."""

    def seconds(size: int) -> float:
        for (low, before), (high, after) in pairwise(points):
            if size <= high:
                return before + (after - before) * (size - low) / (high - low)
        return points[-1][1]

    return seconds


def least_seconds(prompt: list[int], answer: list[int], seconds: Callable[[int], float]) -> float:
    """Of the decoding steps of an answer, had each drafted the best copy that would have held."""
    text, start = prompt + answer, len(prompt)
    best = [0.0] * (len(text) + 1)  # by tokens already there: least time for the rest
    for end in range(len(text) - 1, start, -1):
        best[end] = seconds(1) + best[end + 1]
        for source in range(1, end):
            if text[source - 1] != text[end - 1]:
                continue
            length = 0
            # The last token of a step is the target's own.
            while end + length + 1 < len(text) and text[source + length] == text[end + length]:
                length += 1
            length = min(length, max(SIZES) - 1)
            best[end] = min(best[end], seconds(1 + length) + best[end + length + 1])
    return best[start + 1]


def answer_one_by_one(llm: LLM, prompts: list[list[int]]) -> tuple[list[list[int]], float]:
    """Answers, and seconds of the steps that decoded them."""
    answers, seconds = [], 0.0
    for seed, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, seed=seed)
        answer: list[int] = []
        for event in llm.events([{"prompt_token_ids": prompt}], [params]):
            if isinstance(event, TokensEmitted):
                answer += [token.token_id for token in event.tokens]
            elif isinstance(event, StepFinished) and event.rows:
                seconds += event.times.total_s
        answers.append(answer)
    return answers, seconds


def main() -> None:
    """Print a line for each suite."""
    print("| suite | prompts | tokens | suffix, auto | most that lookup could |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with LLM(spec="off", max_rows=1) as llm:
        times = interpolated(forward_times(llm))
        for suite in sys.argv[1:]:
            conversations = [prompt.as_messages() for prompt in load_suites([suite])]
            prompts = [llm.render(messages)["prompt_token_ids"] for messages in conversations]
            llm.speculate(spec="off")
            answers, plain_s = answer_one_by_one(llm, prompts)
            llm.speculate(spec="suffix", num_draft_tokens="auto")
            same, suffix_s = answer_one_by_one(llm, prompts)
            if same != answers:
                raise SystemExit("the answers differ")
            count = sum(len(answer) - 1 for answer in answers)
            least_s = sum(map(least_seconds, prompts, answers, [times] * len(prompts)))
            fastest = count * times(1) / least_s
            print(
                f"| {suite} | {len(prompts)} | {count} | {plain_s / suffix_s:.2f}x "
                f"| {fastest:.2f}x |",
                flush=True,
            )


if __name__ == "__main__":
    main()
