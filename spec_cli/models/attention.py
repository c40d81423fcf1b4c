"""The attention function that transformers' layers call, and its arithmetic.

Registered as `spec_slots`. Which slots a packed token may see is the business of the forward's plan
(plan.py); here are only queries, keys, values and scores.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

IMPLEMENTATION = "spec_slots"


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """How a layer turns queries and keys into weights.

    Attributes:
        scaling: Factor of the scores; None is 1 / sqrt(D).
        window: Sliding window in tokens, or None.
        softcap: Soft cap of the scores (Gemma 2), or None.
        sinks: Attention sinks `[Hq]` (gpt-oss), or None.
    """

    scaling: float | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None


def slot_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    slots: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function registered with transformers.

    Keys and values are already in their slots (`SlotCache.update`).

    Args:
        module: The attention layer; its `layer_idx` finds the slots.
        query: `[1, Hq, N, D]`.
        key: Ignored, as are `value` and `attention_mask`.
        scaling: Factor of the scores.
        sliding_window: Window of this layer, if any.
        softcap: Soft cap of the scores, if any.
        s_aux: Attention sinks, if any.
        slots: The plan of this forward.

    Returns:
        `[1, N, Hq, Dv]`, and no weights.
    """
    del key, value, attention_mask
    options = ScoreOptions(scaling, sliding_window, softcap, s_aux)
    return slots.attend(module.layer_idx, query[0], options)[None], None


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    options: ScoreOptions,
) -> torch.Tensor:
    """Attention of queries to the keys of their own rows.

    Args:
        q: `[B, H, G * Q, D]`: the query heads of a key-value head, one after the other.
        k: `[B, H, kv, D]`.
        v: `[B, H, kv, Dv]`.
        mask: Additive, `[B, 1, G * Q, kv]`, or None.
        options: How the layer scores.

    Returns:
        `[B, H, G * Q, Dv]`.
    """
    if options.softcap is None and options.sinks is None:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=options.scaling)
    return _explicit_attention(q, k, v, mask, options)


def _explicit_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    options: ScoreOptions,
) -> torch.Tensor:
    """Attention with soft-capped scores or with sinks, which no fused kernel offers."""
    scale = options.scaling if options.scaling is not None else q.shape[-1] ** -0.5
    scores = (q @ k.transpose(-1, -2)) * scale  # [B, H, G * Q, kv]
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    if mask is not None:
        scores = scores + mask
    if options.sinks is None:
        return scores.softmax(dim=-1, dtype=torch.float32).to(v.dtype) @ v
    num_rows, heads, length = scores.shape[:3]
    sinks = options.sinks.reshape(1, heads, -1, 1, 1)  # [1, H, G, 1, 1]
    folds = sinks.shape[2]
    column = sinks.expand(num_rows, -1, -1, length // folds, 1).reshape(num_rows, heads, length, 1)
    weights = torch.cat((scores, column.to(scores.dtype)), dim=-1)
    return weights.softmax(dim=-1, dtype=torch.float32)[..., :-1].to(v.dtype) @ v


def _no_mask(*_: Any, **__: Any) -> None:
    """The plan knows what each token sees; transformers need not build a mask."""


AttentionInterface.register(IMPLEMENTATION, slot_attention)
AttentionMaskInterface.register(IMPLEMENTATION, _no_mask)
