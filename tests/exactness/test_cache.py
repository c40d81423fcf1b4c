"""The slot cache: whatever rows went through, their logits are those of a fresh forward alone."""

import random
import re
from typing import Any

import pytest
import torch

from spec_cli.core.errors import InsufficientMemoryError
from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.models.slots import SlotRow
from spec_cli.proposers.draft_model import DraftModelProposer
from tests import tiny
from tests.driving import PLENTY, Driver, drive, drive_tiny, request
from tests.fakes import FakeRunner, ScriptedProposer

NUM_TOKENS = 16
WINDOWED = ("mistral", "gemma2", "gemma3_text")


def make_runner(family: str, budget: MemoryBudget | None = None, **options: Any) -> ModelRunner:
    options.setdefault("context_length", tiny.CONTEXT)
    return ModelRunner(tiny.slotted(family), budget=budget or MemoryBudget(PLENTY), **options)


@torch.inference_mode()
def fresh(family: str, token_ids: list[int]) -> torch.Tensor:
    """Logits `[T, V]` of a sequence alone, without a cache."""
    logits: torch.Tensor = tiny.plain(family)(torch.tensor([token_ids]), use_cache=False).logits
    return logits[0]


class Schedule:
    """Rows that are born, grow, are cut back and die at random, some from another's prefix."""

    def __init__(self, family: str, seed: int) -> None:
        self.family = family
        self.rng = random.Random(seed)
        self.runner = make_runner(family)
        self.rows: list[SlotRow] = []
        self.graves: list[list[int]] = []
        self.largest = 0.0

    def tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(tiny.VOCAB) for _ in range(count)]

    def join(self) -> None:
        known = [row.token_ids for row in self.rows] + self.graves
        wanted = self.tokens(self.rng.choice((1, 4, 30)))
        if known and self.rng.random() < 0.6:
            source = self.rng.choice(known)
            wanted = source[: self.rng.randrange(len(source) + 1)] + wanted
        limit = min(tiny.CONTEXT, len(wanted) + self.rng.choice((20, 60, 120)))
        if len(wanted) < limit:
            row = self.runner.acquire(wanted, limit, self.rng.choice((1, 3)))
            assert row is not None
            assert row.token_ids == wanted[: len(row.token_ids)]
            assert len(row.token_ids) < len(wanted)
            self.rows.append(row)
            self.forward([(row, wanted[len(row.token_ids) :])])

    def leave(self) -> None:
        row = self.rows.pop(self.rng.randrange(len(self.rows)))
        self.graves.append(list(row.token_ids))
        self.runner.release(row)

    def grow(self) -> None:
        """Some rows take part, in any order, each with its own number of tokens."""
        chosen = self.rng.sample(self.rows, self.rng.randint(1, len(self.rows)))
        parts = []
        for row in chosen:
            room = row.slab.capacity - len(row.token_ids)
            count = min(room, self.rng.choice((1, 1, 2, 5, 9, 40)))
            if count:
                parts.append((row, self.tokens(count)))
        if parts:
            self.forward(parts)

    def reject(self) -> None:
        for row in self.rows:
            if len(row.token_ids) > 1 and self.rng.random() < 0.7:
                self.runner.truncate(row, len(row.token_ids) - self.rng.randint(0, 1))
        row = self.rng.choice(self.rows)
        self.runner.truncate(row, self.rng.randint(1, max(1, len(row.token_ids))))

    def forward(self, parts: list[tuple[SlotRow, list[int]]]) -> None:
        counts = [self.rng.randint(0, len(tokens)) for _, tokens in parts]
        inputs = [RowInput(r, t, n) for (r, t), n in zip(parts, counts, strict=True)]
        got = self.runner.forward(inputs)
        want = [
            fresh(self.family, row.token_ids)[len(row.token_ids) - n :]
            for (row, _), n in zip(parts, counts, strict=True)
        ]
        assert got.shape == (sum(counts), tiny.VOCAB)
        if len(got):
            self.largest = max(self.largest, float((got - torch.cat(want)).abs().max()))

    def run(self, num_events: int) -> None:
        self.join()
        for _ in range(num_events):
            event = self.rng.choice((self.join, self.grow, self.grow, self.reject, self.leave))
            if len(self.rows) > 1 or event != self.leave:
                event()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))]
)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_logits_after_any_schedule(family: str, seed: int) -> None:
    """After accepting, rejecting, joining and leaving, logits equal a fresh forward to 1e-4."""
    schedule = Schedule(family, seed)

    schedule.run(50)

    assert schedule.largest <= 1e-4


