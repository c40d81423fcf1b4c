"""The figures after the answers, on stderr."""

from rich.console import Console

from spec_cli.cli.answers import Answers
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.report import RunDescription, peak_bytes
from spec_cli.core.params import SamplingParams
from spec_cli.ui.stats_full import stats_full
from spec_cli.ui.stats_line import LineFacts, stats_line
from spec_cli.ui.totals import total_stats


def print_statistics(
    answers: Answers,
    params: list[SamplingParams],
    run: RunDescription,
    screen: ScreenOptions,
    console: Console,
) -> None:
    """Print the line of figures, and all figures if asked for."""
    if not screen.shows_stats or not answers.finished:
        return
    stats = total_stats(answers.finished, answers.wall_s)
    facts = LineFacts(
        state=answers.state,
        finish_reason=answers.finish_reason,
        max_tokens=params[0].max_tokens,
        num_draft_tokens=run.settings["num_draft_tokens"],
        drafter=drafter(run.draft),
        peak_bytes=peak_bytes(),
        num_answers=len(answers.finished),
    )
    width = console.width if console.is_terminal else None
    console.print(stats_line(stats, facts, width=width, is_plain=screen.plain), style="dim")
    if screen.stats_full:
        seeds = sorted({each.seed for each in params if each.seed is not None})
        console.print(stats_full(stats, run.env, seeds, is_plain=screen.plain), style="dim")


def drafter(draft: dict[str, object] | None) -> str:
    """Who guesses, in a word or two."""
    if draft is None:
        return "no draft"
    if draft["kind"] == "ngram":
        return "n-gram"
    if draft["kind"] == "suffix":
        return "lookup"
    name = str(draft["id"]).rstrip("/").rpartition("/")[2]
    return f"draft {name} + lookup" if draft["kind"] == "hybrid" else f"draft {name}"
