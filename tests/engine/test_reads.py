"""On an accelerator a step waits for the device twice: for the draft, and for what came of it."""

from typing import Any

import pytest
import torch

from spec_cli.models.budget import MemoryBudget
from spec_cli.models.runner import ModelRunner
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.sampling.verify import VerifyMode
from tests import tiny
from tests.accelerator import Accelerator
from tests.driving import PLENTY, Driver, drive, request

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {"temperature": 1.0},
    "top_p": {"temperature": 1.0, "top_p": 0.9},
}


def make(verify: VerifyMode, k: int, accelerator: Accelerator | None = None) -> Driver:
    """A target and a draft that agrees with it now and then."""

    def runner(kind: str) -> ModelRunner:
        model = tiny.slotted("llama", kind)
        return ModelRunner(
            accelerator.put(model) if accelerator else model,
            context_length=tiny.CONTEXT,
            budget=MemoryBudget(PLENTY),
        )

    target, draft = runner("target"), runner("noisy")
    proposer = DraftModelProposer(draft, verify=verify, num_token_ids=tiny.VOCAB)
    return drive(target, proposer, k, verify_mode=verify)


def answers(driver: Driver, num_rows: int, params: dict[str, Any]) -> list[list[int]]:
    for i in range(num_rows):
        driver.add(request(str(i), tiny.prompt(i), 10 + i, seed=i, **params))
    return [answer.token_ids for answer in driver.run().values()]


@pytest.mark.parametrize("verify", ["coupled", "rejection"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("num_rows", "k"), [(1, 4), (3, 4), (3, 0)])
def test_reads_of_a_step(verify: VerifyMode, num_rows: int, setting: str, k: int) -> None:
    """A step with drafts reads twice, one without once, and the texts are those of the host."""
    params = SETTINGS[setting]
    accelerator = Accelerator()
    reads = []
    with torch.inference_mode(), accelerator:
        driver = make(verify, k, accelerator)
        for i in range(num_rows):
            driver.add(request(str(i), tiny.prompt(i), 10 + i, seed=i, **params))
        while driver.engine.has_work:
            accelerator.reads.clear()
            driver.step()
            drafted = any(row.draft_token_ids for row in driver.steps[-1].rows)
            reads.append((drafted, len(accelerator.reads)))

    assert set(reads) <= {(False, 1), (True, 2)}
    assert any(drafted for drafted, _ in reads) == (k > 0)
    got = [answer.token_ids for answer in driver.answers.values()]
    assert got == answers(make(verify, k), num_rows, params)


@pytest.mark.parametrize("verify", ["coupled", "rejection"])
def test_penalties_read_every_draft_token(verify: VerifyMode) -> None:
    """Negative control: with penalties each draft token is a read, and each is counted."""
    accelerator = Accelerator()
    counts = set()
    with torch.inference_mode(), accelerator:
        driver = make(verify, 4, accelerator)
        driver.add(request("0", tiny.prompt(1), 12, temperature=1.0, presence_penalty=0.5))
        while driver.engine.has_work:
            accelerator.reads.clear()
            driver.step()
            (row,) = driver.steps[-1].rows or (None,)
            counts.add((len(row.draft_token_ids) if row else 0, len(accelerator.reads)))

    assert (4, 5) in counts
    assert all(num_reads == num_draft_tokens + 1 for num_draft_tokens, num_reads in counts)