def test_a_schedule_would_notice() -> None:
    """Control: one stale key, shown instead of masked, moves the logits by far more than 1e-4."""
    schedule = Schedule("llama", 0)
    schedule.run(20)
    row = schedule.rows[0]
    row.token_ids.append(5)  # claims a slot that holds something else
    schedule.forward([(row, [7])])

    assert schedule.largest > 1e-2


@pytest.mark.parametrize("length", [6, 20])
@pytest.mark.parametrize("family", WINDOWED)
def test_rejection_in_a_sliding_window(family: str, length: int) -> None:
    """C-01: once the window of 8 has filled, rejected drafts leave no trace."""
    prompt = tuple(random.Random(length).randrange(3, tiny.VOCAB) for _ in range(length))
    driver = drive_tiny(family, "random", 4)
    driver.add(request("0", prompt, 40))
    answer = driver.run()["0"]

    assert answer.token_ids == tiny.reference(tiny.plain(family), list(prompt), 40)
    rate = answer.stats.draft_acceptance_rate
    assert rate is not None
    assert rate < 0.5  # most were rejected


class RecordingRunner(ModelRunner):
    """Remembers the logits after each text it saw."""

    def __init__(self, family: str) -> None:
        super().__init__(
            tiny.slotted(family), context_length=tiny.CONTEXT, budget=MemoryBudget(PLENTY)
        )
        self.seen: dict[tuple[int, ...], torch.Tensor] = {}

    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        logits = super().forward(inputs)
        places = [
            tuple(item.row.token_ids[: stop + 1])
            for item in inputs
            for stop in range(len(item.row.token_ids) - item.num_logits, len(item.row.token_ids))
        ]
        self.seen |= dict(zip(places, logits, strict=True))
        return logits


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
@pytest.mark.parametrize("swapped", [False, True])
def test_rejected_tokens_do_not_dilute_a_neighbour(family: str, swapped: bool) -> None:
    """C-03: rows that accept 4 and 0 a step score as if alone, to 1e-5; a third leaves early."""
    # Row 0 needs 41 tokens for ten steps of five.
    texts = {i: tiny.expected(family, i, 41) for i in (0, 1)}

    def guess(token_ids: list[int], count: int) -> list[int]:
        for i, text in texts.items():
            start = len(tiny.prompt(i))
            if tuple(token_ids[:start]) == tiny.prompt(i):
                coming = text[len(token_ids) - start :][:count]
                return list(coming) if i == 0 else [(t + 1) % tiny.VOCAB for t in coming]
        return [1] * count

    def run(*members: int) -> tuple[Driver, RecordingRunner]:
        runner = RecordingRunner(family)
        driver = drive(runner, ScriptedProposer(guess), 4)
        for i in members:
            driver.add(request(str(i), tiny.prompt(i), {0: 41, 1: 11, 2: 3}[i]))
        driver.run()
        return driver, runner

    together, runner = run(*((2, 1, 0) if swapped else (0, 1, 2)))

    assert together.answers["0"].stats.draft_acceptance_rate == 1.0
    assert together.answers["1"].stats.draft_acceptance_rate == 0.0
    for i in range(3):
        alone, own = run(i)
        assert together.answers[str(i)].token_ids == alone.answers[str(i)].token_ids
        assert own.seen
        for text, logits in own.seen.items():
            assert float((runner.seen[text] - logits).abs().max()) <= 1e-5


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama"])
@pytest.mark.parametrize("draft", [None, "noisy"])
def test_unequal_prompts_need_no_padding(family: str, draft: str | None) -> None:
    """C-05: prompts of 2 and 9 ids, two end tokens and no pad token: as alone, and as generate."""
    prompts = (tiny.prompt(0), tiny.prompt(2))
    assert [len(p) for p in prompts] == [2, 9]
    texts = [tiny.expected(family, i, NUM_TOKENS) for i in (0, 2)]
    ends = (texts[0][9], texts[1][12])
    driver = drive_tiny(family, draft, 4)
    driver.add(*(request(str(i), p, NUM_TOKENS, end=ends) for i, p in enumerate(prompts)))
    answers = driver.run()

    for i, text in enumerate(texts):
        stop = next(j for j, token in enumerate(text) if token in ends) + 1
        assert tuple(answers[str(i)].token_ids) == text[:stop]
        assert answers[str(i)].reason == "stop"


