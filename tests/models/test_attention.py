"""Attention over slots equals attention written out, token by token."""

import math
import random

import pytest
import torch

from spec_cli.models.attention import ScoreOptions
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.plan import ForwardPlan, Span
from spec_cli.models.slots import LayerShape, SlotRow, SlotStore

HEADS, SIZE, VALUE_SIZE = 2, 8, 4
SHAPE = LayerShape(HEADS, SIZE, VALUE_SIZE, torch.float32, torch.device("cpu"))


def rows_of(*lengths: int) -> list[SlotRow]:
    """Neighbouring rows of one slab for each length, ordered by slab."""
    store = SlotStore({0: SHAPE}, 4096, MemoryBudget(10**9))
    rows = []
    for length in sorted(lengths):
        alike = sum(store.capacity_for(n) == store.capacity_for(length) for n in lengths)
        row = store.acquire([1], length, alike)
        assert row is not None
        rows.append(row)
    return sorted(rows, key=lambda row: (row.slab.order, row.index))


def written_out(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: int, options: ScoreOptions
) -> torch.Tensor:
    """One query `[Hq, D]` at a position over the keys `[T, H, D]` of its row: `[Hq, Dv]`."""
    outputs = []
    for head in range(q.shape[0]):
        own = head // (q.shape[0] // k.shape[1])
        first = max(0, position - options.window + 1) if options.window else 0
        keys, values = k[first : position + 1, own], v[first : position + 1, own]
        scale = options.scaling if options.scaling is not None else 1 / math.sqrt(q.shape[1])
        scores = keys @ q[head] * scale
        if options.softcap:
            scores = options.softcap * torch.tanh(scores / options.softcap)
        weights = scores.exp()
        total = weights.sum() + (options.sinks[head].exp() if options.sinks is not None else 0)
        outputs.append((weights / total) @ values)
    return torch.stack(outputs)


OPTIONS = {
    "plain": ScoreOptions(),
    "scaled": ScoreOptions(scaling=0.7),
    "window": ScoreOptions(window=5),
    "softcap": ScoreOptions(softcap=2.0, scaling=1.0),
    "sinks": ScoreOptions(sinks=torch.linspace(-1, 1, 8)),
    "all": ScoreOptions(scaling=0.5, window=7, softcap=3.0, sinks=torch.linspace(-1, 1, 8)),
}
BATCHES = {
    "decode": [(5, 1), (9, 1), (30, 1)],
    "one": [(17, 1)],
    "equal": [(8, 1), (8, 1)],
    "blocks": [(5, 4), (9, 1), (30, 3), (0, 6)],
    "prefill": [(0, 40)],
    "prefill beside decode": [(5, 1), (0, 90), (9, 2)],
    "long beside short": [(5, 1), (300, 1), (9, 2), (200, 5)],
}


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_equals_attention_written_out(
    options: ScoreOptions, batch: list[tuple[int, int]], groups: int
) -> None:
    """Ragged rows, windows, caps, sinks and shared heads: each query sees its own past, no more.

    Slots past a row's own tokens hold large rubbish, which must not be seen.
    """
    if options.sinks is not None and groups == 1:
        options = ScoreOptions(
            options.scaling, options.window, options.softcap, options.sinks[:HEADS]
        )
    torch.manual_seed(len(batch))
    batch = sorted(batch, key=sum)
    rows = rows_of(*(start + count for start, count in batch))
    for row in rows:
        row.slab.keys[0][row.index] = torch.randn(row.slab.capacity, HEADS, SIZE) * 5
        row.slab.values[0][row.index] = torch.randn(row.slab.capacity, HEADS, VALUE_SIZE) * 100
    plan = ForwardPlan([Span(r, s, c) for r, (s, c) in zip(rows, batch, strict=True)])
    total = sum(count for _, count in batch)
    plan.store(0, torch.randn(1, HEADS, total, SIZE), torch.randn(1, HEADS, total, VALUE_SIZE))
    query = torch.randn(HEADS * groups, total, SIZE)
    got = plan.attend(0, query, options)

    packed = 0
    for row, (start, count) in zip(rows, batch, strict=True):
        keys, values = row.slab.keys[0][row.index], row.slab.values[0][row.index]
        for position in range(start, start + count):
            want = written_out(query[:, packed], keys, values, position, options)
            assert torch.allclose(got[packed], want, rtol=1e-4, atol=1e-4)
            packed += 1
    assert got.shape == (total, HEADS * groups, VALUE_SIZE)


