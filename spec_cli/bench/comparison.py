"""The whole comparison: warm-up, batches, load; whatever is done when it ends early is kept."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from spec_cli.bench.arms import BASE, Arm
from spec_cli.bench.arrivals import ArrivalPlan, plan_arrivals
from spec_cli.bench.harness import (
    Group,
    LoadRun,
    Progress,
    Session,
    StoppedError,
    arm_order,
    run_group,
    run_load,
)
from spec_cli.bench.slo import ServiceLevel

_SENDING_SHARE = 0.7
"""Part of a cell's time in which requests are sent where no latency is known beforehand."""
_WAVES = 2
"""Prompts of a group, in batches: as rows end, others begin, so that the batch stays full."""
_FEWEST_REQUESTS = 4
_LEAST_SENDING_SHARE = 0.4
_LATENCIES = 1.25
"""Latencies of the largest batch that the last request is given to finish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run.

    Attributes:
        arms: The target alone first.
        batches: Batch sizes of the table, each at least 1.
        rates: Requests per second of the load sweep, ascending; may be empty.
        repeats: Of each group.
        warmup: Groups per arm that are run first and not counted.
        num_prompts: Prompts of the workload that the table uses, at least.
        num_available: Prompts of the workload in all.
        num_requests: Most requests per arm and rate.
        max_seconds: Most seconds of the sweep, all arms and rates together.
        seed: Of the arrivals.
        slo: Limits that goodput counts by.
    """

    arms: list[Arm]
    batches: list[int]
    rates: list[float]
    repeats: int
    warmup: int
    num_prompts: int
    num_available: int
    num_requests: int
    max_seconds: float
    seed: int
    slo: ServiceLevel

    @property
    def served_arms(self) -> list[Arm]:
        """Arms that can serve several requests at once."""
        return [arm for arm in self.arms if not arm.is_reference]

    @property
    def cell_s(self) -> float:
        """Seconds for one arm at one rate."""
        return self.max_seconds / max(1, len(self.rates) * len(self.served_arms))

    def for_lengths(self) -> "Plan":
        """The same at the first batch size, for other lengths of prompts and answers."""
        return replace(self, batches=self.batches[:1], rates=[], warmup=0)

    def arms_at(self, batch: int) -> list[Arm]:
        """Arms that can run a batch size."""
        return self.arms if batch == 1 else self.served_arms

    def groups_at(self, batch: int) -> list[list[int]]:
        """The prompts in groups: at batch 1 each alone, else enough to refill rows that end.

        Rows are refilled with other prompts only: one that was answered before would be answered
        from memory. With too few of them a group is one batch, filled up from the first.
        """
        size = batch
        if batch > 1 and self.num_available >= _WAVES * batch:
            size = _WAVES * batch
        return [list(range(first, first + size)) for first in range(0, self.num_prompts, size)]

    def arrivals(self, rate: float, room: "Room | None" = None) -> ArrivalPlan:
        """When requests come at a rate: the same for every arm.

        Args:
            rate: Requests per second.
            room: What can be answered in a cell's time, where that is known.
        """
        count, horizon_s = self.num_requests, _SENDING_SHARE * self.cell_s
        if room is not None:
            count, horizon_s = min(count, room.num_requests), room.sending_s
        return plan_arrivals(rate, count, seed=self.seed, horizon_s=horizon_s)

    @property
    def num_used(self) -> int:
        """Prompts of the workload that anything uses."""
        in_groups = [max(map(max, self.groups_at(batch))) + 1 for batch in self.batches]
        in_sweep = self.num_requests if self.rates else 0
        return min(self.num_available, max([self.num_prompts, in_sweep, *in_groups]))

    @property
    def num_parts(self) -> int:
        """Parts that progress counts."""
        groups = sum(
            len(self.groups_at(batch)) * len(self.arms_at(batch)) for batch in self.batches
        )
        return groups * self.repeats + len(self.rates) * len(self.served_arms)


@dataclass(frozen=True, slots=True)
class Room:
    """What the target alone can answer in the time of one arm at one rate.

    More would only be ended unfinished, and what is measured of the others would be the luck of
    having come first.

    Attributes:
        num_requests: Requests.
        sending_s: Seconds in which they are sent; the rest is for the last of them to finish.
    """

    num_requests: int
    sending_s: float