def test_rollback_moves_no_data() -> None:
    """Invariant 5: forgetting tokens touches no byte of the cache and allocates nothing."""
    runner = make_runner("llama")
    row = runner.acquire([1], 50, 1)
    assert row is not None
    runner.forward([RowInput(row, list(range(20)), 1)])
    slab = runner.store.slabs[0]
    tensors = [*slab.keys.values(), *slab.values.values()]
    before = [(t.data_ptr(), t._version, t.clone()) for t in tensors]
    runner.truncate(row, 7)

    assert row.token_ids == list(range(7))
    for tensor, (pointer, version, content) in zip(tensors, before, strict=True):
        assert (tensor.data_ptr(), tensor._version) == (pointer, version)
        assert torch.equal(tensor, content)


@pytest.mark.parametrize("where", ["free", "busy", "other capacity"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_prefix_reuse(family: str, where: str) -> None:
    """A prompt that begins like another row takes its keys over and answers as if alone."""
    first = tiny.prompt(1)
    answer = tiny.expected(family, 1, NUM_TOKENS)
    second = (*first[:20], *answer[:3])
    driver = drive_tiny(family, "noisy", 3)
    driver.add(request("0", first, 100 if where == "other capacity" else NUM_TOKENS))
    if where == "busy":
        driver.step()
    else:
        driver.run()
    driver.add(request("1", second, NUM_TOKENS))
    answers = driver.run()

    started = answers["1"].started
    assert started is not None
    assert started.num_cached_tokens == 20
    assert answers["1"].stats.num_cached_tokens == 20
    alone = tiny.reference(tiny.plain(family), list(second), NUM_TOKENS)
    assert answers["1"].token_ids == alone
    assert tuple(answers["0"].token_ids[:NUM_TOKENS]) == answer


def test_the_same_prompt_again() -> None:
    """A prompt that was answered before costs one token of prefill, its last."""
    driver = drive_tiny("llama", None, 0)
    driver.add(request("0", tiny.prompt(1), NUM_TOKENS))
    driver.run()
    driver.add(request("1", tiny.prompt(1), NUM_TOKENS))
    answers = driver.run()

    assert answers["1"].stats.num_cached_tokens == len(tiny.prompt(1)) - 1
    assert answers["0"].token_ids == answers["1"].token_ids
    assert sum(step.num_prefill_tokens for step in driver.steps) == len(tiny.prompt(1)) + 1


def test_a_long_row_multiplies_no_memory() -> None:
    """Three short rows beside a long one take three short rows and one long row of memory."""
    runner = make_runner("llama")
    for length in (10, 40, 250, 60):
        assert runner.acquire([1], length, 1) is not None

    assert runner.store.allocated_bytes == 3 * runner.bytes_for(64) + runner.bytes_for(256)
    assert runner.bytes_for(256) == 4 * runner.bytes_for(64)


class HalfSure(FakeRunner):
    """Always says 1."""

    def next_logits(self, token_ids: list[int]) -> torch.Tensor:
        return torch.tensor([0.0, 5.0, 0.0])


def test_a_request_that_never_fits_is_refused() -> None:
    """A row larger than the whole budget is an error that says what it needs and what would fit."""
    budget = MemoryBudget(0)
    driver = drive_tiny("llama", "noisy", 4, budget=budget)
    target = driver.engine.parts.target
    budget.total_bytes = 2 * target.bytes_for(64)  # target and draft, a short row each
    driver.add(request("fits", (1, 2), 60))

    with pytest.raises(InsufficientMemoryError, match=r"102 tokens needs .* of key-value") as error:
        driver.engine.add(request("large", (1, 2), 100))

    would_fit = re.search(r"-c (\d+) or less", error.value.hint or "")
    assert would_fit
    assert 2 * target.bytes_for(int(would_fit[1])) <= budget.total_bytes
    assert len(driver.run()["fits"].token_ids) == 60


@pytest.mark.parametrize("draft", [None, "ngram", "noisy"])
@pytest.mark.parametrize("rows", [1, 1.5, 2.5])
def test_requests_wait_for_memory_and_run(draft: str | None, rows: float) -> None:
    """Memory for a few rows runs many requests, first come first served, without a deadlock.

    The budget holds `rows` rows of target and draft together; the engine would like more.
    """
    budget = MemoryBudget(0)
    driver = drive_tiny("llama", draft, 3, budget=budget, max_rows=8)
    parts = driver.engine.parts
    need = parts.target.bytes_for(64)
    need += parts.proposer.bytes_for(64) if parts.proposer is not None else 0
    budget.total_bytes = int(rows * need)
    for i in range(6):
        driver.add(request(str(i), tiny.prompt(i), NUM_TOKENS))
    answers = driver.run(max_steps=500)

    assert budget.used_bytes <= budget.total_bytes
    for i in range(6):
        assert tuple(answers[str(i)].token_ids) == tiny.expected("llama", i, NUM_TOKENS)
    started = [a.started.time_s for a in answers.values() if a.started is not None]
    assert started == sorted(started)


@pytest.mark.parametrize("draft", [None, "noisy"])
def test_rows_of_many_sizes_share_a_tight_budget(draft: str | None) -> None:
    """Short and long requests in any order all run in memory for one long one."""
    budget = MemoryBudget(0)
    driver = drive_tiny("llama", draft, 3, budget=budget, max_rows=4)
    parts = driver.engine.parts
    budget.total_bytes = parts.target.bytes_for(256) * (2 if draft else 1)
    lengths = (130, 8, 70, 8, 140, 30, 8)
    for i, length in enumerate(lengths):
        driver.add(request(str(i), (i + 3, i + 4), length))
    answers = driver.run(max_steps=3000)

    for i, length in enumerate(lengths):
        assert len(answers[str(i)].token_ids) == length
    assert budget.used_bytes <= budget.total_bytes


def test_memory_is_free_after_the_last_request() -> None:
    """When nothing runs, a new request of another size can have all of the memory."""
    budget = MemoryBudget(0)
    driver = drive_tiny("llama", "noisy", 3, budget=budget, max_rows=8)
    budget.total_bytes = 2 * driver.engine.parts.target.bytes_for(256)
    for i in range(4):
        driver.add(request(str(i), tiny.prompt(i), NUM_TOKENS))
    driver.run()
    driver.add(request("long", (1, 2), 130))

    assert len(driver.run(max_steps=500)["long"].token_ids) == 130


class NoRoomRunner(FakeRunner):
    """A draft model that has no row to give."""

    def acquire(self, token_ids: list[int], max_length: int, num_rows: int) -> Any:
        return None


def test_a_row_without_its_draft_row_is_given_back() -> None:
    """When the proposer has no memory, the target's row is freed and the request waits."""
    target = HalfSure(3)
    draft = DraftModelProposer(NoRoomRunner(3), verify="coupled", num_token_ids=3)
    driver = drive(target, draft, 2)
    driver.add(request("0", (1, 2), 5))
    driver.step()

    assert target.rows_in_use == []
    assert driver.engine.has_work
    assert driver.answers["0"].started is None


@pytest.mark.parametrize("draft", ["ngram", "noisy"])
def test_abort_frees_rows_at_any_time(draft: str) -> None:
    """A request ended while it waits, while its prompt is read or while it decodes frees its rows.

    Its neighbours' tokens stay as they are, and what it generated stays generated.
    """
    for steps in range(8):
        driver = drive_tiny("llama", draft, 3, max_rows=2)
        long_prompt = tiny.prompt(1) * 7  # 210 tokens: two chunks of prefill
        driver.add(request("0", tiny.prompt(0), NUM_TOKENS), request("out", long_prompt, 30))
        driver.add(request("2", tiny.prompt(2), NUM_TOKENS))
        for _ in range(steps):
            driver.step()
        driver.abort("out" if steps else "2")
        answers = driver.run()

        gone = answers["out" if steps else "2"]
        assert gone.reason == "interrupted"
        assert gone.stats.num_output_tokens == len(gone.token_ids)
        for i in (0, 2) if steps else (0,):
            assert tuple(answers[str(i)].token_ids) == tiny.expected("llama", i, NUM_TOKENS)
        store = driver.engine.parts.target.store  # type: ignore[attr-defined]
        assert all(slab.is_idle for slab in store.slabs)
        assert driver.engine.abort("out") == []
