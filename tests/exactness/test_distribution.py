"""The tokens follow the target's distribution, with both ways to verify.

Each chi-square test has a false-alarm rate of 1e-6 and fixed seeds, so it either always passes or
always fails. The negative controls are mistakes made by others; they must fail the very same test,
which shows that it would notice.
"""

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch
from scipy import stats

from spec_cli.core.params import SamplingParams
from spec_cli.core.proposal import Proposal
from spec_cli.sampling.choose import choose, probabilities
from spec_cli.sampling.noise import Purpose
from spec_cli.sampling.processors import Block
from spec_cli.sampling.verify import VerifyMode, verify

FALSE_ALARM = 1e-6
NUM_DRAWS = 2_000
VOCAB = 4
PROMPT = 0
# Row t: what follows token t. The two disagree about the likeliest token here and there.
TARGET = torch.tensor(
    [[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.3, 0.2], [0.7, 0.1, 0.1, 0.1]],
    dtype=torch.float64,
)
DRAFT = torch.tensor(
    [[0.7, 0.1, 0.1, 0.1], [0.2, 0.2, 0.5, 0.1], [0.1, 0.6, 0.1, 0.2], [0.3, 0.3, 0.3, 0.1]],
    dtype=torch.float64,
)
PLAIN = SamplingParams(temperature=1.0)
Drafter = Callable[[list[Block], int], list[Proposal]]


class Shifted(list[int]):
    """The end of a longer text: it has more tokens before those it lists."""

    def __init__(self, tokens: list[int], ahead: int) -> None:
        super().__init__(tokens)
        self.ahead = ahead

    def __len__(self) -> int:
        return super().__len__() + self.ahead


def longer(history: list[int], tokens: list[int]) -> list[int]:
    """A history and what follows it."""
    return Shifted([*history, *tokens], history.ahead if isinstance(history, Shifted) else 0)


def p_value(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Pearson's chi-square; a count where nothing is expected refutes at once."""
    possible = expected > 0
    if int(counts[~possible].sum()):
        return 0.0
    observed, wanted = counts[possible].double(), expected[possible] * counts.sum()
    if len(wanted) == 1:  # nothing else is possible, and nothing else came
        return 1.0
    assert wanted.min() >= 5, "too few draws for the approximation"
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    return float(stats.chi2.sf(statistic, len(wanted) - 1))


def shaped(row: list[float], params: SamplingParams) -> list[float]:
    """The distribution that the parameters ask for, by plain arithmetic."""
    weights = [w ** (1 / params.temperature) for w in row]
    order = sorted(range(len(row)), key=lambda i: (-weights[i], i))
    if params.top_k > 0:
        order = order[: params.top_k]
    total, mass = sum(weights[i] for i in order), 0.0
    kept: list[int] = []
    for i in order:
        if kept and mass >= params.top_p - 1e-12:
            break
        kept.append(i)
        mass += weights[i] / total
    kept = [i for i in kept if weights[i] >= params.min_p * weights[order[0]]]
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(row))]


def joint(params: SamplingParams) -> torch.Tensor:
    """Exact probabilities of the first two tokens after the prompt, `[V, V]`."""
    rows = torch.tensor([shaped(row, params) for row in TARGET.tolist()], dtype=torch.float64)
    return rows[PROMPT][:, None] * rows


def logits_after(table: torch.Tensor, blocks: list[Block]) -> torch.Tensor:
    """Logits of every row of the blocks, `[N, V]`."""
    last = [t for block in blocks for t in (block.history[-1], *block.draft)]
    return table.log().float()[torch.tensor(last)]


def sampled(purpose: Purpose, *, with_probs: bool) -> Drafter:
    """Drafts drawn from the draft table."""

    def draft(blocks: list[Block], k: int) -> list[Proposal]:
        tokens: list[list[int]] = [[] for _ in blocks]
        probs: list[torch.Tensor] = []
        for _ in range(k):
            now = [
                Block(b.params, b.seed, longer(b.history, t), b.num_prompt_tokens)
                for b, t in zip(blocks, tokens, strict=True)
            ]
            logits = logits_after(DRAFT, now)
            probs.append(probabilities(logits, now))
            for i, token in enumerate(choose(logits, now, purpose).tolist()):
                tokens[i].append(token)
        stacked = torch.stack(probs, dim=1)  # [B, k, V]
        return [
            Proposal(tuple(t), "draft", q if with_probs else None)
            for t, q in zip(tokens, stacked, strict=True)
        ]

    return draft


def fixed(blocks: list[Block], k: int) -> list[Proposal]:
    """A guess that depends on nothing but the last token, as lookup's does."""
    return [
        Proposal(tuple((b.history[-1] + 1 + i) % VOCAB for i in range(k)), "ngram") for b in blocks
    ]