@dataclass(slots=True)
class Results:
    """What happened.

    Attributes:
        groups: By batch size and arm.
        loads: By rate and arm.
        kv_bytes: Key-value cache in use, by batch size and arm.
        is_interrupted: Whether the user ended it early.
    """

    groups: dict[tuple[int, str], list[Group]] = field(default_factory=dict)
    loads: dict[tuple[float, str], LoadRun] = field(default_factory=dict)
    kv_bytes: dict[tuple[int, str], int] = field(default_factory=dict)
    is_interrupted: bool = False


@dataclass(slots=True)
class Comparison:
    """Runs a plan.

    Attributes:
        session: Engines and what they share.
        plan: What to run.
        report: Told before each part.
        tell: Told of each finished cell: its kind, `batch` or `rate`, the value, and the arm.
        used_bytes: Bytes of key-value cache in use now.
        results: What is done so far.
    """

    session: Session
    plan: Plan
    report: Callable[[Progress], None]
    tell: Callable[[str, float, Arm], None]
    used_bytes: Callable[[], int] = lambda: 0
    results: Results = field(default_factory=Results)
    _done: int = 0

    def run(self) -> Results:
        """Run everything; Ctrl-C ends it and leaves what is done."""
        try:
            self._warm_up()
            for batch in self.plan.batches:
                self._run_batch(batch)
            for number, rate in enumerate(self.plan.rates):
                self._run_rate(rate, number)
        except StoppedError:
            self.results.is_interrupted = True
        return self.results

    def _warm_up(self) -> None:
        for number in range(self.plan.warmup):
            for arm in arm_order(self.plan.arms, number):
                self._announce(f"warming up {arm.name}")
                run_group(self.session, arm, self.plan.groups_at(1)[0], -1)

    def _run_batch(self, batch: int) -> None:
        arms, turn = self.plan.arms_at(batch), 0
        for repeat in range(self.plan.repeats):
            for indices in self.plan.groups_at(batch):
                for arm in arm_order(arms, turn):
                    self._announce(f"batch {batch}, {arm.name}, round {repeat + 1}")
                    group = run_group(self.session, arm, indices, repeat, batch)
                    self._done += 1
                    if group is not None:
                        self._keep(batch, arm, group)
                turn += 1
        for arm in arms:
            if self.results.groups.get((batch, arm.name)):
                self.tell("batch", batch, arm)

    def _keep(self, batch: int, arm: Arm, group: Group) -> None:
        key = (batch, arm.name)
        self.results.groups.setdefault(key, []).append(group)
        self.results.kv_bytes[key] = max(self.results.kv_bytes.get(key, 0), self.used_bytes())

    def _room(self) -> Room | None:
        """What fits into a cell, by what the table measured of the target alone."""
        groups = self.results.groups.get((max(self.plan.batches, default=0), BASE), [])
        seconds = sum(group.decode_s for group in groups)
        timelines = [each for group in groups for each in group.timelines]
        latencies = [each.end_to_end_s for each in timelines if each.end_to_end_s is not None]
        if not seconds or not latencies:
            return None
        cell_s = self.plan.cell_s
        sending_s = max(_LEAST_SENDING_SHARE * cell_s, cell_s - _LATENCIES * median(latencies))
        speed = sum(group.num_decode_tokens for group in groups) / seconds
        count = sending_s * speed / fmean(each.num_tokens for each in timelines)
        return Room(max(_FEWEST_REQUESTS, int(count)), sending_s)

    def _run_rate(self, rate: float, number: int) -> None:
        plan = self.plan.arrivals(rate, self._room())
        for arm in arm_order(self.plan.served_arms, number):
            label = "all at once" if math.isinf(rate) else f"{rate:g} requests/s"
            self._announce(f"{label}, {arm.name}")
            run = run_load(self.session, arm, plan, self.plan.cell_s)
            self._done += 1
            if run is not None:
                self.results.loads[rate, arm.name] = run
                self.tell("rate", rate, arm)

    def _announce(self, what: str) -> None:
        self.report(Progress(self._done, self.plan.num_parts, what))
