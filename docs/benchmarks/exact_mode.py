"""Are the tokens of exact mode the same, whoever guesses, how much, and how many rows there are?

    python docs/benchmarks/exact_mode.py ./smollm2-draft

Answers prompts of the built-in suites with the default model in bfloat16 and `exact`: with
speculation off one after the other, greedily and at temperature 1, and then in every other way.
Each line is written when its way is done; the last says whether all tokens were identical.
"""

import itertools
import sys
import time
from collections.abc import Iterator

from spec_cli import LLM, SamplingParams
from spec_cli.bench.workload import load_suites

NUM_PROMPTS = 20
NUM_TOKENS = 128
SUITES = ["chat", "code", "summary", "qa", "translation", "math"]
LENGTHS = (2, 4, 8)
BATCHES = (1, 4)
TEMPERATURES = (0.0, 1.0)

Answers = list[tuple[int, ...]]


def ways(llm: LLM) -> Iterator[str]:
    """Speculate in each way in turn; yields its name."""
    llm.speculate(spec="off", draft_model=None, num_draft_tokens="auto")
    yield "off"
    for spec, length in itertools.product(("ngram", "suffix"), LENGTHS):
        llm.speculate(spec=spec, num_draft_tokens=length)
        yield f"{spec} k={length}"
    for length in LENGTHS:
        llm.speculate(spec="draft", draft_model=sys.argv[1], num_draft_tokens=length)
        yield f"draft k={length}"


def answer(llm: LLM, temperature: float, num_rows: int) -> tuple[Answers, int, int]:
    """Token ids of the answers, tokens drafted and accepted; one prompt at a time, or all."""
    talks = [prompt.as_messages() for prompt in load_suites(SUITES)[:NUM_PROMPTS]]
    params = [
        SamplingParams(temperature=temperature, max_tokens=NUM_TOKENS, seed=seed)
        for seed in range(len(talks))
    ]
    size = 1 if num_rows == 1 else len(talks)
    outputs = [
        output
        for at in range(0, len(talks), size)
        for output in llm.chat(talks[at : at + size], params[at : at + size])
    ]
    drafted = sum(output.stats.num_draft_tokens for output in outputs)
    accepted = sum(output.stats.num_accepted_draft_tokens for output in outputs)
    return [output.outputs[0].token_ids for output in outputs], drafted, accepted


def main() -> None:
    """Run every way and print its line."""
    wanted: dict[float, Answers] = {}
    num_different = 0
    with LLM(dtype="bfloat16", exact=True, spec="off", max_rows=max(BATCHES)) as llm:
        print(*llm.assembly.notices, sep="\n")
        print("\n| temperature | rows | way | drafted | accepted | tokens | identical | seconds |")
        print("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
        for temperature, num_rows in itertools.product(TEMPERATURES, BATCHES):
            for way in ways(llm):
                begin = time.perf_counter()
                found, drafted, accepted = answer(llm, temperature, num_rows)
                seconds = time.perf_counter() - begin
                want = wanted.setdefault(temperature, found)
                same = sum(a == b for a, b in zip(found, want, strict=True))
                num_different += len(want) - same
                tokens = sum(map(len, found))
                line = (temperature, num_rows, way, drafted, accepted, tokens)
                print("|", *(f"{each} |" for each in line), end=" ")
                print(f"{same} of {len(want)} | {seconds:.0f} |", flush=True)
    print(f"\n{num_different} answers differ from those of the target alone, one at a time.")
    sys.exit(min(num_different, 1))


if __name__ == "__main__":
    main()
