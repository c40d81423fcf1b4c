"""A load sweep over servers, in the same report as one over arms."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spec_cli.bench.arms import BASE, Arm
from spec_cli.bench.comparison import Plan, Results
from spec_cli.bench.endpoint import LoadSender, speculation_counters
from spec_cli.bench.harness import Progress, StoppedError, arm_order

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
        before = {name: _counters(sender) for name, sender in self.senders.items()}
        done = 0
        try:
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
        for name, sender in self.senders.items():
            counts = _since(sender, before[name])
            if counts is not None:
                self.drafted[name] = counts
        return self.results


def _counters(sender: LoadSender) -> dict[str, float]:
    return speculation_counters(sender.endpoint.url, sender.endpoint.api_key)


def _since(sender: LoadSender, before: dict[str, float]) -> tuple[int, int] | None:
    """Draft tokens and accepted ones, by the server's counters or by what answers told."""
    after = _counters(sender)
    if after:
        names = ("num_draft_tokens", "num_accepted_tokens")
        drafted, accepted = (int(after.get(n, 0.0) - before.get(n, 0.0)) for n in names)
        return drafted, accepted
    if sender.drafted:
        return sum(each[0] for each in sender.drafted), sum(each[1] for each in sender.drafted)
    return None


def server_words(drafted: Counts, urls: dict[str, str]) -> list[str]:
    """What servers say of their own speculation, in words."""
    words = []
    for name, (num_drafted, num_accepted) in drafted.items():
        share = f"{num_accepted / num_drafted:.0%}" if num_drafted else "none"
        words.append(
            f"{urls[name]} counts {num_drafted} draft tokens put to its target, {share} of them"
            f" accepted ({num_accepted}/{num_drafted})."
        )
    return words


def server_record(urls: dict[str, str], model: str, drafted: Counts) -> dict[str, Any]:
    """The servers in JSON."""
    return {
        "model": {"id": model, "source": "server", "dtype": "-", "device": "-"},
        "draft": None,
        "servers": [
            {
                "arm": name,
                "url": url,
                "num_draft_tokens": drafted[name][0] if name in drafted else None,
                "num_accepted_draft_tokens": drafted[name][1] if name in drafted else None,
            }
            for name, url in urls.items()
        ],
    }
