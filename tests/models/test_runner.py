"""The runner: one forward for prefill, verification and drafting."""

import random

import pytest
import torch

from spec_cli.core.errors import UsageError
from spec_cli.models.base import UNREAD, RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.exact import FixedShapes
from spec_cli.models.runner import ModelRunner
from spec_cli.models.slots import SlotRow
from tests import tiny
from tests.accelerator import Accelerator

EXPERTS = ("mixtral", "qwen3_moe", "gpt_oss")
"""They count tokens per expert by an operator that a CPU has only for other numbers."""
TEXT = [random.Random(0).randrange(tiny.VOCAB) for _ in range(40)]


def make(family: str = "llama", vocab_size: int | None = None) -> ModelRunner:
    return ModelRunner(
        tiny.slotted(family),
        context_length=tiny.CONTEXT,
        budget=MemoryBudget(10**9),
        vocab_size=vocab_size,
    )


def take(runner: ModelRunner, max_length: int = 64) -> SlotRow:
    row = runner.acquire([1], max_length, 1)
    assert row is not None
    return row


@torch.inference_mode()
def plain(family: str, token_ids: list[int]) -> torch.Tensor:
    logits: torch.Tensor = tiny.plain(family)(torch.tensor([token_ids]), use_cache=False).logits
    return logits[0]


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_any_split_gives_the_same_logits(family: str) -> None:
    """Catch-up rule: a text handed over at once, in pieces or token by token scores the same."""
    runner = make(family)
    want = plain(family, TEXT)
    for sizes in ([40], [1] * 40, [7, 1, 1, 20, 11], [39, 1]):
        row = take(runner)
        got, done = [], 0
        for size in sizes:
            got.append(runner.forward([RowInput(row, TEXT[done : done + size], size)]))
            done += size

        assert torch.allclose(torch.cat(got), want, atol=1e-4)
        assert row.token_ids == TEXT


def test_logits_come_in_the_order_of_the_inputs() -> None:
    """However rows lie in their slabs, logits follow the inputs, and only those asked for come."""
    runner = make()
    rows = [take(runner, length) for length in (200, 64, 100, 64)]
    lengths, wanted = (3, 20, 9, 5), (1, 0, 9, 2)
    texts = [TEXT[i : i + n] for i, n in enumerate(lengths)]
    order = (2, 0, 3, 1)
    got = runner.forward([RowInput(rows[i], texts[i], wanted[i]) for i in order])
    want = [plain("llama", texts[i])[lengths[i] - wanted[i] :] for i in order]

    assert torch.allclose(got, torch.cat(want), atol=1e-4)
    assert got.dtype == torch.float32


@pytest.mark.parametrize("shapes", [None, FixedShapes((2, 4), 4)])
def test_tokens_that_only_the_device_knows(shapes: FixedShapes | None) -> None:
    """A token handed over on the device scores as from the host; its row holds UNREAD for it."""
    runner = make()
    runner.shapes = shapes
    rows = [take(runner, length) for length in (200, 64, 100, 64, 100)]
    for i, row in enumerate(rows):
        runner.forward([RowInput(row, TEXT[: 3 + i], 0)])
    order = (2, 0, 4, 3, 1)
    got = runner.forward([RowInput(rows[i], [UNREAD], 1, torch.tensor([30 + i])) for i in order])

    assert [row.token_ids[-1] for row in rows] == [UNREAD] * 5
    for row in rows:
        runner.truncate(row, len(row.token_ids) - 1)
    assert torch.equal(got, runner.forward([RowInput(rows[i], [30 + i], 1) for i in order]))


@pytest.mark.parametrize("family", [f for f in tiny.FAMILIES if f not in EXPERTS])
def test_a_forward_waits_for_nothing(family: str) -> None:
    """On an accelerator a forward of prompts, drafts and single tokens reads nothing back."""
    accelerator = Accelerator()
    with torch.inference_mode(), accelerator:
        runner = ModelRunner(
            accelerator.put(tiny.slotted(family)),
            context_length=tiny.CONTEXT,
            budget=MemoryBudget(10**9),
        )
        rows = [take(runner) for _ in range(3)]
        accelerator.reads.clear()
        for sizes in ((9, 1, 20), (1, 5, 1)):
            runner.forward([RowInput(r, TEXT[:n], 1) for r, n in zip(rows, sizes, strict=True)])

    assert accelerator.reads == []


def test_no_logits() -> None:
    """A piece of a prompt that wants no logits gets none, and its keys are stored."""
    runner = make()
    row = take(runner)

    assert runner.forward([RowInput(row, TEXT[:9], 0)]).shape == (0, tiny.VOCAB)
    got = runner.forward([RowInput(row, TEXT[9:10], 1)])
    assert torch.allclose(got, plain("llama", TEXT[:10])[9:], atol=1e-4)


@pytest.mark.parametrize("width", [40, 64, 80])
def test_logits_have_the_width_asked_for(width: int) -> None:
    """A draft's logits are cut or padded with -inf to its target's vocabulary."""
    runner = make(vocab_size=width)
    got = runner.forward([RowInput(take(runner), TEXT[:5], 5)])
    want = plain("llama", TEXT[:5])

    assert runner.vocab_size == width
    assert got.shape == (5, width)
    assert torch.allclose(got[:, :64], want[:, :width], atol=1e-4)
    assert got[:, 64:].eq(float("-inf")).all()


def test_the_context_end_is_usable() -> None:
    """The last position of the context is processed like any other."""
    text = [random.Random(1).randrange(tiny.VOCAB) for _ in range(tiny.CONTEXT)]
    for family in ("llama", "gpt2", "opt"):
        runner = make(family)
        got = runner.forward([RowInput(take(runner, tiny.CONTEXT), text, 1)])

        assert torch.allclose(got, plain(family, text)[-1:], atol=1e-4)


@pytest.mark.parametrize("kind", ["chunked_attention", "sliding_attention"])
def test_a_hidden_reach_is_refused(kind: str) -> None:
    """A layer that says it sees less than all, without telling how much, is an error by name."""
    model = tiny.build("llama")
    model.config.layer_types = [kind, "full_attention"]

    with pytest.raises(UsageError, match=kind):
        ModelRunner(model, context_length=64, budget=MemoryBudget(10**9))
