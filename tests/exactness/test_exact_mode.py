"""Exact mode: a token's logits have the same bits, and so it is the same, whatever is beside it."""

import copy
import functools
import random
from typing import Any

import pytest
import torch

from spec_cli.core.errors import UsageError
from spec_cli.core.progress import Stage
from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.exact import FixedShapes, cut_inputs, make_exact
from spec_cli.models.packing import pack_linears
from spec_cli.models.runner import ModelRunner
from spec_cli.models.slots import SlotRow
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.hybrid import HybridProposer, Prices
from spec_cli.proposers.ngram import NgramProposer
from spec_cli.proposers.suffix import SuffixProposer
from tests import tiny
from tests.driving import PLENTY, drive, request

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CONTEXT = 1200
WIDTHS: dict[str, int] = {"hidden_size": 96, "intermediate_size": 224, "head_dim": 24}


def ignore(stage: Stage) -> None:
    """Progress goes nowhere."""


def model(dtype: str, kind: str = "plain", seed: int = 0) -> Any:
    """A Llama wide enough for kernels to sum in more than one order."""
    config = tiny.config("llama")
    config.update({**WIDTHS, "max_position_embeddings": CONTEXT})
    torch.manual_seed(seed)
    made = type(tiny.plain("llama"))(config).eval().requires_grad_(False).to(DTYPES[dtype])
    if kind == "packed":
        pack_linears(made, ignore)
    return made


@functools.cache
def runner(dtype: str, kind: str = "plain", *, is_exact: bool = True) -> ModelRunner:
    loaded = model(dtype, kind)
    made = ModelRunner(loaded, context_length=CONTEXT, budget=MemoryBudget(PLENTY))
    if is_exact:
        make_exact(made, loaded)
    return made


def text(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(tiny.VOCAB) for _ in range(length)]


def take(target: ModelRunner, max_length: int) -> SlotRow:
    row = target.acquire([0], max_length, 4)
    assert row is not None
    return row


def score(target: ModelRunner, tokens: list[int], seed: int | None) -> torch.Tensor:
    """Logits of a text: one by one (no seed), or in random pieces beside random neighbours."""
    rng = random.Random(seed)
    rows = [take(target, len(tokens) + 40) for _ in range(1 if seed is None else 4)]
    own = 0 if seed is None else rng.randrange(4)
    found, done = [], 0
    while done < len(tokens):
        size = 1 if seed is None else rng.choice((1, 1, 2, 3, 5, 9, 17, 40, 130))
        piece = tokens[done : done + size]
        done += len(piece)
        inputs = []
        for i, row in enumerate(rows):
            if i == own:
                inputs.append(RowInput(row, piece, len(piece)))
            elif rng.random() < 0.7:
                target.truncate(row, rng.randrange(len(row.token_ids) + 1))
                beside = text(rng.choice((1, 4, 12)), rng.randrange(99))
                if len(row.token_ids) + len(beside) < len(tokens):
                    inputs.append(RowInput(row, beside, 0))
        found.append(target.forward(inputs))
    for row in rows:
        target.truncate(row, 0)
        target.release(row)
    return torch.cat(found)