def argmax(blocks: list[Block], k: int, *, as_if_sampled: bool = False) -> list[Proposal]:
    """The draft table's likeliest tokens; as if sampled: judged by their softmax probability."""
    proposals = []
    for block in blocks:
        tokens = [block.history[-1]]
        for _ in range(k):
            tokens.append(int(DRAFT[tokens[-1]].argmax()))
        probs = DRAFT[torch.tensor(tokens[:-1])].float() if as_if_sampled else None
        proposals.append(Proposal(tuple(tokens[1:]), "draft", probs))
    return proposals


def ragged(blocks: list[Block], k: int) -> list[Proposal]:
    """Some rows without a draft, some with an unsampled one, beside sampled ones."""
    full = sampled(Purpose.DRAFT, with_probs=True)(blocks, k)
    for i, block in enumerate(blocks):
        if block.seed % 3 == 1:
            full[i] = Proposal((), "draft")
        elif block.seed % 3 == 2:
            full[i] = fixed([block], 1)[0]
    return full


DRAFTERS: dict[str, dict[str, Drafter]] = {
    "coupled": {
        "same noise": sampled(Purpose.TARGET, with_probs=False),
        "own noise": sampled(Purpose.DRAFT, with_probs=False),
        "fixed": fixed,
        "argmax": argmax,
        "ragged": ragged,
    },
    "rejection": {
        "sampled": sampled(Purpose.DRAFT, with_probs=True),
        "fixed": fixed,
        "argmax": argmax,
        "ragged": ragged,
    },
}
CASES = [(mode, name) for mode, drafters in DRAFTERS.items() for name in drafters]


def first_two(
    mode: VerifyMode, drafter: Drafter, k: int, params: SamplingParams, *, one_seed: bool = False
) -> torch.Tensor:
    """Counts `[V, V]` of the first two tokens over many rows.

    Args:
        mode: How to verify.
        drafter: Who guesses.
        k: Draft length; 0 is the target alone.
        params: Of every row.
        one_seed: Rows share a seed and sit at adjacent pairs of positions, else every row has the
            same position and the seeds are 0, 1, 2, ...
    """
    texts = [[PROMPT] for _ in range(NUM_DRAWS)]

    def block(i: int, draft: tuple[int, ...] = ()) -> Block:
        ahead = 2 * i if one_seed else 0
        return Block(params, 11 if one_seed else i, Shifted(texts[i], ahead), 1, draft)

    while waiting := [i for i, text in enumerate(texts) if len(text) < 3]:
        blocks = [block(i) for i in waiting]
        proposals = drafter(blocks, k) if k else [Proposal((), "ngram")] * len(blocks)
        blocks = [block(i, p.token_ids) for i, p in zip(waiting, proposals, strict=True)]
        verified = verify(mode, logits_after(TARGET, blocks), blocks, proposals)
        for i, verification in zip(waiting, verified, strict=True):
            texts[i] += verification.token_ids
    pairs = torch.tensor([text[1] * VOCAB + text[2] for text in texts])
    return torch.bincount(pairs, minlength=VOCAB**2).reshape(VOCAB, VOCAB)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(("mode", "drafter"), CASES)
def test_joint_over_seeds(mode: VerifyMode, drafter: str, k: int) -> None:
    """Over sequential seeds the first two tokens follow the target (false alarm 1e-6)."""
    counts = first_two(mode, DRAFTERS[mode][drafter], k, PLAIN)

    assert p_value(counts, joint(PLAIN)) > FALSE_ALARM


@pytest.mark.parametrize(("mode", "drafter"), CASES)
def test_joint_over_adjacent_positions(mode: VerifyMode, drafter: str) -> None:
    """Along the positions of one seed, pairs of tokens follow the target (false alarm 1e-6)."""
    counts = first_two(mode, DRAFTERS[mode][drafter], 1, PLAIN, one_seed=True)

    assert p_value(counts, joint(PLAIN)) > FALSE_ALARM


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.9),
        SamplingParams(temperature=2.5),
        SamplingParams(temperature=1.0, top_k=2),
        SamplingParams(temperature=1.0, top_p=0.75),
        SamplingParams(temperature=1.0, min_p=0.45),
        SamplingParams(temperature=1.5, top_k=3, top_p=0.9, min_p=0.2),
    ],
    ids=["cold", "hot", "top_k", "top_p", "min_p", "all"],
)
@pytest.mark.parametrize(("mode", "drafter"), [("coupled", "same noise"), ("rejection", "sampled")])
def test_joint_after_processors(mode: VerifyMode, drafter: str, params: SamplingParams) -> None:
    """Temperature and truncation shape target and draft alike, and the joint (false alarm 1e-6)."""
    counts = first_two(mode, DRAFTERS[mode][drafter], 2, params)

    assert p_value(counts, joint(params)) > FALSE_ALARM


def test_target_alone() -> None:
    """Without drafts both ways are plain sampling (false alarm 1e-6), token for token the same."""
    coupled = first_two("coupled", fixed, 0, PLAIN)

    assert p_value(coupled, joint(PLAIN)) > FALSE_ALARM
    assert torch.equal(coupled, first_two("rejection", fixed, 0, PLAIN))


