"""Rows, slabs and the budget: who gets which row, and what it costs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_cli.models.budget import MemoryBudget
from spec_cli.models.slots import LayerShape, SlotRow, SlotStore

SHAPE = LayerShape(2, 4, 8, torch.float32, torch.device("cpu"))
TOKEN = 2 * 2 * (4 + 8) * 4  # bytes: layers, heads, key and value, float32


def make(total: int = 10**9, context_length: int = 1000) -> tuple[SlotStore, MemoryBudget]:
    budget = MemoryBudget(total)
    return SlotStore({0: SHAPE, 1: SHAPE}, context_length, budget), budget


def take(
    store: SlotStore, token_ids: list[int], max_length: int = 64, num_rows: int = 1
) -> SlotRow:
    row = store.acquire(token_ids, max_length, num_rows)
    assert row is not None
    return row


def fill(row: SlotRow, token_ids: list[int], value: float) -> None:
    """Pretend that a forward wrote these tokens."""
    row.token_ids = list(token_ids)
    for side in (row.slab.keys, row.slab.values):
        for layer in side:
            side[layer][row.index, : len(token_ids)] = value


@pytest.mark.parametrize(
    ("max_length", "capacity"), [(1, 64), (64, 64), (65, 128), (500, 512), (513, 1024)]
)
def test_capacity_is_a_power_of_two(max_length: int, capacity: int) -> None:
    """A row gets the next power of two, no less than 64, and its bytes are that many tokens'."""
    store, _ = make()

    assert store.capacity_for(max_length) == capacity
    assert store.bytes_for(max_length) == capacity * TOKEN


def test_capacity_ends_with_the_context() -> None:
    """No row is larger than the context, rounded up to 64, however long the power of two."""
    store, _ = make(context_length=600)

    assert store.capacity_for(600) == 640


def test_bytes_are_those_allocated() -> None:
    """What is reserved is what the tensors take."""
    store, budget = make()
    take(store, [1], 64, 3)
    take(store, [1], 200, 1)
    tensors = [t for s in store.slabs for side in (s.keys, s.values) for t in side.values()]

    assert sum(t.numel() * t.itemsize for t in tensors) == store.allocated_bytes
    assert budget.used_bytes == store.allocated_bytes == (3 * 64 + 256) * TOKEN


def test_rows_of_a_kind_are_neighbours() -> None:
    """Rows that will soon be wanted come in one slab, and are handed out in order."""
    store, _ = make()
    rows = [take(store, [i], 64, 4 - i) for i in range(4)]

    assert len(store.slabs) == 1
    assert [row.index for row in rows] == [0, 1, 2, 3]


def test_a_slab_is_as_wide_as_memory_allows() -> None:
    """When memory is short a new slab has fewer rows than wished for, then none is given."""
    store, budget = make(total=int(2.5 * 64 * TOKEN))
    first = take(store, [1], 64, 8)

    assert len(store.slabs[0].rows) == 2
    take(store, [2], 64, 8)
    assert store.acquire([3], 64, 1) is None
    assert budget.used_bytes == 2 * 64 * TOKEN
    store.release(first)
    assert store.acquire([3], 64, 1) is first


def test_prefix_of_a_free_row_stays_in_place() -> None:
    """The free row that shares most tokens is taken as it is; the last token is left to compute."""
    store, _ = make()
    a, b = take(store, [9], 64, 2), take(store, [8], 64, 1)
    fill(a, [1, 2, 3], 1.0)
    fill(b, [1, 2, 3, 4, 5], 2.0)
    store.release(a)
    store.release(b)
    row = take(store, [1, 2, 3, 4, 5])

    assert row is b
    assert row.token_ids == [1, 2, 3, 4]


def test_prefix_of_a_busy_row_is_copied() -> None:
    """A busy row keeps its own; the new row gets a copy of the shared slots, in all layers."""
    store, _ = make()
    busy = take(store, [9], 64, 2)
    fill(busy, [1, 2, 3, 4], 3.0)
    row = take(store, [1, 2, 7, 8])

    assert row is not busy
    assert row.token_ids == [1, 2]
    assert busy.token_ids == [1, 2, 3, 4]
    for side in (row.slab.keys, row.slab.values):
        for layer in (0, 1):
            assert side[layer][row.index, :2].eq(3.0).all()
            assert side[layer][row.index, 2:].eq(0.0).all()


