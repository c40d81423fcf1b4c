"""A smaller model guesses: it runs ahead of the target in its own cache."""

from dataclasses import dataclass, field
from itertools import islice

import torch

from spec_cli.core.config import MAX_DRAFT_TOKENS
from spec_cli.core.params import SamplingParams
from spec_cli.core.proposal import Proposal
from spec_cli.core.sequence import Sequence
from spec_cli.models.base import UNREAD, Row, RowInput, Runner
from spec_cli.proposers.base import DraftRequest, Outlook
from spec_cli.sampling.choose import choose, probabilities
from spec_cli.sampling.device import upload
from spec_cli.sampling.noise import Purpose
from spec_cli.sampling.processors import Block
from spec_cli.sampling.verify import VerifyMode

MAX_HINDSIGHT = 24
"""Most missed tokens of all rows judged in one pass: each takes logits, and noise to choose by."""


@dataclass(slots=True)
class _Run:
    """The draft of one row while it grows.

    Attributes:
        drawn: Its tokens, each int64 `[1]` on the device.
        token_ids: As many of them as the host has read.
        probs: What each was sampled from, float32 `[V]`; empty where nobody asks.
        num_missed: How many of the last committed tokens the coming pass chooses anew, to tell
            what would have become of drafts there.
        missed: Its choices for them, int64 `[num_missed]` on the device; None before and when read.
        missed_ids: The same, read.
        missed_doubtful: Where it would rather have ended a draft.
    """

    request: DraftRequest
    row: Row
    drawn: list[torch.Tensor] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    probs: list[torch.Tensor] = field(default_factory=list)
    num_missed: int = 0
    missed: torch.Tensor | None = None
    missed_ids: list[int] = field(default_factory=list)
    missed_doubtful: list[bool] = field(default_factory=list)
    is_done: bool = False

    @property
    def params(self) -> SamplingParams:
        """Of its request."""
        return self.request.sequence.request.params

    @property
    def num_unread(self) -> int:
        """How many of its tokens only the device knows."""
        return len(self.drawn) - len(self.token_ids)

    def hindsight(self) -> tuple[bool | None, ...]:
        """Whether it would have drafted the tokens it missed."""
        if not self.missed_ids:
            return ()
        came = self.request.sequence.token_ids[-len(self.missed_ids) :]
        return tuple(
            None if is_doubtful else chosen == token_id
            for chosen, token_id, is_doubtful in zip(
                self.missed_ids, came, self.missed_doubtful, strict=True
            )
        )

    def block(self) -> Block:
        """What its next token is chosen from, and before it those it missed."""
        sequence = self.request.sequence
        draft = self.token_ids + [UNREAD] * self.num_unread
        history = sequence.token_ids + draft
        start = len(history) - self.num_missed
        return Block(
            self.params,
            sequence.request.seed,
            history[:start],
            sequence.num_prompt_tokens,
            tuple(history[start:]),
        )