def test_control_argmax_judged_by_softmax() -> None:
    """L-01 control: an argmax draft judged by its softmax probability fails the test."""

    def wrong(blocks: list[Block], k: int) -> list[Proposal]:
        return argmax(blocks, k, as_if_sampled=True)

    assert p_value(first_two("rejection", wrong, 1, PLAIN), joint(PLAIN)) < FALSE_ALARM


def test_control_noise_that_ignores_the_position() -> None:
    """Control: drawing both tokens with the noise of one position fails the test."""
    tokens = [PROMPT] * NUM_DRAWS
    drawn = []
    for _ in range(2):
        blocks = [Block(PLAIN, i, [token], 1) for i, token in enumerate(tokens)]
        tokens = choose(logits_after(TARGET, blocks), blocks, Purpose.TARGET).tolist()
        drawn.append(torch.tensor(tokens))
    counts = torch.bincount(drawn[0] * VOCAB + drawn[1], minlength=VOCAB**2)

    assert p_value(counts.reshape(VOCAB, VOCAB), joint(PLAIN)) < FALSE_ALARM


def test_control_dropping_a_sampled_token() -> None:
    """Control: dropping a sampled draft token for low confidence under rejection fails the test."""
    honest = sampled(Purpose.DRAFT, with_probs=True)

    def wrong(blocks: list[Block], k: int) -> list[Proposal]:
        proposals = []
        for proposal in honest(blocks, k):
            q = cast(torch.Tensor, proposal.draft_probs)
            sure = float(q[0, proposal.token_ids[0]]) >= 0.3
            proposals.append(proposal if sure else Proposal((), "draft"))
        return proposals

    assert p_value(first_two("rejection", wrong, 1, PLAIN), joint(PLAIN)) < FALSE_ALARM


@pytest.mark.parametrize("token", range(VOCAB))
def test_rejection_outcomes_of_one_draft_token(token: int) -> None:
    """A draft token is kept with min(1, p/q), else max(0, p - q) decides (false alarm 1e-6)."""
    p, q = TARGET[PROMPT], DRAFT[PROMPT]
    keep = min(1.0, float(p[token] / q[token]))
    residual = (p - q).clamp(min=0)
    expected = torch.cat([torch.tensor([keep]), (1 - keep) * residual / residual.sum()])
    blocks = [Block(PLAIN, seed, [PROMPT], 1, (token,)) for seed in range(NUM_DRAWS)]
    proposal = Proposal((token,), "draft", q.float()[None])

    counts = torch.zeros(VOCAB + 1, dtype=torch.int64)
    logits = logits_after(TARGET, blocks)
    for verification in verify("rejection", logits, blocks, [proposal] * len(blocks)):
        counts[0 if verification.num_accepted else 1 + verification.token_ids[0]] += 1

    assert p_value(counts, expected) > FALSE_ALARM


def test_coupled_acceptance_of_a_draft_model() -> None:
    """Shared noise agrees with odds sum_i 1 / sum_j max(p_j/p_i, q_j/q_i) (false alarm 1e-6)."""
    p, q = TARGET[PROMPT].tolist(), DRAFT[PROMPT].tolist()
    agree = sum(1 / sum(max(p[j] / p[i], q[j] / q[i]) for j in range(VOCAB)) for i in range(VOCAB))
    blocks = [Block(PLAIN, seed, [PROMPT], 1) for seed in range(NUM_DRAWS)]
    proposals = DRAFTERS["coupled"]["same noise"](blocks, 1)
    blocks = [
        Block(PLAIN, b.seed, b.history, 1, p.token_ids)
        for b, p in zip(blocks, proposals, strict=True)
    ]
    verified = verify("coupled", logits_after(TARGET, blocks), blocks, proposals)
    accepted = sum(v.num_accepted for v in verified)

    counts = torch.tensor([accepted, NUM_DRAWS - accepted])
    assert p_value(counts, torch.tensor([agree, 1 - agree], dtype=torch.float64)) > FALSE_ALARM


def test_coupled_acceptance_of_a_fixed_guess() -> None:
    """A fixed guess is accepted exactly as often as by rejection: p(guess) (false alarm 1e-6)."""
    for mode in ("coupled", "rejection"):
        blocks = [Block(PLAIN, seed, [PROMPT], 1, (1,)) for seed in range(NUM_DRAWS)]
        proposals = [Proposal((1,), "ngram")] * NUM_DRAWS
        verified = verify(mode, logits_after(TARGET, blocks), blocks, proposals)
        accepted = sum(v.num_accepted for v in verified)
        odds = float(TARGET[PROMPT, 1])

        spread = math.sqrt(NUM_DRAWS * odds * (1 - odds))
        assert abs(accepted - NUM_DRAWS * odds) < stats.norm.isf(FALSE_ALARM / 2) * spread
