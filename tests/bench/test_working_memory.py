"""Working memory: bytes that a forward holds for a moment, against values computed by hand."""

import torch
from transformers import AutoModelForCausalLM

from spec_cli.bench.harness import Group
from spec_cli.bench.timeline import Timeline
from spec_cli.bench.working_memory import RowShape, largest_shapes, measure_working_bytes
from spec_cli.core.events import RowStep, SpeculationState, StepFinished, StepTimes
from spec_cli.models.base import RowInput
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.live_tensors import LiveTensors
from spec_cli.models.runner import ModelRunner
from tests.folders import text_config

FLOAT = 4


def make(**changes):
    """A runner of a one-layer model in float32."""
    config = text_config(num_hidden_layers=1, hidden_size=16, **changes)
    model = AutoModelForCausalLM.from_config(config).eval()
    return ModelRunner(model, context_length=256, budget=MemoryBudget(10**9))


def test_tensors_count_from_their_making_to_their_end():
    """Not those that were there before, nor views."""
    before = torch.zeros(1000)
    live = LiveTensors()
    with live:
        doubled = before * 2
        view = doubled[:10]
        view += 1.0
        tripled = doubled * 3
        del doubled, view
        assert (live.num_bytes, live.peak_bytes) == (1000 * FLOAT, 2000 * FLOAT)
        before[:10].add_(1.0)
    del tripled
    assert (live.num_bytes, live.peak_bytes) == (0, 2000 * FLOAT)


def test_wide_vocabulary():
    """Two rows of 5 tokens with all their logits: 2 x 5 x 8192 floats, and little else."""
    runner = make(vocab_size=8192)
    logits = 2 * 5 * 8192 * FLOAT

    measured = measure_working_bytes(runner, (RowShape(20, 5, 5), RowShape(9, 5, 5)))

    assert measured is not None
    assert logits <= measured < 1.02 * logits


def test_wide_layer():
    """A prompt of 64 tokens, one logit: gate, up and their product, 64 x 4096 floats each."""
    runner = make(intermediate_size=4096)
    activations = 3 * 64 * 4096 * FLOAT

    measured = measure_working_bytes(runner, (RowShape(0, 64, 1),))

    assert measured is not None
    assert activations <= measured < 1.02 * activations


def test_nothing_is_left_in_the_cache():
    """A prompt of the same tokens is computed, not found."""
    runner = make()
    fresh = make()
    fresh._model.load_state_dict(runner._model.state_dict())
    measure_working_bytes(runner, (RowShape(30, 3, 3),))

    answers = []
    for each in (runner, fresh):
        row = each.acquire([0] * 12, 40, 1)
        assert row is not None
        assert row.token_ids == []
        answers.append(each.forward([RowInput(row, [0] * 12, 1)]))
    assert torch.equal(*answers)


def test_rows_that_memory_does_not_hold():
    """Not measured, and what was claimed is given back."""
    config = text_config(num_hidden_layers=1, hidden_size=16)
    model = AutoModelForCausalLM.from_config(config).eval()
    runner = ModelRunner(model, context_length=256, budget=MemoryBudget(0))
    assert measure_working_bytes(runner, (RowShape(10, 1, 1),)) is None


def step(*rows, num_prefill_tokens=0):
    """A step of rows given as context and drafts."""
    done = tuple(RowStep("r", "ngram", (1,) * k, 0, 1, k, context) for context, k in rows)
    times = StepTimes(0.0, 0.1, 0.0, 0.0)
    return StepFinished(0, 0.0, done, num_prefill_tokens, times, SpeculationState("on"))


def test_largest_steps():
    """The most tokens at the longest context; the longest prompts, shared among the rows."""
    timelines = [Timeline(i, 0.0, 0.0) for i in range(2)]
    first = Group(0, 0, timelines, [step(num_prefill_tokens=25), step((20, 4), (30, 0))])
    second = Group(2, 0, timelines, [step((25, 4), (30, 0)), step((90, 1), (90, 1))])

    assert largest_shapes([first, second]) == [
        (RowShape(24, 5, 5), RowShape(29, 1, 1)),
        (RowShape(0, 13, 1), RowShape(0, 13, 1)),
    ]
    assert largest_shapes([]) == []
