"""Who attends to what in a packed forward.

All rows of a step are one row of N tokens to the model; only here are they told apart. Neighbouring
rows of one slab share an attention call; a long prompt beside short rows gets one of its own.

With fixed shapes (`tile`: exact mode; architecture.md, sections 3 and 4) every attention call is
one row's, of `tile` queries, over a number of slots that depends on its positions alone: kernels
choose their order of summation by shape, and here a token meets the same shape whatever comes with
it.
"""

from dataclasses import dataclass
from typing import Any

import torch

from spec_cli.models.attention import ScoreOptions, attend
from spec_cli.models.slots import Slab, SlotRow
from spec_cli.sampling.device import upload

_CALL_SLOTS = {"cpu": 1 << 12}
"""Padded query-slot pairs of a layer that cost as much as one more attention call: measured on two
AVX2 cores, where a row of nine tokens among fifteen of one made a forward 1.4 times as long when
all shared a call, and 1.3 times with this."""
_ACCELERATOR_CALL_SLOTS = 1 << 18
"""The same where a call is a few kernel launches and pairs are cheap: an estimate, not measured."""
_KV_TILE = 512
"""Slots of an attention call with fixed shapes: a multiple of this, or all that a row has."""


@dataclass(frozen=True, slots=True)
class Span:
    """The packed tokens of one row: `count` tokens at positions `start`, `start + 1`, ..."""

    row: SlotRow
    start: int
    count: int

    @property
    def stop(self) -> int:
        """One past the last position: the slots the last token attends to."""
        return self.start + self.count