def test_prefix_moves_to_another_capacity() -> None:
    """A prefix in a slab of another capacity is copied over, and its row stays free."""
    store, _ = make()
    short = take(store, [9], 64)
    fill(short, [1, 2, 3], 4.0)
    store.release(short)
    row = take(store, [1, 2, 3, 4], 100)

    assert row.slab.capacity == 128
    assert row.token_ids == [1, 2, 3]
    assert row.slab.values[1][row.index, :3].eq(4.0).all()
    assert not short.is_busy


def test_a_prefix_that_had_to_go_is_not_claimed() -> None:
    """Where memory for the row could only come from the prefix's own slab, nothing is reused."""
    store, budget = make(total=128 * TOKEN)
    short = take(store, [9], 64)
    fill(short, [1, 2, 3], 4.0)
    store.release(short)
    row = take(store, [1, 2, 3, 4], 100)

    assert row.token_ids == []
    assert row.slab.capacity == 128
    assert budget.used_bytes == store.allocated_bytes == 128 * TOKEN


def test_an_empty_row_before_an_old_one() -> None:
    """Of free rows an empty one is taken first, then the one used longest ago."""
    store, _ = make()
    rows = [take(store, [50 + i], 64, 3 - i) for i in range(3)]
    fill(rows[0], [1], 1.0)
    fill(rows[1], [2], 1.0)
    for row in rows:
        store.release(row)

    assert take(store, [7, 7]) is rows[2]
    assert take(store, [8, 8]) is rows[0]
    assert take(store, [9, 9]) is rows[1]


def test_only_idle_slabs_are_dropped() -> None:
    """Reclaiming drops slabs without a busy row and says how much came free; others stay."""
    store, budget = make()
    busy = take(store, [1], 64, 2)
    store.release(take(store, [1], 200, 1))
    budget.reclaim()

    assert [slab.capacity for slab in store.slabs] == [64]
    assert busy.slab is store.slabs[0]
    assert budget.used_bytes == 2 * 64 * TOKEN


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.lists(st.integers(0, 1), min_size=1, max_size=5),
            st.sampled_from([10, 64, 65, 130, 300]),
            st.integers(1, 4),
        ),
        max_size=40,
    ),
    st.integers(1, 12),
)
def test_any_coming_and_going(events: list[tuple[bool, list[int], int, int]], size: int) -> None:
    """Whoever comes and goes: no row is given twice, each is long enough, the books balance.

    Two stores share the budget, as target and draft do; a request is refused only when what is in
    use leaves no room for it.
    """
    budget = MemoryBudget(size * 64 * TOKEN)
    stores = [SlotStore({0: SHAPE, 1: SHAPE}, 1000, budget) for _ in range(2)]
    held: list[tuple[SlotStore, SlotRow, list[int]]] = []
    for i, (leaves, token_ids, max_length, num_rows) in enumerate(events):
        if leaves and held:
            store, row, _ = held.pop(len(token_ids) % len(held))
            store.release(row)
            continue
        store = stores[i % 2]
        row_or_none = store.acquire(token_ids, max_length, num_rows)
        if row_or_none is None:
            busy = {id(r.slab): r.slab.num_bytes for _, r, _ in held}
            assert sum(busy.values()) + store.bytes_for(max_length) > budget.total_bytes
        else:
            row = row_or_none
            assert all(row is not other for _, other, _ in held)
            assert row.slab.capacity >= max_length
            assert row.token_ids == token_ids[: len(row.token_ids)]
            assert len(row.token_ids) < len(token_ids)
            fill(row, token_ids, 1.0)
            held.append((store, row, token_ids))
        assert budget.used_bytes == sum(s.allocated_bytes for s in stores) <= budget.total_bytes
        for _, other, own in held:
            assert other.token_ids == own
            assert other.is_busy
