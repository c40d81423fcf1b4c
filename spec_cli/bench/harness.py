"""Runs the arms side by side on the same work, in the order A B B A, and keeps what happened.

Two kinds of run: groups (prompts of which B are answered at once, the next one beginning where one
ends) and open loop (requests sent at planned times, whether or not the engine keeps up).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from spec_cli.bench.arms import Arm, RequestFactory, Servable
from spec_cli.bench.arrivals import ArrivalPlan
from spec_cli.bench.timeline import Recorder, Timeline
from spec_cli.core.events import StepFinished

Clock = Callable[[], float]


class StoppedError(Exception):
    """Ctrl-C: what is done is kept, what runs is not."""


@dataclass(frozen=True, slots=True)
class Group:
    """Prompts answered by one arm, as many at once as the batch size says.

    Attributes:
        index: Which prompts: the same number in every arm is the same work.
        timelines: One per prompt.
        steps: All steps.
    """

    index: int
    repeat: int
    timelines: list[Timeline]
    steps: list[StepFinished]

    @property
    def decode_steps(self) -> list[StepFinished]:
        """Steps that processed no prompt and had all rows.

        When no prompt waits any more, rows fall idle; how many steps that lasts says more of which
        answer came last than of the speed of a batch of this size.
        """
        num_rows = max((len(step.rows) for step in self.steps), default=0)
        return [
            step
            for step in self.steps
            if not step.num_prefill_tokens and len(step.rows) == num_rows > 0
        ]

    @property
    def decode_s(self) -> float:
        """Seconds of `decode_steps`."""
        return sum(step.times.total_s for step in self.decode_steps)

    @property
    def num_decode_tokens(self) -> int:
        """Tokens emitted in them."""
        return sum(row.num_emitted for step in self.decode_steps for row in step.rows)


@dataclass(frozen=True, slots=True)
class LoadRun:
    """One arm at one request rate.

    Attributes:
        origin_s: The engine's time at its start.
        duration_s: From the start to the last event.
    """

    arm: Arm
    plan: ArrivalPlan
    timelines: list[Timeline]
    steps: list[StepFinished]
    origin_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a comparison is.

    Attributes:
        done: Parts done, of `total`.
        what: The part that begins now, in words.
    """

    done: int
    total: int
    what: str


@dataclass(slots=True)
class Session:
    """What all runs share.

    Attributes:
        engines: One per arm, by name, around the same loaded models.
        factory: Makes the same requests for every arm.
        clock: Seconds, monotonic; the engines' own.
        sleep: Waits for some seconds.
        reclaim: Drops cached prefixes, so that no arm gains from another's prompts.
        forget: Makes an arm's lookup forget the answers it has seen: the same prompts are run again
            and again, and would be answered from memory.
        synchronize: Waits for the device.
        is_stopped: Whether the user wants an end.
        failures: Arms that failed, with the reason; they are not run any more.
    """

    engines: dict[str, Servable]
    factory: RequestFactory
    clock: Clock
    sleep: Callable[[float], None]
    reclaim: Callable[[], None] = lambda: None
    forget: Callable[[Servable], None] = lambda _: None
    synchronize: Callable[[], None] = lambda: None
    is_stopped: Callable[[], bool] = lambda: False
    failures: dict[str, str] = field(default_factory=dict)

    def guarded(self, arm: Arm, run: Callable[[Servable], Recorder]) -> Recorder | None:
        """Run an arm; a failure ends this arm and no other.

        Raises:
            StoppedError: The user wants an end.
        """
        if arm.name in self.failures:
            return None
        engine = self.engines[arm.name]
        self.reclaim()
        self.forget(engine)
        self.synchronize()
        try:
            return run(engine)
        except StoppedError:
            raise
        except Exception as error:  # whatever it is, the other arms go on and the report says so
            self.failures[arm.name] = f"{type(error).__name__}: {error}"
            return None


def arm_order(arms: list[Arm], repeat: int) -> list[Arm]:
    """A B B A: every other repeat runs the arms backwards, so that drift favours none."""
    return arms if repeat % 2 == 0 else arms[::-1]


def run_group(
    session: Session, arm: Arm, indices: list[int], repeat: int, num_rows: int | None = None
) -> Group | None:
    """Answer some prompts; None if the arm failed.

    Args:
        session: What all runs share.
        arm: Who answers.
        indices: Numbers of the prompts.
        repeat: Which repetition this is, from 0.
        num_rows: How many are answered at once; None is all.
    """

    def run(engine: Servable) -> Recorder:
        """Keep so many rows busy until every prompt is answered."""
        recorder = Recorder()
        waiting = deque(indices)
        try:
            while waiting or engine.has_work:
                if session.is_stopped():
                    raise StoppedError
                while waiting and len(recorder.open_ids) < (num_rows or len(indices)):
                    now, index = session.clock(), waiting.popleft()
                    request = session.factory.make(index)
                    recorder.sent(request.request_id, index, planned_s=now, sent_s=now)
                    engine.add(request)
                recorder.read(engine.step())
        finally:
            _abort(engine, recorder)
        return recorder

    recorder = session.guarded(arm, run)
    if recorder is None:
        return None
    return Group(indices[0], repeat, recorder.timelines, recorder.steps)


def run_load(session: Session, arm: Arm, plan: ArrivalPlan, limit_s: float) -> LoadRun | None:
    """Send requests at their planned times and run the engine; None if the arm failed.

    A request is handed over at the first moment at or after its planned time at which the engine is
    between two steps. A step that lags never shifts the plan: times are absolute.

    Args:
        session: What all runs share.
        arm: Who serves.
        plan: When to send; request i asks prompt i.
        limit_s: After this the requests that are not complete are ended and counted as such.
    """

    def run(engine: Servable) -> Recorder:
        recorder = Recorder(session.clock())
        try:
            _serve(session, engine, plan, recorder, limit_s)
        finally:
            _abort(engine, recorder)
        return recorder

    recorder = session.guarded(arm, run)
    if recorder is None:
        return None
    duration = session.clock() - recorder.origin_s
    timelines = recorder.timelines
    for index in range(len(timelines), len(plan.times_s)):
        planned = plan.times_s[index]
        timelines.append(Timeline(index, planned, planned, failure="not sent in time"))
    return LoadRun(arm, plan, timelines, recorder.steps, recorder.origin_s, duration)


def _serve(
    session: Session,
    engine: Servable,
    plan: ArrivalPlan,
    recorder: Recorder,
    limit_s: float,
) -> None:
    num_sent = 0
    while num_sent < len(plan.times_s) or engine.has_work:
        if session.is_stopped():
            raise StoppedError
        now = session.clock() - recorder.origin_s
        if now > limit_s:
            return
        while num_sent < len(plan.times_s) and plan.times_s[num_sent] <= now:
            request = session.factory.make(num_sent)
            planned = plan.times_s[num_sent]
            recorder.sent(request.request_id, num_sent, planned_s=planned, sent_s=now)
            engine.add(request)
            num_sent += 1
        if engine.has_work:
            recorder.read(engine.step())
        elif num_sent < len(plan.times_s):
            # Short naps, so that Ctrl-C and the limit are seen.
            session.sleep(min(0.05, max(0.0, plan.times_s[num_sent] - now)))


def _abort(engine: Servable, recorder: Recorder) -> None:
    """Free the rows of whatever was not complete."""
    for request_id in recorder.open_ids:
        recorder.read(engine.abort(request_id))
