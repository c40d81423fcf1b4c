"""What drafting brings, by a run's own draft-free steps: a machine's moods cancel out.

    python docs/benchmarks/within_run.py ./smollm2-draft chat,translation,math draft:16 hybrid:16

For each way and number of rows (and number format, as in `draft:1:bfloat16`) the prompts of some
suites are answered with `-k auto`, 128 tokens each. Of the steps that had all rows and no prompt,
the line gives tokens per second over those of the mean draft-free step less its time for guessing
and choosing, which no speculation would not have. So 1.00 is the target alone, and what the policy
costs counts against it. It is the mean, not the median, because steps with drafts meet the
machine's pauses as often as those without.
"""

import statistics
import sys

from spec_cli import LLM, SamplingParams
from spec_cli.bench.workload import load_suites
from spec_cli.core.events import StepFinished

NUM_TOKENS = 128


def steps_of(llm: LLM, suites: list[str], num_rows: int) -> list[StepFinished]:
    """The steps with all rows and no prompt, of all prompts of the suites."""
    prompts = load_suites(suites)
    params = [
        SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, seed=seed, ignore_eos=True)
        for seed in range(len(prompts))
    ]
    rendered = [llm.render(prompt.as_messages()) for prompt in prompts]
    return [
        event
        for event in llm.events(rendered, params)
        if isinstance(event, StepFinished)
        and len(event.rows) == num_rows
        and not event.num_prefill_tokens
    ]


def main() -> None:
    """Run every way and print its line."""
    draft_model, suites, *ways = sys.argv[1:]
    print("| way | rows | steps | drafting | drafted | accepted | draft-free step ms | speed |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for way in ways:
        spec, rows, *dtype = way.split(":")
        options = {"spec": spec, "max_rows": int(rows), "dtype": dtype[0] if dtype else "auto"}
        if spec in ("draft", "hybrid"):
            options["draft_model"] = draft_model
        with LLM(**options) as llm:
            steps = steps_of(llm, suites.split(","), int(rows))
        drafts = [row for step in steps for row in step.rows if row.draft_token_ids]
        free = [step.times for step in steps if not any(row.draft_token_ids for row in step.rows)]
        plain_s = statistics.fmean(times.total_s - times.propose_s for times in free)
        tokens = sum(row.num_emitted for step in steps for row in step.rows)
        seconds = sum(step.times.total_s for step in steps)
        line = (
            *(spec, rows, len(steps), len(steps) - len(free)),
            *(sum(row.num_judged for row in drafts), sum(row.num_accepted for row in drafts)),
            *(f"{plain_s * 1e3:.1f}", f"{tokens / seconds * plain_s / int(rows):.3f}x"),
        )
        print("|", *(f"{each} |" for each in line), flush=True)


if __name__ == "__main__":
    main()
