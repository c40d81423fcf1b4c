"""Weights of linear layers laid out once for oneDNN, instead of at every call.

A CPU without instructions for a 16-bit format multiplies it token by token, and oneDNN does not lay
it out. There a float32 copy is laid out beside it: it multiplies several tokens at once, with the
same exact products, and the 16-bit weight, half as long to read, multiplies a single token.

The operators are private to torch, so they are tried against the plain path first; where they are
missing or disagree, the plain path stays and a notice says so.
"""

from dataclasses import dataclass

import torch
from torch import nn

from spec_cli.core.byte_size import format_bytes
from spec_cli.core.progress import ReportStage, Stage

# The layout is chosen for this many tokens; other numbers of tokens work as well.
_TOKENS_HINT = 8


@dataclass(frozen=True, slots=True)
class PackingReport:
    """What was packed.

    Attributes:
        num_packed: Linear layers whose weight has the packed layout.
        extra_bytes: Bytes of packed copies beside weights that stay.
        notice: Why nothing was packed, or None.
    """

    num_packed: int
    extra_bytes: int
    notice: str | None = None


class PackedLinear(nn.Module):
    """A linear layer whose weight oneDNN has laid out."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        # Plain tensors, not parameters: those are found through a slow path of nn.Module.
        self.bias = None if linear.bias is None else linear.bias.detach()
        self.packed_weight = _pack(linear.weight.detach())

    @property
    def weight(self) -> torch.Tensor:
        """The weight in its plain layout, made anew: few models read it, none at every step."""
        return self.packed_weight.to_dense()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x @ weight.T + bias`, `[..., in]` to `[..., out]`."""
        if x.numel() == 0:
            return x.new_empty(*x.shape[:-1], self.out_features)
        return _multiply(x, self.packed_weight, self.bias)


class WidenedLinear(nn.Module):
    """A linear layer in a 16-bit format, with a float32 copy that oneDNN has laid out."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.weight = linear.weight.detach()
        self.bias = None if linear.bias is None else linear.bias.detach()
        self.wide_bias = None if self.bias is None else self.bias.float()
        self.packed_weight = _pack(self.weight.float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x @ weight.T + bias`, `[..., in]` to `[..., out]`, rounded once at the end."""
        if x.numel() <= self.in_features:  # one token, or none
            return nn.functional.linear(x, self.weight, self.bias)
        return _multiply(x.float(), self.packed_weight, self.wide_bias).to(x.dtype)


def pack_linears(
    model: nn.Module, report: ReportStage, *, room_bytes: int | None = None
) -> PackingReport:
    """Pack every plain linear layer of a model on the CPU, one after the other.

    Layers of other classes, on other devices, offloaded, hooked or with a weight that another
    linear layer shares stay as they are; a head tied to the embedding keeps the embedding beside
    its packed copy.

    Args:
        model: In evaluation mode; its modules are replaced in place.
        report: Told of the progress.
        room_bytes: Most that float32 copies of 16-bit weights may take; None sets no limit.
    """
    places = _packable(model)
    if not places:
        return PackingReport(0, 0)
    # A 16-bit model may keep some layers in float32: the narrowest tells what must be possible.
    narrowest = min((linear for _, _, linear in places), key=lambda x: x.weight.element_size())
    dtype = narrowest.weight.dtype
    kind: type[PackedLinear | WidenedLinear] = PackedLinear
    fault = _try_operators(narrowest, dtype)
    if fault is not None and dtype != torch.float32:
        kind = WidenedLinear
        fault = _try_operators(narrowest, torch.float32)
        fault = fault or _lacks_room(places, dtype, room_bytes)
    if fault is not None:
        return PackingReport(0, 0, f"weights are not prepacked for this CPU: {fault.rstrip('.')}.")
    tied = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    extra_bytes = 0
    for done, (parent, name, linear) in enumerate(places):
        weight = linear.weight
        setattr(parent, name, kind(linear))
        if kind is WidenedLinear or id(weight) in tied:
            extra_bytes += weight.numel() * (4 if kind is WidenedLinear else weight.element_size())
        report(Stage("pack", "weights", done + 1, len(places)))
    return PackingReport(len(places), extra_bytes)


def _lacks_room(
    places: list[tuple[nn.Module, str, nn.Linear]], dtype: torch.dtype, room_bytes: int | None
) -> str | None:
    """Why float32 copies of the weights cannot be had, or None."""
    num_bytes = sum(4 * linear.weight.numel() for _, _, linear in places)
    if room_bytes is None or num_bytes <= room_bytes:
        return None
    name = str(dtype).removeprefix("torch.")
    return (
        f"it has no instructions for {name}, and float32 copies of the weights need "
        f"{format_bytes(num_bytes)} of memory where {format_bytes(max(0, room_bytes))} may be used"
    )


def _packable(model: nn.Module) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Linear layers that may be packed, with their parent and their name in it."""
    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear  # a subclass may read its weight in a way of its own
    ]
    uses: dict[int, int] = {}
    for _, _, linear in places:
        uses[id(linear.weight)] = uses.get(id(linear.weight), 0) + 1
    return [
        (parent, name, linear)
        for parent, name, linear in places
        if uses[id(linear.weight)] == 1 and _is_plain(linear)
    ]


def _is_plain(linear: nn.Linear) -> bool:
    has_hooks = hasattr(linear, "_hf_hook") or linear._forward_hooks or linear._forward_pre_hooks
    return (
        linear.weight.device.type == "cpu"
        and linear.weight.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and not has_hooks
    )


def _try_operators(linear: nn.Linear, dtype: torch.dtype) -> str | None:
    """Run the operators once beside the plain path; returns what is wrong, or None."""
    weight = linear.weight.detach().to(dtype)
    bias = None if linear.bias is None else linear.bias.detach().to(dtype)
    x = torch.linspace(-1.0, 1.0, 3 * linear.in_features).reshape(1, 3, -1).to(dtype)
    try:
        with torch.inference_mode():
            expected = nn.functional.linear(x, weight, bias).float()
            found = _multiply(x, _pack(weight), bias).float()
    except (AttributeError, RuntimeError) as error:
        return str(error).strip().partition("\n")[0]
    tolerance = 1e-4 if weight.dtype == torch.float32 else 2e-2
    scale = expected.abs().max().clamp(min=1.0)
    if found.shape != expected.shape or bool((found - expected).abs().max() > tolerance * scale):
        return "the packed product differs from the plain one"
    return None


def _pack(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _TOKENS_HINT)
    return packed


def _multiply(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return product