class DraftModelProposer:
    """Drafts with a model that shares the target's tokenizer.

    With coupled verification its tokens are chosen by the target's own noise, so that the two
    agree as often as their distributions do; with rejection they are sampled from its distribution,
    which is handed on. What the cache lacks, whatever the reason, is caught up when it is asked.

    Tokens stay on the device from pass to pass, and the host reads a whole draft once, at its end:
    the noise goes by seed and position, which it knows. Two things take a look at every pass:
    `p_min`, which ends a draft by what the model says, and penalties, which count the draft's own
    tokens.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        verify: VerifyMode,
        num_token_ids: int,
        never_propose: tuple[int, ...] = (),
        p_min: float = 0.0,
        max_draft_tokens: int = MAX_DRAFT_TOKENS,
        max_catch_up: int = 512,
    ) -> None:
        """Wrap a runner whose `vocab_size` is the target's.

        Args:
            runner: The draft model.
            verify: Which verification its drafts will meet.
            num_token_ids: Rows that both vocabularies have; ids past them are neither read nor
                proposed.
            never_propose: Ids below that which do not mean a token of both, such as padding.
            p_min: Stop at a token that the draft itself gives a lower probability, in [0, 1].
            max_draft_tokens: Longest draft to offer.
            max_catch_up: Most tokens to catch up on in one step; a longer lag takes several.
        """
        self._runner = runner
        self._verify = verify
        self._num_token_ids = num_token_ids
        self._unknown = frozenset(never_propose)
        self._never_propose = sorted(i for i in never_propose if i < num_token_ids)
        self._p_min = p_min
        self._max_draft_tokens = max_draft_tokens
        self._max_catch_up = max_catch_up
        self._rows: dict[str, Row] = {}
        self._agreed: dict[str, int] = {}  # how far row and sequence are known to agree

    def bytes_for(self, max_length: int) -> int:
        """See `Proposer.bytes_for`."""
        return self._runner.bytes_for(min(max_length, self._runner.context_length))

    def admit(self, sequence: Sequence, num_rows: int) -> bool:
        """See `Proposer.admit`."""
        max_length = min(sequence.max_length, self._runner.context_length)
        row = self._runner.acquire(sequence.token_ids[:max_length], max_length, num_rows)
        if row is None:
            return False
        self._rows[sequence.request_id] = row
        self._agreed[sequence.request_id] = len(row.token_ids)
        return True

    def outlook(self, sequence: Sequence) -> Outlook:
        """See `Proposer.outlook`."""
        limit = self._runner.context_length
        room = limit - len(sequence) + 1  # the last draft token is never fed back
        if room < 1:
            ended = f"the draft model's context of {limit:,} tokens is full"
            return Outlook("draft", 0, ended=ended)
        lack = self._catch_up(sequence)
        foreign = next((i for i in lack if i >= self._num_token_ids or i in self._unknown), None)
        if foreign is not None:
            return Outlook("draft", 0, ended=f"the draft model has no token {foreign}")
        return Outlook("draft", min(room, self._max_draft_tokens), num_lag_tokens=len(lack))

    @torch.inference_mode()
    def propose(self, requests: list[DraftRequest]) -> list[Proposal]:
        """See `Proposer.propose`."""
        runs = [_Run(request, self._rows[request.sequence.request_id]) for request in requests]
        self._start(runs)
        while active := [run for run in runs if not run.is_done]:
            inputs = [RowInput(run.row, [UNREAD], 1, run.drawn[-1]) for run in active]
            self._extend(active, self._runner.forward(inputs))
        _read(runs)
        return [
            Proposal(
                tuple(run.token_ids),
                "draft",
                torch.stack(run.probs) if run.probs else None,
                run.hindsight(),
            )
            for run in runs
        ]

    def release(self, sequence: Sequence) -> None:
        """See `Proposer.release`."""
        row = self._rows.pop(sequence.request_id, None)
        self._agreed.pop(sequence.request_id, None)
        if row is not None:
            self._runner.release(row)

    def _start(self, runs: list[_Run]) -> None:
        """Process what each row lacks, and draw the first tokens.

        A lag longer than the step's budget is worked off over several steps, without drafts.
        """
        lacks = [self._catch_up(run.request.sequence) for run in runs]
        inputs, ready = [], []
        budget, hindsight = self._max_catch_up, MAX_HINDSIGHT
        # Short lags first: a row that has a long prompt to read must not stop the others.
        for run, lack in sorted(zip(runs, lacks, strict=True), key=lambda pair: len(pair[1])):
            part = lack[: max(1, budget)]
            budget -= len(part)
            run.is_done = len(part) < len(lack)
            if not run.is_done:
                run.num_missed = min(self._num_judgeable(run, len(part)), hindsight)
                hindsight -= run.num_missed
                ready.append(run)
            inputs.append(RowInput(run.row, part, 0 if run.is_done else 1 + run.num_missed))
        logits = self._runner.forward(inputs)
        for run in runs:
            self._agreed[run.request.sequence.request_id] = len(run.row.token_ids)
        if ready:
            self._extend(ready, logits)

    def _num_judgeable(self, run: _Run, num_lacking: int) -> int:
        """How many missed tokens it can say of whether it would have drafted them.

        Not those of the prompt. Nor after a draft that was accepted to its end, where two are
        lacking: what follows such a draft is likelier to go well than a draft is.
        """
        is_sampled = self._verify == "rejection" and not run.params.is_greedy
        if num_lacking <= 2 or is_sampled:
            return 0
        return min(num_lacking - 1, run.request.sequence.num_output_tokens)

    def _extend(self, runs: list[_Run], logits: torch.Tensor) -> None:
        """Append one token to each draft; end those that are long or doubtful enough."""
        if self._num_token_ids < logits.shape[-1]:
            logits[:, self._num_token_ids :] = float("-inf")
        if self._never_propose:
            logits.index_fill_(1, upload(self._never_propose, logits.device), float("-inf"))
        if any(run.params.has_penalties for run in runs):
            _read(runs)
        blocks = [run.block() for run in runs]
        sampled = self._verify == "rejection"
        chosen = choose(logits, blocks, Purpose.DRAFT if sampled else Purpose.TARGET)
        probs = probabilities(logits, blocks) if sampled else None
        doubtful = self._is_doubtful(logits, chosen)
        i = -1  # of the last row of logits of the run before
        for run in runs:
            first, i = i + 1, i + 1 + run.num_missed
            if run.num_missed:
                run.missed, run.missed_doubtful = chosen[first:i], doubtful[first:i]
                run.num_missed = 0
            has_probs = probs is not None and not run.params.is_greedy
            # Dropping a sampled token for what it is would bias the rest (algorithms.md, 2.3):
            # under rejection it is kept, and drafting stops behind it.
            if doubtful[i] and not has_probs:
                run.is_done = True
                continue
            run.drawn.append(chosen[i : i + 1])
            if has_probs and probs is not None:
                run.probs.append(probs[i])
            run.is_done = doubtful[i] or len(run.drawn) >= run.request.num_draft_tokens

    def _is_doubtful(self, logits: torch.Tensor, chosen: torch.Tensor) -> list[bool]:
        if self._p_min <= 0.0:
            return [False] * len(chosen)
        confidence = logits.softmax(dim=-1).gather(1, chosen[:, None]).squeeze(1)
        return (confidence < self._p_min).tolist()

    def _catch_up(self, sequence: Sequence) -> list[int]:
        """Forget rejected drafts and return the committed tokens that the cache lacks."""
        row = self._rows[sequence.request_id]
        held, committed = row.token_ids, sequence.token_ids
        # The last token's logits are wanted, so it is processed again where nothing came since.
        agreed = min(self._agreed[sequence.request_id], len(committed) - 1)
        while agreed < min(len(held), len(committed) - 1) and held[agreed] == committed[agreed]:
            agreed += 1
        if agreed < len(held):
            self._runner.truncate(row, agreed)
        self._agreed[sequence.request_id] = agreed
        return committed[agreed:]


def _read(runs: list[_Run]) -> None:
    """Bring to the host, all at once, the tokens it has not read, and tell the rows."""
    missed = [run.missed for run in runs if run.missed is not None]
    unread = [token for run in runs for token in run.drawn[len(run.token_ids) :]]
    if not missed and not unread:
        return
    token_ids = iter(torch.cat(missed + unread).tolist())
    for run in runs:
        if run.missed is not None:
            run.missed_ids = list(islice(token_ids, len(run.missed)))
            run.missed = None
    for run in runs:
        run.token_ids += islice(token_ids, run.num_unread)
        # The row holds the committed tokens, then the draft's, save those not yet processed.
        held, start = run.row.token_ids, len(run.request.sequence)
        held[start:] = run.token_ids[: len(held) - start]
