"""The key-value cache of ragged rows: slot index equals token position.

Rows live in slabs of equal capacity (powers of two), so a long row multiplies neither the memory
nor the attention of short ones. Rolling back is forgetting token ids: no data moves, stale slots
are masked and later overwritten.
"""

from dataclasses import dataclass, field
from functools import partial

import torch

from spec_cli.models.budget import MemoryBudget

MIN_CAPACITY = 64


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer caches per token, learned from a first forward.

    Attributes:
        num_heads: Key-value heads, H.
        key_dim: Size of a key head; `value_dim` that of a value head.
        dtype: Of both.
        device: Where the layer runs.
    """

    num_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token's key and value."""
        return self.num_heads * (self.key_dim + self.value_dim) * self.dtype.itemsize


@dataclass(eq=False, slots=True)
class SlotRow:
    """One row of a slab.

    Attributes:
        token_ids: The tokens whose keys and values are in slots 0, 1, ...
        last_used: Larger is more recent; the oldest free row is reused first.
    """

    slab: "Slab"
    index: int
    token_ids: list[int] = field(default_factory=list)
    is_busy: bool = False
    last_used: int = 0


class Slab:
    """Rows of equal capacity: per layer keys and values `[R, C, H, D]`."""

    def __init__(
        self, order: int, num_rows: int, capacity: int, layers: dict[int, LayerShape]
    ) -> None:
        self.order = order
        self.capacity = capacity
        self.rows = [SlotRow(self, index) for index in range(num_rows)]
        self.num_bytes = num_rows * capacity * sum(s.bytes_per_token for s in layers.values())
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        for layer, shape in layers.items():
            # Zeros, not empty: a masked slot still takes part as 0 x value, and 0 x NaN is NaN.
            zeros = partial(torch.zeros, dtype=shape.dtype, device=shape.device)
            size = (num_rows, capacity, shape.num_heads)
            self.keys[layer] = zeros((*size, shape.key_dim))  # [R, C, H, Dk]
            self.values[layer] = zeros((*size, shape.value_dim))  # [R, C, H, Dv]

    @property
    def device(self) -> torch.device:
        """That of its first layer."""
        return next(iter(self.keys.values())).device

    @property
    def is_idle(self) -> bool:
        """Whether no row is in use."""
        return not any(row.is_busy for row in self.rows)


class SlotStore:
    """All slabs of one model, and the rows in them."""

    def __init__(
        self, layers: dict[int, LayerShape], context_length: int, budget: MemoryBudget
    ) -> None:
        self.layers = layers
        self.context_length = context_length
        self.slabs: list[Slab] = []
        self._budget = budget
        self._clock = 0
        self._num_slabs = 0
        budget.add_reclaimer(self._reclaim)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token over all layers."""
        return sum(shape.bytes_per_token for shape in self.layers.values())

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all slabs."""
        return sum(slab.num_bytes for slab in self.slabs)

    def capacity_for(self, max_length: int) -> int:
        """The capacity of the slab that a row of `max_length` tokens belongs in."""
        power = 1 << max(0, max_length - 1).bit_length()
        return max(MIN_CAPACITY, min(power, -(-self.context_length // MIN_CAPACITY) * MIN_CAPACITY))

    def bytes_for(self, max_length: int) -> int:
        """Bytes that one row of `max_length` tokens reserves."""
        return self.capacity_for(max_length) * self.bytes_per_token

    def acquire(self, token_ids: list[int], max_length: int, num_rows: int) -> SlotRow | None:
        """A row for up to `max_length` tokens, holding the longest prefix found in any row.

        Args:
            token_ids: The tokens it is for; the last one is never taken from the cache.
            max_length: Most tokens it will hold.
            num_rows: How many rows of this kind may soon be wanted: a new slab gets as many if
                memory allows, for rows of one slab share an attention call.
        """
        capacity = self.capacity_for(max_length)
        source, shared = self._longest_prefix(token_ids)
        if source and not source.is_busy and source.slab.capacity == capacity:
            row = source  # the prefix is where it should be
        else:
            free = self._free_row(capacity) or self._new_row(capacity, num_rows)
            if free is None:
                return None
            row = free
            if source and source is not row and source.slab in self.slabs:
                self._copy(source, row, shared)
            else:
                shared = 0  # making room took the row that held it
        self._clock += 1
        row.is_busy, row.last_used = True, self._clock
        row.token_ids = token_ids[:shared]
        return row

    def release(self, row: SlotRow) -> None:
        """Free a row; its tokens stay until it is taken for others."""
        row.is_busy = False

    def _longest_prefix(self, token_ids: list[int]) -> tuple[SlotRow | None, int]:
        best: SlotRow | None = None
        length = 0
        for slab in self.slabs:
            for row in slab.rows:
                shared = min(_common_prefix(row.token_ids, token_ids), len(token_ids) - 1)
                if shared > length or (shared == length > 0 and best and best.is_busy):
                    best, length = row, shared
        return best, length

    def _free_row(self, capacity: int) -> SlotRow | None:
        free = [
            row
            for slab in self.slabs
            if slab.capacity == capacity
            for row in slab.rows
            if not row.is_busy
        ]
        # Rows in use should be neighbours; among the empty ones the first, else the oldest.
        return min(free, key=lambda row: (bool(row.token_ids), row.last_used), default=None)

    def _new_row(self, capacity: int, num_rows: int) -> SlotRow | None:
        row_bytes = capacity * self.bytes_per_token
        for count in range(max(1, num_rows), 0, -1):
            if self._budget.reserve(count * row_bytes, reclaim=count == 1):
                slab = Slab(self._num_slabs, count, capacity, self.layers)
                self._num_slabs += 1
                self.slabs.append(slab)
                return slab.rows[0]
        return None

    def _copy(self, source: SlotRow, target: SlotRow, length: int) -> None:
        for layer in self.layers:
            for side in ("keys", "values"):
                old = getattr(source.slab, side)[layer][source.index, :length]
                getattr(target.slab, side)[layer][target.index, :length] = old

    def _reclaim(self) -> int:
        """Drop every idle slab, prefixes included; returns the bytes that came free."""
        idle = [slab for slab in self.slabs if slab.is_idle]
        self.slabs = [slab for slab in self.slabs if not slab.is_idle]
        return sum(slab.num_bytes for slab in idle)


def _common_prefix(a: list[int], b: list[int]) -> int:
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:  # compared in C: nearly every call ends here or at the first token
        return limit
    return next(i for i in range(limit) if a[i] != b[i])