def test_keys_go_to_their_positions() -> None:
    """New keys and values land in the slots of their positions; every other slot stays."""
    rows = rows_of(64, 64, 100)
    spans = [Span(rows[0], 3, 2), Span(rows[1], 0, 1), Span(rows[2], 70, 3)]
    key = torch.arange(1.0, 7.0).view(1, 1, 6, 1).expand(1, HEADS, 6, SIZE)
    ForwardPlan(spans).store(0, key, key[..., :VALUE_SIZE] * 10)

    want = {0: {3: 1.0, 4: 2.0}, 1: {0: 3.0}, 2: {70: 4.0, 71: 5.0, 72: 6.0}}
    for i, row in enumerate(rows):
        for slot in range(row.slab.capacity):
            expected = want[i].get(slot, 0.0)
            assert row.slab.keys[0][row.index, slot].eq(expected).all()
            assert row.slab.values[0][row.index, slot].eq(10 * expected).all()


def slots(*shape: tuple[int, int]) -> int:
    rows = rows_of(*(start + count for start, count in shape))
    ordered = sorted(shape, key=sum)
    return ForwardPlan(
        [Span(row, *each) for row, each in zip(rows, ordered, strict=True)]
    ).attended_slots


def test_a_long_row_multiplies_no_attention() -> None:
    """Beside one row of 4 000 tokens, short rows attend to as many slots as without it."""
    short = [(20, 1), (30, 1), (25, 1)]

    assert slots(*short, (3999, 1)) == slots(*short) + 4000
    assert slots(*short, (0, 4000)) == slots(*short) + 4000 * 4000


def test_a_long_prompt_widens_no_short_row() -> None:
    """A prompt's piece of 60 tokens beside decoding rows of the same slab has its own call."""
    beside = slots((3, 1), (4, 1), (0, 60))

    assert beside == slots((3, 1), (4, 1)) + 60 * 60


def test_waste_is_bounded() -> None:
    """Whatever the rows, a group pads less than what another call costs: 4096 pairs on a CPU."""
    rng = random.Random(0)
    num_shared = 0
    for _ in range(50):
        shape = [(rng.randrange(500), rng.choice((1, 2, 5, 9))) for _ in range(8)]
        rows = rows_of(*(start + count for start, count in shape))
        plan = ForwardPlan(
            [Span(row, *each) for row, each in zip(rows, sorted(shape, key=sum), strict=True)]
        )
        for group in plan.groups:
            needed = sum(span.count * span.stop for span in group.spans)
            assert group.attended_slots - needed <= 4096
        num_shared += len(shape) - len(plan.groups)
    assert num_shared > 100


def test_one_long_draft_does_not_widen_the_batch() -> None:
    """Beside 15 rows of one token and 400 slots, a row of nine shares with one at most."""
    shapes = [(400, 9 if i == 7 else 1) for i in range(16)]
    rows = rows_of(*(start + count for start, count in shapes))
    plan = ForwardPlan([Span(row, *each) for row, each in zip(rows, shapes, strict=True)])

    assert [len(group.spans) for group in plan.groups] == [7, 2, 7]


def test_neighbours_share_a_call() -> None:
    """Rows alike are one group, so that a batch costs one attention call."""
    rows = rows_of(40, 40, 40, 40)
    plan = ForwardPlan([Span(row, 20 + i, 1 + i) for i, row in enumerate(rows)])
    apart = ForwardPlan([Span(rows[0], 20, 1), Span(rows[2], 20, 1)])

    assert len(plan.groups) == 1
    assert len(apart.groups) == 2