class Group:
    """Neighbouring rows of one slab that share an attention call.

    Attributes:
        first: Index of the first packed token; the group's tokens are consecutive.
        query_length: Q, the most tokens of a row; shorter rows are padded to it.
        kv_length: Slots attended to, the most of any row.
    """

    def __init__(self, spans: list[Span], first: int, tile: int | None = None) -> None:
        self.spans = spans
        self.first = first
        self.slab: Slab = spans[0].row.slab
        self.rows = slice(spans[0].row.index, spans[-1].row.index + 1)
        self.num_tokens = sum(span.count for span in spans)
        self.query_length = max(span.count for span in spans)
        self.kv_length = max(span.stop for span in spans)
        if tile is not None:
            self.query_length = tile
            whole_tiles = -(-self.kv_length // _KV_TILE) * _KV_TILE
            self.kv_length = min(whole_tiles, self.slab.capacity)
        self.is_ragged = self.num_tokens != len(spans) * self.query_length
        self._cache: dict[Any, Any] = {}

    @property
    def attended_slots(self) -> int:
        """Query-slot pairs computed, padding included."""
        return len(self.spans) * self.query_length * self.kv_length

    def takes(self, span: Span) -> bool:
        """Whether one more row may join without padding that costs more than its own call."""
        last = self.spans[-1].row
        if span.row.slab is not self.slab or span.row.index != last.index + 1:
            return False
        spans = (*self.spans, span)
        padded = len(spans) * max(s.count for s in spans) * max(s.stop for s in spans)
        affordable = _CALL_SLOTS.get(self.slab.device.type, _ACCELERATOR_CALL_SLOTS)
        return padded - sum(s.count * s.stop for s in spans) <= affordable

    def attend(self, layer: int, query: torch.Tensor, options: ScoreOptions) -> torch.Tensor:
        """One attention call for the group's rows.

        The query heads that share a key-value head are folded into the query length: no key is
        repeated, whatever the backend.

        Args:
            layer: Index of the attention layer.
            query: All packed queries, `[Hq, N, D]`.
            options: How the layer scores.

        Returns:
            `[tokens of the group, Hq, Dv]`.
        """
        k = self.slab.keys[layer][self.rows, : self.kv_length].transpose(1, 2)  # [B, H, kv, D]
        v = self.slab.values[layer][self.rows, : self.kv_length].transpose(1, 2)
        num_rows, heads = k.shape[:2]
        folds = query.shape[0] // heads
        q = self.gather(query).reshape(heads, folds, num_rows, self.query_length, -1)
        q = q.permute(2, 0, 1, 3, 4).reshape(num_rows, heads, folds * self.query_length, -1)
        out = attend(q, k, v, self.mask(options.window, folds, query), options)
        out = out.reshape(num_rows, heads, folds, self.query_length, -1).permute(0, 3, 1, 2, 4)
        return self.scatter(out.reshape(-1, heads * folds, out.shape[-1]))

    def gather(self, query: torch.Tensor) -> torch.Tensor:
        """The group's queries, `[Hq, B * Q, D]`, from packed ones `[Hq, N, D]`."""
        if not self.is_ragged:
            return query[:, self.first : self.first + self.num_tokens]
        return query[:, self._padding(query.device)[0]]

    def scatter(self, output: torch.Tensor) -> torch.Tensor:
        """Drop the padding of `[B * Q, Hq, D]`."""
        return output[self._padding(output.device)[1]] if self.is_ragged else output

    def mask(self, window: int | None, groups: int, like: torch.Tensor) -> torch.Tensor | None:
        """Additive mask `[B, 1, G * Q, kv_length]`, or None where every slot is seen by all.

        Args:
            window: Sliding window: a token sees itself and the `window - 1` tokens before it.
            groups: G, query heads per key-value head, folded into the query length.
            like: A tensor of the mask's dtype and device.
        """
        if window is not None and window >= self.kv_length:
            window = None
        sees_all = all(span.stop == self.kv_length for span in self.spans)
        if window is None and self.query_length == 1 and sees_all:
            return None
        key = (window, groups, like.dtype, like.device)
        if key not in self._cache:
            self._cache[key] = self._build_mask(window, groups, like)
        mask: torch.Tensor = self._cache[key]
        return mask

    def _build_mask(self, window: int | None, groups: int, like: torch.Tensor) -> torch.Tensor:
        device = like.device
        extents = upload([[span.start, span.count] for span in self.spans], device)  # [B, 2]
        starts, counts = extents.unbind(dim=1)
        offsets = torch.arange(self.query_length, device=device)
        positions = starts[:, None] + torch.minimum(offsets, counts[:, None] - 1)  # [B, Q]
        slots = torch.arange(self.kv_length, device=device)
        hidden = slots > positions[..., None]  # [B, Q, kv]
        if window is not None:
            hidden |= slots <= positions[..., None] - window
        mask = torch.zeros(hidden.shape, dtype=like.dtype, device=device)
        mask.masked_fill_(hidden, float("-inf"))
        folded = mask[:, None, None].expand(-1, -1, groups, -1, -1)  # [B, 1, G, Q, kv]
        return folded.reshape(len(self.spans), 1, -1, self.kv_length)

    def _padding(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Packed index of each padded query `[B * Q]`, and padded index of each packed one."""
        key = ("padding", device)
        if key not in self._cache:
            padded, packed = [], []
            first = self.first
            for b, span in enumerate(self.spans):
                padded += [first + min(i, span.count - 1) for i in range(self.query_length)]
                packed += [b * self.query_length + i for i in range(span.count)]
                first += span.count
            self._cache[key] = (upload(padded, device), upload(packed, device))
        pair: tuple[torch.Tensor, torch.Tensor] = self._cache[key]
        return pair


class ForwardPlan:
    """Where the keys of a packed forward are written and what its queries attend to.

    Attributes:
        spans: The rows taking part, ordered by slab and row.
        pad_to: Packed tokens of the forward; those behind the spans' are stored nowhere and attend
            to nothing. None is as many as the spans have.
    """

    def __init__(
        self, spans: list[Span], *, pad_to: int | None = None, tile: int | None = None
    ) -> None:
        """Plan a forward.

        Args:
            spans: Ordered by slab and row.
            pad_to: See above.
            tile: Queries of every attention call, for fixed shapes; None fits calls to the spans.
        """
        self.spans = spans
        num_tokens = sum(span.count for span in spans)
        self._num_padding = (num_tokens if pad_to is None else pad_to) - num_tokens
        self._tile = tile
        self.groups: list[Group] = []
        self._writes: list[tuple[Slab, int, list[int]]] = []  # slab, first packed token, slots
        self._indices: dict[torch.device, list[torch.Tensor]] = {}
        first = 0
        pending: list[Span] = []
        for span in spans if tile is None else _cut(spans, tile):
            if pending and (tile is not None or not Group(pending, first).takes(span)):
                first = self._close(pending, first)
                pending = []
            pending.append(span)
            self._write(span, first + sum(s.count for s in pending[:-1]))
        if pending:
            self._close(pending, first)

    @property
    def attended_slots(self) -> int:
        """Query-slot pairs computed per layer and head."""
        return sum(group.attended_slots for group in self.groups)

    def store(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Write the new keys and values `[1, H, N, D]` of a layer to their slots."""
        if key.device not in self._indices:
            self._indices[key.device] = [upload(slots, key.device) for _, _, slots in self._writes]
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)  # [N, H, D]
        for (slab, first, slots), index in zip(
            self._writes, self._indices[key.device], strict=True
        ):
            part = slice(first, first + len(slots))
            slab.keys[layer].flatten(0, 1).index_copy_(0, index, keys[part])
            slab.values[layer].flatten(0, 1).index_copy_(0, index, values[part])

    def attend(self, layer: int, query: torch.Tensor, options: ScoreOptions) -> torch.Tensor:
        """Attend packed queries to the slots of their rows.

        Args:
            layer: Index of the attention layer.
            query: `[Hq, N, D]`.
            options: How the layer scores.

        Returns:
            `[N, Hq, Dv]`.
        """
        outputs = [group.attend(layer, query, options) for group in self.groups]
        if self._num_padding:
            outputs.append(outputs[0].new_zeros(self._num_padding, *outputs[0].shape[1:]))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _close(self, pending: list[Span], first: int) -> int:
        group = Group(list(pending), first, self._tile)
        self.groups.append(group)
        return first + group.num_tokens

    def _write(self, span: Span, first: int) -> None:
        base = span.row.index * span.row.slab.capacity
        slots = list(range(base + span.start, base + span.stop))
        if self._writes and self._writes[-1][0] is span.row.slab:
            self._writes[-1][2].extend(slots)
        else:
            self._writes.append((span.row.slab, first, slots))


def _cut(spans: list[Span], tile: int) -> list[Span]:
    """Spans of at most `tile` tokens, none of which reaches over a multiple of the slot tile."""
    pieces = []
    for span in spans:
        start = span.start
        while start < span.stop:
            stop = min(span.stop, start + tile, (start // _KV_TILE + 1) * _KV_TILE)
            pieces.append(Span(span.row, start, stop - start))
            start = stop
    return pieces
