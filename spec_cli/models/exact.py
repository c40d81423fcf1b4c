"""Exact mode: shapes in which a token's logits have the same bits whatever is computed beside it.

Matrix kernels choose their order of summation by the shape of the product, so in bf16 and fp16, and
in the last bits of fp32, a token's logits depend on how many tokens share its forward
(architecture.md, section 4; He et al. 2025, "Defeating nondeterminism in LLM inference"). Here
forwards are padded to a few sizes, and attention is computed row by row in one shape (plan.py).
Which sizes give the same bits is not known beforehand: it is tried on the loaded model.
"""

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from spec_cli.core.errors import UsageError
from spec_cli.models.base import RowInput

if TYPE_CHECKING:
    from spec_cli.models.runner import ModelRunner
    from spec_cli.models.slots import SlotRow

_TILES = (16, 8, 32)
"""By preference: a verify block of a few rows, or of one row with a long draft, is one tile."""
_SIZES = (4, 8, 16, 32, 64)
_NUM_TOKENS = 72
_NUM_FORWARDS = 2
"""Full forwards of a size that are compared, at least: shapes differ at once or not at all."""
_NUM_COMPARED = 24
"""Tokens that are compared, at least."""


@dataclass(frozen=True, slots=True)
class FixedShapes:
    """Shapes of all forwards.

    Attributes:
        sizes: Packed tokens of a forward, ascending; it is padded to the next of them, and more
            than the largest are several forwards.
        tile: Queries of every attention call.
    """

    sizes: tuple[int, ...]
    tile: int

    def padded(self, num_tokens: int) -> int:
        """The size that a forward of so many tokens, at most the largest size, is padded to."""
        return next(size for size in self.sizes if size >= num_tokens)

    def __str__(self) -> str:
        """What was chosen, for a notice."""
        if len(self.sizes) == 1:
            return f"every forward runs in tiles of {self.tile} tokens"
        sizes = ", ".join(map(str, self.sizes[:-1]))
        return (
            f"forwards are padded to {sizes} or {self.sizes[-1]} tokens, attention to "
            f"{self.tile} queries of one row"
        )


def cut_inputs(inputs: list[RowInput], size: int) -> list[list[tuple[int, RowInput]]]:
    """Inputs as forwards of at most `size` tokens, each part with the index of its input."""
    batches: list[list[tuple[int, RowInput]]] = [[]]
    room = size
    for index, item in enumerate(inputs):
        token_ids = item.token_ids
        while token_ids:
            if not room:
                batches.append([])
                room = size
            part, token_ids = token_ids[:room], token_ids[room:]
            num_logits = min(len(part), max(0, item.num_logits - len(token_ids)))
            batches[-1].append((index, RowInput(item.row, part, num_logits, item.drawn)))
            room -= len(part)
    return batches


def make_exact(runner: "ModelRunner", model: torch.nn.Module) -> FixedShapes:
    """Find the cheapest shapes that keep a token's bits, and have the runner use them.

    Raises:
        UsageError: There are none.
    """
    if any("experts" in name for name, _ in model.named_modules()):
        raise UsageError(
            "exact is not available: with a mixture of experts, how many tokens an expert gets "
            "depends on the neighbours.",
            hint="Leave out --exact; --dtype float32 comes closest.",
        )
    for tile in _TILES:
        base = _Trial(runner, tile)
        if base.is_invariant(tile):
            sizes = [size for size in _SIZES if size == tile or base.is_invariant(size)]
            runner.shapes = FixedShapes(tuple(sizes), tile)
            return runner.shapes
    runner.shapes = None
    raise UsageError(
        "exact is not available: on this device a token's logits depend on what is computed "
        "beside it, whatever the number of tokens in a forward.",
        hint="Leave out --exact; --dtype float32 comes closest.",
    )


class _Trial:
    """Compares the logits of one text, computed in many ways, with those token by token."""

    def __init__(self, runner: "ModelRunner", tile: int) -> None:
        self._runner = runner
        self._tile = tile
        rng = random.Random(0)
        limit = min(256, runner.vocab_size)
        length = min(_NUM_TOKENS, runner.context_length - 1)
        self._token_ids = [rng.randrange(limit) for _ in range(length)]
        # One by one through a tile, then in odd pieces: every place of a tile is compared.
        num_single = min(tile + 4, length)
        pieces = [1] * num_single + [5] * (-(-(length - num_single) // 5))
        self._reference = self._score(tile, pieces)

    def is_invariant(self, size: int) -> bool:
        """Whether forwards of this size give the reference's bits."""
        num_forwards = max(_NUM_FORWARDS, _NUM_COMPARED // size)
        whole = [size] * num_forwards
        beside = [size - size // 4] * num_forwards
        ways = ((whole, 0), ([size // 2 + 1, *whole], 0), (beside, size // 4))
        return all(self._has_same_bits(self._score(size, *way)) for way in ways)

    def _has_same_bits(self, logits: torch.Tensor) -> bool:
        return torch.equal(logits, self._reference[: len(logits)])

    def _score(self, size: int, pieces: list[int], num_neighbours: int = 0) -> torch.Tensor:
        """Logits of the text, or its beginning, in pieces, in forwards of one size.

        Args:
            size: Packed tokens of each forward.
            pieces: Tokens of the text in each.
            num_neighbours: Tokens of another row before them.

        Returns:
            `[T, V]`.
        """
        runner = self._runner
        runner.shapes = FixedShapes((size,), self._tile)
        rows = [self._acquire(), self._acquire()]
        row, other = rows[1], rows[0]
        found, done = [], 0
        for piece in pieces:
            token_ids = self._token_ids[done : done + piece]
            if not token_ids:
                break
            done += len(token_ids)
            inputs = [RowInput(row, token_ids, len(token_ids))]
            if num_neighbours:
                runner.truncate(other, 0)
                inputs.insert(0, RowInput(other, self._token_ids[-num_neighbours:], 0))
            found.append(runner.forward(inputs))
        for each in rows:
            runner.truncate(each, 0)  # what failed must not be found as a prefix later
            runner.release(each)
        return torch.cat(found)

    def _acquire(self) -> "SlotRow":
        row = self._runner.acquire([0], len(self._token_ids) + 1, 2)
        if row is None:
            raise UsageError("exact is not available: no memory is left to try it.")
        return row
