"""What the target's forward holds for a moment, beyond weights and caches."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec_cli.bench.harness import Group

if TYPE_CHECKING:
    from spec_cli.models.base import Runner


@dataclass(frozen=True, slots=True)
class RowShape:
    """What a forward is asked for one row.

    Attributes:
        num_cached: Tokens that it holds already.
        num_tokens: To process.
        num_logits: Wanted, of the last of them.
    """

    num_cached: int
    num_tokens: int
    num_logits: int


StepShape = tuple[RowShape, ...]


def largest_shapes(groups: list[Group]) -> list[StepShape]:
    """The widest decoding step and the longest prompt step of some groups.

    Either may need more: a decoding step wants many logits, a prompt step processes many tokens.
    Prompts that are processed together are taken to be of equal length.
    """
    shapes = []
    decoding = [
        tuple(
            RowShape(
                max(0, row.context_length - 1),  # the last token committed is not cached yet
                len(row.draft_token_ids) + 1,
                len(row.draft_token_ids) + 1,
            )
            for row in step.rows
        )
        for group in groups
        for step in group.decode_steps
    ]
    if decoding:
        shapes.append(max(decoding, key=_size))
    num_tokens, num_rows = max(
        ((step.num_prefill_tokens, len(g.timelines)) for g in groups for step in g.steps),
        default=(0, 0),
    )
    if num_tokens:
        shapes.append((RowShape(0, -(-num_tokens // num_rows), 1),) * num_rows)
    return shapes


def _size(shape: StepShape) -> tuple[int, int]:
    return sum(row.num_tokens for row in shape), sum(row.num_cached for row in shape)


def measure_working_bytes(runner: "Runner", shape: StepShape) -> int | None:
    """Bytes of tensors that live at once in a forward of a shape: activations, masks and logits.

    The rows' caches are claimed, not computed: what is in them does not change the amount.

    Args:
        runner: The target.
        shape: What to ask for.

    Returns:
        None where the cache cannot be rolled back, or memory does not hold the rows.
    """
    from spec_cli.models.base import RowInput
    from spec_cli.models.live_tensors import LiveTensors

    if not runner.can_roll_back:
        return None
    rows = []
    for number, each in enumerate(shape):
        length = each.num_cached + each.num_tokens
        row = runner.acquire([0], length, len(shape) - number)
        if row is not None:
            rows.append(row)
    try:
        if len(rows) < len(shape):
            return None
        inputs = []
        for row, each in zip(rows, shape, strict=True):
            row.token_ids[:] = [0] * each.num_cached
            inputs.append(RowInput(row, [0] * each.num_tokens, each.num_logits))
        live = LiveTensors()
        with live:
            runner.forward(inputs)
        return live.peak_bytes
    finally:
        for row in rows:
            # No later prompt may find this as its prefix.
            runner.truncate(row, 0)
            runner.release(row)
