"""A model whose cache cannot be rolled back, run without speculation.

Recurrent and hybrid layers keep a state that forgets how it came about; and some attention classes
do not let their attention be replaced. Such models run in transformers' own cache, row by row, one
committed token after the other.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from spec_cli.models.base import Row, RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.quiet import quiet_transformers


@dataclass(eq=False, slots=True)
class PlainRow:
    """One sequence with a cache of its own.

    Attributes:
        token_ids: The tokens it has processed.
        cache: transformers' cache, made on the first forward.
        num_bytes: What it reserves of the budget.
    """

    token_ids: list[int] = field(default_factory=list)
    cache: Any = None
    num_bytes: int = 0


class PlainRunner:
    """Rows in caches of their own; a row moves only forward."""

    can_roll_back = False

    def __init__(
        self, model: PreTrainedModel, *, context_length: int, budget: MemoryBudget
    ) -> None:
        """Wrap a loaded model.

        Args:
            model: In evaluation mode.
            context_length: Most tokens of a row.
            budget: Bytes that the caches of all models may take.
        """
        self._model = model
        self._device = model.get_input_embeddings().weight.device
        self._budget = budget
        self.context_length = context_length
        config = model.config.get_text_config(decoder=True)
        self.vocab_size = int(config.vocab_size)
        self._bytes_per_token = cached_numbers(config) * model.dtype.itemsize
        with quiet_transformers():  # some layers warn of missing kernels on their first call
            self.forward([RowInput(PlainRow(), [0], 0)])

    def bytes_for(self, max_length: int) -> int:
        """See `Runner.bytes_for`."""
        return max_length * self._bytes_per_token

    def acquire(self, token_ids: list[int], max_length: int, num_rows: int) -> PlainRow | None:
        """See `Runner.acquire`; nothing is reused, for a state cannot be cut to a prefix."""
        del token_ids, num_rows
        num_bytes = self.bytes_for(max_length)
        if not self._budget.reserve(num_bytes, reclaim=True):
            return None
        return PlainRow(num_bytes=num_bytes)

    def release(self, row: Row) -> None:
        """See `Runner.release`."""
        assert isinstance(row, PlainRow)
        self._budget.release(row.num_bytes)
        row.cache = None

    def truncate(self, row: Row, length: int) -> None:
        """Only a row that holds no more than `length` tokens can be truncated."""
        assert len(row.token_ids) <= length, "a row of this model cannot be rolled back"

    @torch.inference_mode()
    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        """See `Runner.forward`."""
        logits = []
        for item in inputs:
            row = item.row
            assert isinstance(row, PlainRow)
            if row.cache is None:
                row.cache = DynamicCache(config=self._model.config)
            output = self._model(
                input_ids=torch.tensor([item.token_ids], device=self._device),  # [1, N]
                cache=row.cache,
                use_cache=True,
            )
            row.token_ids.extend(item.token_ids)
            if item.num_logits:
                logits.append(output.logits[0, -item.num_logits :].float())
        if not logits:
            return torch.empty(0, self.vocab_size)
        return torch.cat(logits)


def cached_numbers(config: Any) -> int:
    """Numbers that attention layers cache per token, counting every layer as one.

    An upper bound: a recurrent layer's state does not grow. Nothing for models without attention.
    """
    num_heads = getattr(config, "num_attention_heads", None)
    if not num_heads:
        return 0
    kv_heads = getattr(config, "num_key_value_heads", None) or num_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // num_heads
    return int(2 * config.num_hidden_layers * kv_heads * head_dim)
