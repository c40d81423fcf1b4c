"""Did speculation change the text? And where it did, was it a near-tie of the target's own?

Matrix kernels round differently for different shapes, so in 16-bit formats two nearly equal logits
may swap places between a forward of one token and one of k + 1. Whether that is all that happened
is decided by measuring it: both arms' forwards are run again along the tokens they had in common,
and the target's gap between the two tokens is held against how far the shapes differ there.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from spec_cli.bench.harness import Group
from spec_cli.bench.timeline import Timeline
from spec_cli.core.sequence import Request

if TYPE_CHECKING:
    import torch

    from spec_cli.models.base import Row, Runner

Verdict = Literal["near-tie", "mismatch"]
_TIE_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Block:
    """One forward of a row: tokens handed over, and how many of the row's tokens were kept."""

    token_ids: list[int]
    num_kept: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where an arm's tokens are not the target's.

    Attributes:
        prompt_index: Number of the prompt in the workload.
        position: Index among the generated tokens, from 0.
        token_ids: The target's token and the arm's.
        gap: How much the target prefers its own token, in logits (perturbed ones when sampling);
            None without a check.
        shape_difference: Largest difference of any logit there between the two shapes, or None.
        verdict: None without a check.
    """

    prompt_index: int
    position: int
    token_ids: tuple[int, int]
    gap: float | None = None
    shape_difference: float | None = None
    verdict: Verdict | None = None


def first_difference(base: Timeline, other: Timeline) -> Difference | None:
    """Where two answers part, or None: of unequal lengths, at the end of the shorter."""
    for position, pair in enumerate(zip(base.token_ids, other.token_ids, strict=False)):
        if pair[0] != pair[1]:
            return Difference(base.index, position, pair)
    shorter = min(len(base.token_ids), len(other.token_ids))
    if len(base.token_ids) == len(other.token_ids):
        return None
    ends = [t.token_ids[shorter] if len(t.token_ids) > shorter else -1 for t in (base, other)]
    return Difference(base.index, shorter, (ends[0], ends[1]), verdict="mismatch")


def differences(pairs: list[tuple[Group, Group]]) -> list[Difference]:
    """The first difference of every answer that has one; pairs of an arm's group and the base's."""
    found = []
    for group, base in pairs:
        for mine, theirs in zip(group.timelines, base.timelines, strict=True):
            difference = first_difference(theirs, mine)
            if difference is not None:
                found.append(difference)
    return found


@dataclass(frozen=True, slots=True)
class Judge:
    """Says whether a difference is a near-tie.

    Attributes:
        runner: The target.
        make_request: The request of a prompt's number.
        is_exact: Whether the number format promises equal tokens, so that nothing is excused.
        reclaim: Drops cached prefixes, so that every forward is made again.
    """

    runner: "Runner"
    make_request: Callable[[int], Request]
    is_exact: bool
    reclaim: Callable[[], None] = lambda: None

    def judge(self, difference: Difference, group: Group, base: Group) -> Difference:
        """Measure a difference found between an arm's group and that of the target alone."""
        if difference.verdict is not None:
            return difference
        alone = self._look(difference, base)
        drafted = self._look(difference, group)
        gap = alone.scores[0] - alone.scores[1]
        shapes = float((alone.logits - drafted.logits).abs().max())
        is_close = abs(gap) <= _TIE_FACTOR * shapes
        # Top-k, top-p and min-p cut at an edge that rounding can move past a token.
        is_at_edge = alone.can_be_chosen != drafted.can_be_chosen
        is_tie = not self.is_exact and (is_close or is_at_edge)
        return replace(
            difference,
            gap=gap,
            shape_difference=shapes,
            verdict="near-tie" if is_tie else "mismatch",
        )

    def _look(self, difference: Difference, group: Group) -> "_Look":
        """What the target saw at the difference, by the forwards that an arm made."""
        row = [each.index for each in group.timelines].index(difference.prompt_index)
        timeline = group.timelines[row]
        request = self.make_request(difference.prompt_index)
        prompt = list(request.prompt_token_ids)
        tokens = [*prompt, *timeline.token_ids]
        at = len(prompt) + difference.position
        blocks, offset = recorded_blocks(group, timeline.request_id, tokens, at)
        self.reclaim()
        chunks = prompt_chunks(group, prompt)
        logits = replay(self.runner, chunks, blocks, len(group.timelines))[offset]
        return _look_at(logits, request, tokens[:at], difference.token_ids)


