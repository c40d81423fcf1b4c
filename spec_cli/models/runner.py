"""A transformers model run on packed ragged rows."""

import warnings
from typing import Any

import torch
from transformers import Cache, PreTrainedModel

from spec_cli.core.errors import UsageError
from spec_cli.models.attention import IMPLEMENTATION, ScoreOptions
from spec_cli.models.base import Row, RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.exact import FixedShapes, cut_inputs
from spec_cli.models.plan import ForwardPlan, Span
from spec_cli.models.quiet import quiet_transformers
from spec_cli.models.shared_layers import redirect_shared_layers
from spec_cli.models.slots import LayerShape, SlotRow, SlotStore
from spec_cli.sampling.device import upload


class SlotCache(Cache):
    """transformers' view of a forward: new keys and values go where the plan says."""

    is_compileable = False

    def __init__(self, plan: "ForwardPlan | LayerProbe") -> None:
        super().__init__(layers=[])
        self._plan = plan

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store keys and values `[1, H, N, D]`; attention reads them from their slots."""
        self._plan.store(layer_idx, key_states, value_states)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Nothing is cached as far as transformers need to know: positions are always given."""
        del layer_idx
        return 0


class LayerProbe:
    """A plan that learns what each layer caches from the forward of a single token.

    Attributes:
        shapes: What each layer caches.
        windows: The sliding window each layer asked for, if any.
    """

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}
        self._values: dict[int, torch.Tensor] = {}

    def store(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Note the shapes of a layer's keys and values `[1, H, 1, D]`."""
        self.shapes[layer] = LayerShape(
            key.shape[1], key.shape[-1], value.shape[-1], key.dtype, key.device
        )
        self._values[layer] = value

    def attend(self, layer: int, query: torch.Tensor, options: ScoreOptions) -> torch.Tensor:
        """A token that attends only to itself gets its own value, `[1, Hq, Dv]`."""
        self.windows[layer] = options.window
        value = self._values[layer][0].transpose(0, 1)  # [1, H, Dv]
        return value.repeat_interleave(query.shape[0] // value.shape[1], dim=1)


class ModelRunner:
    """One model with its slot cache: the same forward for prefill, verification and drafting.

    Attributes:
        shapes: Shapes that every forward is brought into, so that a token's logits do not depend
            on what is computed with it; None lets each forward have its own.
    """

    can_roll_back = True

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        context_length: int,
        budget: MemoryBudget,
        vocab_size: int | None = None,
    ) -> None:
        """Prepare a loaded model.

        Args:
            model: In evaluation mode; its attention is replaced by `spec_slots`.
            context_length: Most tokens of a row, within what the model was made for.
            budget: Bytes that the caches of all models may take.
            vocab_size: Width of the logits to return: wider ones are cut, narrower ones padded
                with -inf. A draft model gives its target's. None keeps the model's own.

        Raises:
            UsageError: The model does not take the attention function or hides a window from it.
        """
        self._model = model
        self._device = model.get_input_embeddings().weight.device
        self.shapes: FixedShapes | None = None
        self.context_length = context_length
        _use_slot_attention(model)
        redirect_shared_layers(model)
        probe, width = self._probe()
        self.vocab_size = vocab_size or width
        self.store = SlotStore(probe.shapes, context_length, budget)

    def bytes_for(self, max_length: int) -> int:
        """See `Runner.bytes_for`."""
        return self.store.bytes_for(max_length)

    def acquire(self, token_ids: list[int], max_length: int, num_rows: int) -> SlotRow | None:
        """See `Runner.acquire`."""
        return self.store.acquire(token_ids, max_length, num_rows)

    def release(self, row: Row) -> None:
        """See `Runner.release`."""
        self.store.release(_slot_row(row))

    def truncate(self, row: Row, length: int) -> None:
        """See `Runner.truncate`."""
        del row.token_ids[length:]

    @torch.inference_mode()
    def forward(self, inputs: list[RowInput]) -> torch.Tensor:
        """See `Runner.forward`."""
        if self.shapes is None:
            return self._forward(inputs)
        parts: list[list[torch.Tensor]] = [[] for _ in inputs]
        for batch in cut_inputs(inputs, self.shapes.sizes[-1]):
            items = [item for _, item in batch]
            logits = self._forward(items).split([item.num_logits for item in items])
            for (index, _), part in zip(batch, logits, strict=True):
                parts[index].append(part)
        return torch.cat([part for found in parts for part in found])

    def _forward(self, inputs: list[RowInput]) -> torch.Tensor:
        """One forward of the model."""
        rows = [_slot_row(item.row) for item in inputs]
        order = sorted(range(len(inputs)), key=lambda i: (rows[i].slab.order, rows[i].index))
        spans: list[Span] = []
        token_ids: list[int] = []
        positions: list[int] = []
        wanted: list[list[int]] = [[] for _ in inputs]  # packed indices that want logits
        for i in order:
            item, start = inputs[i], len(rows[i].token_ids)
            spans.append(Span(rows[i], start, len(item.token_ids)))
            token_ids += item.token_ids
            positions += range(start, start + len(item.token_ids))
            wanted[i] = list(range(len(token_ids) - item.num_logits, len(token_ids)))
        keep = [index for indices in wanted for index in indices]
        drawn = [token for i in order if (token := inputs[i].drawn) is not None]
        packed = torch.cat(drawn).to(self._device) if drawn else upload(token_ids, self._device)
        logits = self._run_shaped(packed, positions, keep, spans)
        for item in inputs:
            item.row.token_ids.extend(item.token_ids)
        return logits

    def _run_shaped(
        self, token_ids: torch.Tensor, positions: list[int], keep: list[int], spans: list[Span]
    ) -> torch.Tensor:
        """Run one packed row `[N]`, padded where the shapes are fixed."""
        if self.shapes is None:
            return self._run(token_ids, positions, keep, ForwardPlan(spans))
        size = self.shapes.padded(len(token_ids))
        num_padding = size - len(token_ids)
        plan = ForwardPlan(spans, pad_to=size, tile=self.shapes.tile)
        # The output layer is a product too: it gets all tokens, or none.
        logits = self._run(
            torch.cat((token_ids, token_ids[:1].expand(num_padding))),
            positions + [0] * num_padding,
            list(range(size)) if keep else [],
            plan,
        )
        return logits[upload(keep, logits.device)]

    def _run(
        self,
        token_ids: torch.Tensor,
        positions: list[int],
        keep: list[int],
        plan: ForwardPlan | LayerProbe,
    ) -> torch.Tensor:
        """The model's forward on one packed row `[N]`; returns float32 `[M, V]`."""
        device = self._device
        output = self._model(
            input_ids=token_ids[None],  # [1, N]
            position_ids=upload([positions], device),  # [1, N]
            # A 4-D mask passes through transformers untouched; the plan knows what is visible.
            attention_mask=torch.zeros(1, 1, 1, 1, device=device),
            cache=SlotCache(plan),
            use_cache=True,
            logits_to_keep=upload(keep, device),
            slots=plan,
        )
        return self._fit_vocabulary(output.logits[0].float())

    def _fit_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        size = getattr(self, "vocab_size", logits.shape[-1])
        if logits.shape[-1] >= size:
            return logits[:, :size]
        return torch.nn.functional.pad(logits, (0, size - logits.shape[-1]), value=float("-inf"))

    def _probe(self) -> tuple[LayerProbe, int]:
        probe = LayerProbe()
        with torch.inference_mode(), quiet_transformers():
            width = self._run(upload([0], self._device), [0], [0], probe).shape[-1]
        # A file may use the interface for its image layers and not for its text.
        if probe.windows.keys() != probe.shapes.keys():
            raise _keeps_attention(self._model)
        types = getattr(self._model.config.get_text_config(), "layer_types", None) or ()
        for layer, kind in enumerate(types):
            window = probe.windows.get(layer)
            hidden_window = kind == "sliding_attention" and layer in probe.shapes and window is None
            if hidden_window or kind == "chunked_attention":
                raise UsageError(
                    f"{type(self._model).__name__} has a layer of kind {kind} whose reach the slot "
                    "cache does not learn, so its answers would be wrong."
                )
        return probe, width


def _use_slot_attention(model: PreTrainedModel) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.set_attn_implementation(IMPLEMENTATION)
    if model.config._attn_implementation != IMPLEMENTATION:
        raise _keeps_attention(model)


def _keeps_attention(model: PreTrainedModel) -> UsageError:
    return UsageError(f"{type(model).__name__} does not let its attention be replaced.")


def _slot_row(row: Row) -> SlotRow:
    assert isinstance(row, SlotRow)
    return row
