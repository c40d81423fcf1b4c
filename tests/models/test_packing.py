"""Prepacked weights give the plain product, and only where that is safe."""

import pytest
import torch
from torch import nn

from spec_cli.core.progress import Stage
from spec_cli.models.packing import PackedLinear, WidenedLinear, pack_linears


class Tied(nn.Module):
    """An embedding, two layers and a head that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.layers = nn.Sequential(nn.Linear(24, 40), nn.Linear(40, 24, bias=False))
        self.head = nn.Linear(24, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.head(self.layers(self.embed(ids)))
        return logits


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 8, 100])
def test_packed_product_equals_plain(num_tokens):
    """A packed model gives the plain model's numbers within 1e-5 for any number of tokens."""
    model = Tied().eval()
    ids = torch.arange(num_tokens) % 50
    with torch.inference_mode():
        want = model(ids[None])
        report = pack_linears(model, lambda _: None)
        got = model(ids[None])
    assert report.num_packed == 3
    assert torch.allclose(got, want, atol=1e-5)


def test_tied_head_keeps_the_embedding():
    """Packing a tied head leaves the embedding as it was and counts the second copy."""
    model = Tied().eval()
    before = model.embed.weight.detach().clone()
    report = pack_linears(model, lambda _: None)
    assert isinstance(model.head, PackedLinear)
    assert torch.equal(model.embed.weight, before)
    assert report.extra_bytes == before.numel() * 4


def test_no_tokens_give_no_products():
    """A forward without tokens returns an empty tensor of the right width."""
    layer = PackedLinear(nn.Linear(6, 4).eval().requires_grad_(False))
    assert layer(torch.empty(1, 0, 6)).shape == (1, 0, 4)


def test_weight_can_still_be_read():
    """A model that reads a packed layer's weight gets the numbers it put in."""
    linear = nn.Linear(33, 70).requires_grad_(False)
    assert torch.equal(PackedLinear(linear).weight, linear.weight)


def test_subclasses_hooks_and_shared_weights_stay_plain():
    """Layers that something else reads or watches are not packed."""

    class Odd(nn.Linear):
        """A subclass may use its weight in its own way."""

    shared = nn.Linear(8, 8)
    other = nn.Linear(8, 8)
    other.weight = shared.weight
    hooked = nn.Linear(8, 8)
    hooked.register_forward_hook(lambda *_: None)
    model = nn.Sequential(Odd(8, 8), shared, other, hooked, nn.Linear(8, 8)).eval()
    report = pack_linears(model, lambda _: None)
    assert report.num_packed == 1
    assert isinstance(model[4], PackedLinear)


def test_progress_counts_layers():
    """Each packed layer is reported, the last as the total."""
    stages: list[Stage] = []
    pack_linears(Tied().eval(), stages.append)
    assert [(stage.done, stage.total) for stage in stages] == [(1, 3), (2, 3), (3, 3)]


SIXTEEN_BITS = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
@pytest.mark.parametrize("num_tokens", [0, 1, 2, 3, 8, 100])
def test_a_float32_copy_multiplies_as_exactly_as_the_format_allows(dtype, num_tokens):
    """Products through the copy are those of float64, rounded once to the 16-bit format."""
    linear = nn.Linear(96, 40).to(dtype).requires_grad_(False)
    x = torch.randn(1, num_tokens, 96, dtype=dtype)
    got = WidenedLinear(linear)(x)
    want = nn.functional.linear(x.double(), linear.weight.double(), linear.bias.double())
    assert got.dtype == dtype
    assert got.shape == want.shape
    # One unit in the last place where sums of another order round to the other side.
    assert torch.allclose(got.double(), want, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_copies_are_made_only_where_there_is_room(dtype):
    """With one byte too little nothing is copied and the notice gives both amounts."""
    needed = 4 * (24 * 40 + 40 * 24 + 24 * 50)
    short = Tied().to(dtype).eval()
    report = pack_linears(short, lambda _: None, room_bytes=needed - 1)
    if report.num_packed:
        pytest.skip("this CPU has instructions for the format, so nothing is copied")
    assert report.extra_bytes == 0
    assert "12.5 kB" in str(report.notice)
    assert type(short.head) is nn.Linear
    enough = Tied().to(dtype).eval()
    report = pack_linears(enough, lambda _: None, room_bytes=needed)
    assert (report.num_packed, report.extra_bytes, report.notice) == (3, needed, None)
    assert isinstance(enough.head, WidenedLinear)
    assert torch.equal(enough.head.weight, enough.embed.weight)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_a_layer_kept_in_float32_does_not_speak_for_the_others(dtype):
    """A 16-bit model whose first layer stayed in float32 gives the plain model's numbers."""
    wide, narrow = nn.Linear(16, 24), nn.Linear(24, 8).to(dtype)
    model = nn.Sequential(wide, narrow).eval()
    x = torch.randn(1, 5, 16)
    with torch.inference_mode():
        want = nn.functional.linear(wide(x), narrow.weight.float(), narrow.bias.float())
        pack_linears(model, lambda _: None)
        got = model[1](model[0](x).to(dtype)).float()
    assert torch.allclose(got, want, atol=0.05)
