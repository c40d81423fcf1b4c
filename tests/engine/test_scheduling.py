"""Who takes part in a step: first come, first served, prompts in pieces."""

import pytest
import torch

from spec_cli.core.events import RequestStarted, TokensEmitted
from spec_cli.engine.scheduler import PrefillBudget
from spec_cli.models.base import RowInput
from tests.driving import Driver, drive, request
from tests.fakes import FakeClock, FakeRunner


class Timed(FakeRunner):
    """Says 1; a token of a forward takes `token_s` seconds."""

    def __init__(self, clock: FakeClock, token_s: float) -> None:
        super().__init__(4, 100_000)
        self.clock, self.token_s = clock, token_s

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        return torch.tensor([0.0, 1.0, 0.0, 0.0])

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        self.clock.now_s += self.token_s * sum(len(item.token_ids) for item in inputs)
        return super().forward(inputs)


def make(token_s: float = 0.001, max_rows: int = 16) -> Driver:
    clock = FakeClock(0.0)
    return drive(Timed(clock, token_s), clock=clock, max_rows=max_rows, prefill_target_s=0.25)


def chunks(driver: Driver) -> list[int]:
    return [step.num_prefill_tokens for step in driver.steps if step.num_prefill_tokens]


def test_chunks_grow_to_the_time_they_may_take() -> None:
    """Pieces of a long prompt begin small and settle at what a quarter of a second holds."""
    driver = make(token_s=2**-10)
    driver.add(request("0", (1,) * 2000, 3))
    driver.run()

    assert chunks(driver)[0] == 128
    assert all(b <= 2 * a for a, b in zip(chunks(driver), chunks(driver)[1:], strict=False))
    assert chunks(driver)[1:-1] == [256] * (len(chunks(driver)) - 2)
    assert sum(chunks(driver)) == 2000


def test_chunks_shrink_on_a_slow_machine() -> None:
    """Where a token takes long, pieces get smaller, down to 32 tokens."""
    driver = make(token_s=2**-8)
    driver.add(request("0", (1,) * 500, 3))
    driver.run()
    assert set(chunks(driver)[1:-1]) == {64}
    driver = make(token_s=1.0)
    driver.add(request("0", (1,) * 300, 3))
    driver.run()

    assert set(chunks(driver)[1:-1]) == {32}


def test_small_steps_do_not_teach_the_budget() -> None:
    """A step that used little of the budget, or took no time, leaves it as it is."""
    budget = PrefillBudget(0.25)
    budget.observe(10, 1.0)
    budget.observe(128, 0.0)
    assert budget.num_tokens == 128
    budget.observe(128, 0.001)
    assert budget.num_tokens == 256
    for _ in range(20):
        budget.observe(budget.num_tokens, 1e-9)

    assert budget.num_tokens == 4096


def test_decoding_goes_on_beside_a_long_prompt() -> None:
    """While another's prompt is read in pieces, a decoding row gains a token in every step."""
    driver = make()
    driver.add(request("0", (1,), 8))
    driver.step()
    driver.add(request("1", (1,) * 900, 2))
    for _ in range(4):
        events = driver.step()
        emitted = [event.request_id for event in events if isinstance(event, TokensEmitted)]
        assert emitted == ["0"]
        assert driver.steps[-1].num_prefill_tokens > 0
    driver.run()

    assert len(driver.answers["1"].token_ids) == 2


def test_prompts_share_the_budget_oldest_first() -> None:
    """Short prompts are read in one step together; the next waits for its turn."""
    driver = make()
    driver.add(*(request(str(i), (1,) * 50, 1) for i in range(4)))
    driver.step()
    done = [i for i in "0123" if driver.answers[i].tokens]

    assert done == ["0", "1"]
    assert chunks(driver) == [128]
    driver.run()
    assert chunks(driver) == [128, 72]


@pytest.mark.parametrize("max_rows", [1, 2, 5])
def test_first_come_first_served(max_rows: int) -> None:
    """Requests start in the order they came, never more at once than allowed, and all end."""
    driver = make(max_rows=max_rows)
    for i, length in enumerate((9, 1, 5, 3, 7, 2, 8)):
        driver.add(request(str(i), (1, 2), length))
    running = 0
    for _ in range(200):
        if not driver.engine.has_work:
            break
        events = driver.step()
        running += sum(isinstance(event, RequestStarted) for event in events)
        assert running <= max_rows
        running -= sum(type(event).__name__ == "RequestFinished" for event in events)
    started = [event.request_id for event in driver.events if isinstance(event, RequestStarted)]

    assert started == list("0123456")
    assert running == 0
    assert [len(a.token_ids) for a in driver.answers.values()] == [9, 1, 5, 3, 7, 2, 8]


def test_rows_join_and_leave_at_any_step() -> None:
    """A request added between steps takes part in the next one; a freed row is taken at once."""
    driver = make(max_rows=2)
    driver.add(request("0", (1,), 3), request("1", (1,), 10), request("2", (1,), 4))
    driver.step()
    driver.step()
    driver.step()  # the last token of 0
    assert driver.answers["0"].finished is not None
    assert driver.answers["2"].started is None
    driver.step()

    assert len(driver.answers["2"].tokens) == 1
    assert len(driver.answers["1"].tokens) == 4


def test_queue_time_is_waiting_time() -> None:
    """A request that had to wait reports how long, apart from its prefill."""
    driver = make(max_rows=1)
    driver.add(request("0", (1,), 5), request("1", (1,), 2))
    answers = driver.run()

    assert answers["0"].stats.queue_s == 0.0
    assert answers["1"].stats.queue_s == pytest.approx(0.005)
    assert answers["1"].stats.prefill_s == pytest.approx(0.001)


def test_an_idle_engine_does_nothing() -> None:
    """Without requests a step brings no event and no forward."""
    driver = make()

    assert not driver.engine.has_work
    assert driver.step() == []
    assert driver.engine.abort("nobody") == []
