"""The accelerator of the tests sees every way in which the host waits for a device."""

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.accelerator import DEVICE, Accelerator

READS: dict[str, Callable[[torch.Tensor], object]] = {
    "tolist": lambda x: x.argmax(dim=-1).tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "item": lambda x: x.sum().item(),
    "int": lambda x: int(x[0, 0]),
    "bool": lambda x: bool((x > 3).any()),
    "equal": lambda x: torch.equal(x, x),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "masked_select": lambda x: x.masked_select(x > 3),
    "boolean index": lambda x: x[x > 3],
    "assignment by boolean index": lambda x: x.__setitem__(x > 3, 0.0),
    "index of no dimension": lambda x: x[x.argmin()],
}
WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "index that is a list": lambda x: x[[1, 0]],
    "assignment by a list": lambda x: x.__setitem__((slice(None), [1]), 0.0),
    "tensor from a list": lambda x: torch.tensor([1, 2], device=DEVICE) + 1,
    "blocking copy": lambda x: torch.tensor([1.0, 2.0]).to(DEVICE),
    "host tensor among others": lambda x: x + torch.zeros(2, 3),
}
FREE: dict[str, Callable[[torch.Tensor], object]] = {
    "arithmetic": lambda x: (x * 2 + 1).softmax(dim=-1),
    "made on the device": lambda x: x + torch.arange(3, device=DEVICE),
    "copy that does not wait": lambda x: torch.tensor([1.0, 2.0]).to(DEVICE, non_blocking=True),
    "index on the device": lambda x: x[x.argmin(dim=-1)],
    "host alone": lambda x: torch.ones(3).tolist(),
}


@pytest.fixture(params=[True, False], ids=["inference", "plain"])
def accelerator(request: pytest.FixtureRequest) -> Iterator[Accelerator]:
    with torch.inference_mode(request.param), Accelerator() as accelerator:
        yield accelerator


@pytest.fixture
def numbers(accelerator: Accelerator) -> torch.Tensor:
    return torch.tensor([[1.0, 2, 3], [4, 5, 6]]).to(DEVICE, non_blocking=True)


@pytest.mark.parametrize("name", READS)
def test_reads_are_counted(accelerator: Accelerator, numbers: torch.Tensor, name: str) -> None:
    """Each way of getting a value, or a shape that depends on one, is one read."""
    READS[name](numbers)

    assert len(accelerator.reads) == 1


@pytest.mark.parametrize("name", WAITS)
def test_copies_that_wait_are_errors(numbers: torch.Tensor, name: str) -> None:
    """Numbers must not go to the device in a way that waits for it."""
    with pytest.raises(AssertionError, match=r"from a list|a copy that waits"):
        WAITS[name](numbers)


@pytest.mark.parametrize("name", FREE)
def test_work_is_free(accelerator: Accelerator, numbers: torch.Tensor, name: str) -> None:
    """What stays on the device, or does not concern it, waits for nothing."""
    FREE[name](numbers)

    assert accelerator.reads == []


def test_values_are_those_of_the_host(numbers: torch.Tensor) -> None:
    """It computes, and what is changed in place stays the object it was."""
    same = numbers.add_(1)
    numbers[0, :2] = 0.0

    assert same is numbers
    assert numbers.tolist() == [[0.0, 0.0, 4.0], [5.0, 6.0, 7.0]]