def recorded_blocks(
    group: Group, request_id: str, tokens: list[int], at: int
) -> tuple[list[Block], int]:
    """The forwards after the prompt's that led to the token at position `at`.

    Args:
        group: What an arm ran.
        request_id: Whose row.
        tokens: Prompt and answer.
        at: Absolute position of the token.

    Returns:
        The blocks, and which row of the last one's logits chose the token. Without a block the
        prompt's own forward did.
    """
    blocks: list[Block] = []
    for step in group.steps:
        for row in step.rows:
            if row.request_id != request_id:
                continue
            context = row.context_length
            if context > at:
                return blocks, 0
            handed = [tokens[context - 1], *row.draft_token_ids]
            blocks.append(Block(handed, context + row.num_accepted))
            if at < context + row.num_emitted:
                return blocks, at - context
    return blocks, 0


def prompt_chunks(group: Group, prompt: list[int]) -> list[list[int]]:
    """The pieces in which a prompt was processed; whole where rows shared their steps."""
    sizes = [step.num_prefill_tokens for step in group.steps if step.num_prefill_tokens]
    if len(group.timelines) > 1 or sum(sizes) != len(prompt):
        return [prompt]
    ends = list(itertools.accumulate(sizes))
    return [prompt[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def replay(
    runner: "Runner", prompt: list[list[int]], blocks: list[Block], copies: int
) -> "torch.Tensor":
    """Run a row's forwards again, in as many equal rows as the batch had.

    Args:
        runner: The target.
        prompt: In pieces, one forward each.
        blocks: The forwards after it.
        copies: Rows, at least 1.

    Returns:
        float32 `[M, V]`: the logits of the last forward, of one of the rows.
    """
    from spec_cli.models.base import RowInput

    whole = [token for piece in prompt for token in piece]
    forwards = [Block(piece, len(whole)) for piece in prompt] + blocks
    most = len(whole) + sum(len(block.token_ids) for block in blocks) + 1
    length = min(most, runner.context_length)
    rows = _acquire(runner, whole, length, copies)
    wanted = len(blocks[-1].token_ids) if blocks else 1
    try:
        for block in forwards[:-1]:
            runner.forward([RowInput(row, block.token_ids, 0) for row in rows])
            for row in rows:
                if len(row.token_ids) > block.num_kept:
                    runner.truncate(row, block.num_kept)
        last = forwards[-1].token_ids
        return runner.forward([RowInput(row, last, wanted) for row in rows])[:wanted]
    finally:
        for row in rows:
            runner.release(row)


def _acquire(runner: "Runner", prompt: list[int], length: int, copies: int) -> "list[Row]":
    """Empty rows, as many as memory holds; at least one, for the engine had as many."""
    rows: list[Row] = []
    for _ in range(copies):
        row = runner.acquire(prompt, length, copies)
        if row is None:
            break
        runner.truncate(row, 0)
        rows.append(row)
    return rows


@dataclass(frozen=True, slots=True)
class _Look:
    """The choice between two tokens as a forward saw it.

    Attributes:
        logits: `[V]`, penalised and divided by the temperature.
        scores: Those of the two tokens, noise included.
        can_be_chosen: Which of the two top-k, top-p and min-p leave.
    """

    logits: "torch.Tensor"
    scores: list[float]
    can_be_chosen: list[bool]


def _look_at(
    logits: "torch.Tensor", request: Request, history: list[int], token_ids: tuple[int, int]
) -> _Look:
    import torch

    from spec_cli.sampling.noise import Purpose, gumbel, stream_key
    from spec_cli.sampling.processors import Block as Rows
    from spec_cli.sampling.processors import distribution, penalize

    params = request.params
    rows = Rows(params, request.seed, history, len(request.prompt_token_ids))
    penalized = penalize(logits[None], [rows])  # [1, V]
    if params.is_greedy:
        scores = [float(penalized[0, token_id]) for token_id in token_ids]
        return _Look(penalized[0], scores, [True, True])
    scaled = penalized[0] / params.temperature
    key = torch.tensor([stream_key(request.seed, len(history), Purpose.TARGET)])
    noise = gumbel(key, torch.tensor(token_ids))[0].tolist()
    scores = [
        float(scaled[token_id]) + extra for token_id, extra in zip(token_ids, noise, strict=True)
    ]
    probs = distribution(penalized, params).probs(len(scaled))[0]
    return _Look(scaled, scores, [bool(probs[token_id] > 0.0) for token_id in token_ids])


def verdict_of(found: list[Difference]) -> str:
    """One word for a table: `yes`, or the worst difference."""
    if not found:
        return "yes"
    worst = next((each for each in found if each.verdict == "mismatch"), found[0])
    word = {"mismatch": "MISMATCH", "near-tie": "near-tie", None: "differs"}[worst.verdict]
    return f"{word} @{worst.position}"


def difference_record(difference: Difference) -> dict[str, Any]:
    """A difference in JSON."""
    return {
        "identical": False,
        "prompt_index": difference.prompt_index,
        "position": difference.position,
        "token_id_target": difference.token_ids[0],
        "token_id_arm": difference.token_ids[1],
        "gap": difference.gap,
        "shape_difference": difference.shape_difference,
        "verdict": difference.verdict,
    }
