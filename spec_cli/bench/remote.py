"""A load sweep over servers, in the same report as one over arms."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spec_cli.bench.arms import BASE, Arm
from spec_cli.bench.comparison import Plan, Results
from spec_cli.bench.harness import Progress, StoppedError, arm_order
from spec_cli.bench.sender import LoadSender
from spec_cli.bench.server_facts import speculation_counters

Counts = dict[str, tuple[int, int]]


def endpoint_arms(urls: list[str]) -> list[Arm]:
    """One arm per server; the first is what the others are measured against."""
    names = [BASE, *urls[1:]]
    return [Arm(name, "endpoint", None) for name in names]


@dataclass(slots=True)
class RemoteSweep:
    """Sends every rate of a plan to every server.

    Attributes:
        senders: One per arm, by name.
        plan: With rates and without batches.
        report: Told before each part.
        tell: Told of each finished cell.
        results: What is done so far.
        drafted: Draft tokens and accepted ones by server, where it counts them.
    """

    senders: dict[str, LoadSender]
    plan: Plan
    report: Callable[[Progress], None]
    tell: Callable[[str, float, Arm], None]
    results: Results = field(default_factory=Results)
    drafted: Counts = field(default_factory=dict)

    def run(self) -> Results:
        """Run everything; Ctrl-C ends it and leaves what is done."""
        before: dict[str, dict[str, float]] = {}
        done = 0
        try:
            for arm in self.plan.arms:
                self.report(Progress(0, self.plan.num_parts, f"warming up {arm.name}"))
                self.senders[arm.name].warm_up(arm)
                before[arm.name] = _counters(self.senders[arm.name])
            for number, rate in enumerate(self.plan.rates):
                for arm in arm_order(self.plan.arms, number):
                    self.report(Progress(done, self.plan.num_parts, f"{rate:g}/s, {arm.name}"))
                    plan = self.plan.arrivals(rate)
                    run = self.senders[arm.name].run(arm, plan, self.plan.cell_s)
                    self.results.loads[rate, arm.name] = run
                    self.tell("rate", rate, arm)
                    done += 1
        except StoppedError:
            self.results.is_interrupted = True
        for name, counters in before.items():
            counts = _since(self.senders[name], counters)
            if counts is not None:
                self.drafted[name] = counts
        return self.results


def _counters(sender: LoadSender) -> dict[str, float]:
    return speculation_counters(sender.endpoint.url, sender.endpoint.api_key)


def _since(sender: LoadSender, before: dict[str, float]) -> tuple[int, int] | None:
    """Draft tokens and accepted ones, by the server's counters or by what answers told."""
    after = _counters(sender)
    names = ("num_draft_tokens", "num_accepted_tokens")
    drafted, accepted = (int(after.get(name, 0.0) - before.get(name, 0.0)) for name in names)
    if sender.drafted and not drafted:
        return sum(each[0] for each in sender.drafted), sum(each[1] for each in sender.drafted)
    return (drafted, accepted) if after else None


def server_words(sweep: RemoteSweep, max_tokens: int) -> list[str]:
    """What must be known of the servers to read the figures.

    Args:
        sweep: As far as it ran.
        max_tokens: Asked of every answer.
    """
    words = []
    for name, sender in sweep.senders.items():
        url = sender.endpoint.url
        if sender.endpoint.left_out:
            words.append(f"{url} refuses {', '.join(sender.endpoint.left_out)}: sent without.")
        words += _length_words(url, _answer_lengths(sweep, name), max_tokens)
        if sender.num_uncounted:
            words.append(f"{url} does not count tokens: each chunk of an answer counts as one.")
        if name in sweep.drafted:
            words.append(_draft_words(url, *sweep.drafted[name]))
    return words


def _answer_lengths(sweep: RemoteSweep, name: str) -> list[int]:
    return [
        timeline.num_tokens
        for (_, arm), run in sweep.results.loads.items()
        for timeline in run.timelines
        if arm == name and timeline.is_complete
    ]


def _length_words(url: str, lengths: list[int], max_tokens: int) -> list[str]:
    """Latencies of answers of different lengths are not of the same work."""
    if not lengths or set(lengths) == {max_tokens}:
        return []
    low, high = min(lengths), max(lengths)
    found = f"{low} tokens" if low == high else f"{low} to {high} tokens"
    mean = sum(lengths) / len(lengths)
    return [
        f"{url} wrote {found} an answer, {mean:.1f} on average, where {max_tokens} were asked for:"
        " compare its TPOT, not its latencies or tok/s."
    ]


def _draft_words(url: str, num_drafted: int, num_accepted: int) -> str:
    if not num_drafted:
        return f"{url} counts no draft tokens."
    return (
        f"{url} counts {num_drafted} draft tokens put to its target,"
        f" {num_accepted / num_drafted:.0%} of them accepted ({num_accepted}/{num_drafted})."
    )


def server_record(sweep: RemoteSweep) -> dict[str, Any]:
    """The servers in JSON."""
    first = next(iter(sweep.senders.values()))
    return {
        "model": {"id": first.endpoint.model, "source": "server"},
        "draft": None,
        "servers": [
            {
                "arm": name,
                "url": sender.endpoint.url,
                "model": sender.endpoint.model,
                "left_out_fields": list(sender.endpoint.left_out),
                "num_draft_tokens": sweep.drafted[name][0] if name in sweep.drafted else None,
                "num_accepted_draft_tokens": (
                    sweep.drafted[name][1] if name in sweep.drafted else None
                ),
            }
            for name, sender in sweep.senders.items()
        ],
    }
