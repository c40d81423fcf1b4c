"""Weights of linear layers laid out once for oneDNN, instead of at every call.

The operators are private to torch, so they are tried against the plain path first; where they are
missing or disagree, the plain path stays and a notice says so.
"""

from dataclasses import dataclass

import torch
from torch import nn

from spec_cli.core.progress import ReportStage, Stage

# The layout is chosen for this many tokens; other numbers of tokens work as well.
_TOKENS_HINT = 8


@dataclass(frozen=True, slots=True)
class PackingReport:
    """What was packed.

    Attributes:
        num_packed: Linear layers whose weight has the packed layout.
        extra_bytes: Bytes of packed copies beside embeddings they are tied to.
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


def pack_linears(model: nn.Module, report: ReportStage) -> PackingReport:
    """Pack every plain linear layer of a model on the CPU, one after the other.

    Layers of other classes, on other devices, offloaded, hooked or with a weight that another
    linear layer shares stay as they are; a head tied to the embedding keeps the embedding beside
    its packed copy.

    Args:
        model: In evaluation mode; its modules are replaced in place.
        report: Told of the progress.
    """
    places = _packable(model)
    if not places:
        return PackingReport(0, 0)
    fault = _try_operators(places[0][2])
    if fault is not None:
        return PackingReport(0, 0, f"weights are not prepacked for this CPU: {fault}")
    tied = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    extra_bytes = 0
    for done, (parent, name, linear) in enumerate(places):
        weight = linear.weight
        setattr(parent, name, PackedLinear(linear))
        if id(weight) in tied:
            extra_bytes += weight.numel() * weight.element_size()
        report(Stage("pack", "weights", done + 1, len(places)))
    return PackingReport(len(places), extra_bytes)


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
        and linear.weight.dtype in (torch.float32, torch.bfloat16)
        and not has_hooks
    )


def _try_operators(linear: nn.Linear) -> str | None:
    """Run the operators once beside the plain path; returns what is wrong, or None."""
    weight = linear.weight.detach()
    x = torch.linspace(-1.0, 1.0, 3 * linear.in_features).reshape(1, 3, -1).to(weight.dtype)
    try:
        with torch.inference_mode():
            expected = nn.functional.linear(x, weight, linear.bias).float()
            found = _multiply(x, _pack(weight), linear.bias).float()
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