@pytest.mark.parametrize("kind", ["plain", "packed"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_depend_on_nothing_beside(dtype: str, kind: str) -> None:
    """Any batch, draft length and chunking gives the bits of one token at a time."""
    target = runner(dtype, kind)
    tokens = text(120)
    want = score(target, tokens, None)

    for seed in range(6):
        assert torch.equal(score(target, tokens, seed), want), f"schedule {seed}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_in_a_long_context(dtype: str) -> None:
    """Across the edges of the attention's slot tiles the bits stay."""
    target = runner(dtype)
    tokens = text(1060)
    first, second = (score(target, tokens, seed) for seed in (20, 21))

    assert torch.equal(first, second)


def test_without_it_bits_differ() -> None:
    """The control: with each forward in its own shape, some logits differ in their last bits."""
    target = runner("float32", is_exact=False)
    tokens = text(150)
    want = score(target, tokens, None)

    assert any(not torch.equal(score(target, tokens, seed), want) for seed in range(8))


def test_logits_are_those_of_the_plain_forward() -> None:
    """Padding, cutting and dropping change no value by more than rounding, nor their order."""
    exact, free = runner("float32"), runner("float32", is_exact=False)
    inputs = []
    for target in (exact, free):
        rows = [take(target, 300) for _ in range(3)]
        inputs.append(
            [
                RowInput(row, text(n, n), k)
                for row, n, k in zip(rows, (100, 3, 1), (70, 0, 1), strict=True)
            ]
        )
    got, want = exact.forward(inputs[0]), free.forward(inputs[1])

    assert got.shape == want.shape == (71, tiny.VOCAB)
    assert torch.allclose(got, want, atol=1e-4)
    assert [len(item.row.token_ids) for item in inputs[0]] == [100, 3, 1]


@functools.cache
def proposer_parts(dtype: str) -> ModelRunner:
    """A draft model that is right now and then: the target with noise."""
    noisy = tiny.noisy_copy(model(dtype), 0.02)
    return ModelRunner(noisy, context_length=CONTEXT, budget=MemoryBudget(PLENTY))


def make_proposer(kind: str, dtype: str) -> Any:
    if kind == "ngram":
        return NgramProposer()
    if kind == "suffix":
        return SuffixProposer()
    draft = DraftModelProposer(proposer_parts(dtype), verify="coupled", num_token_ids=tiny.VOCAB)
    if kind == "draft":
        return draft
    return HybridProposer(SuffixProposer(), draft, lambda _: Prices(0.2, 0.04))


def answers(target: ModelRunner, proposer: Any, k: int, rows: int, temperature: float) -> Any:
    driver = drive(target, proposer, k, max_rows=rows)
    for i in range(4):
        driver.add(request(str(i), tiny.prompt(i), 28, seed=i, temperature=temperature))
        driver.step()
    return {name: answer.token_ids for name, answer in driver.run().items()}


@functools.cache
def alone(dtype: str, temperature: float) -> Any:
    """The target alone, one request after the other."""
    return answers(runner(dtype), None, 0, 1, temperature)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["ngram", "suffix", "draft", "hybrid"])
def test_bfloat16_tokens_are_those_of_the_target_alone(
    kind: str, temperature: float, rows: int
) -> None:
    """In bf16, with every proposer, draft length and batch, no token changes."""
    for k in (2, 4, 8) if rows == 4 else (4,):
        got = answers(runner("bfloat16"), make_proposer(kind, "bfloat16"), k, rows, temperature)

        assert got == alone("bfloat16", temperature), f"k = {k}"


def test_experts_are_refused() -> None:
    """With a mixture of experts shapes depend on the neighbours: an error that says so."""
    mixture = copy.deepcopy(tiny.plain("mixtral"))
    target = ModelRunner(mixture, context_length=64, budget=MemoryBudget(PLENTY))

    with pytest.raises(UsageError, match="exact is not available: with a mixture of experts"):
        make_exact(target, mixture)


class Drifting(torch.nn.Module):
    """A layer whose result depends on how many tokens it gets and where a token is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1e-3 * torch.arange(x.shape[1])[None, :, None]


def test_no_shape_is_refused() -> None:
    """Where no shape keeps the bits it is an error, and nothing of the trial stays behind."""
    loaded = model("float32")
    loaded.model.norm = torch.nn.Sequential(loaded.model.norm, Drifting())
    target = ModelRunner(loaded, context_length=CONTEXT, budget=MemoryBudget(PLENTY))

    with pytest.raises(UsageError, match="whatever the number of tokens"):
        make_exact(target, loaded)

    assert target.shapes is None
    assert not any(row.token_ids for slab in target.store.slabs for row in slab.rows)


class NeedsSixteen(torch.nn.Module):
    """A layer that sums in another order unless it gets 16 tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.shape[1] == 16 else x * (1 + 1e-3 * x.shape[1])


def test_only_sizes_with_the_same_bits_are_used() -> None:
    """Of the sizes tried, those that differ are left out, and the notice says what is done."""
    loaded = model("float32")
    loaded.model.norm = torch.nn.Sequential(loaded.model.norm, NeedsSixteen())
    target = ModelRunner(loaded, context_length=CONTEXT, budget=MemoryBudget(PLENTY))
    shapes = make_exact(target, loaded)

    assert shapes == target.shapes == FixedShapes((16,), 16)
    assert str(shapes) == "every forward runs in tiles of 16 tokens"
    assert str(FixedShapes((8, 16, 32), 16)).startswith("forwards are padded to 8, 16 or 32 tokens")


def test_cut_inputs() -> None:
    """Inputs fill forwards in order; each part wants the logits of its own last tokens."""
    row: Any = object()
    inputs = [RowInput(row, [1, 2, 3], 1), RowInput(row, [4, 5, 6, 7, 8], 4)]
    cut = [
        [(index, item.token_ids, item.num_logits) for index, item in batch]
        for batch in cut_inputs(inputs, 4)
    ]

    assert cut == [[(0, [1, 2, 3], 1), (1, [4], 0)], [(1, [5, 6, 7, 8], 4)]]
