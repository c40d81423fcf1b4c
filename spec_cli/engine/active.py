"""A request that holds a row."""

from dataclasses import dataclass

from spec_cli.core.events import EmittedToken, RowStep
from spec_cli.core.proposal import Proposal, Verification
from spec_cli.core.sequence import FinishReason, Sequence, StopChecker
from spec_cli.core.stats import RequestStats, StatsRecorder
from spec_cli.models.base import Row
from spec_cli.policy.base import RowOutlook
from spec_cli.proposers.base import Outlook
from spec_cli.sampling.processors import Block


@dataclass(slots=True)
class ActiveRow:
    """A sequence, its row in the target's cache, and its counts.

    Attributes:
        arrived_s: When the request came, on the engine's clock.
        admitted_s: When it got its row.
        first_token_s: When its first token was committed, or None before.
        last_token_s: When its latest token was.
    """

    sequence: Sequence
    row: Row
    recorder: StatsRecorder
    arrived_s: float
    admitted_s: float
    first_token_s: float | None = None
    last_token_s: float = 0.0

    @property
    def is_decoding(self) -> bool:
        """Whether its prompt is processed, so that each pass brings tokens."""
        return self.sequence.num_output_tokens > 0

    @property
    def lacking(self) -> list[int]:
        """The committed tokens that the row does not hold yet: one while decoding."""
        return self.sequence.token_ids[len(self.row.token_ids) :]

    def block(self, proposal: Proposal) -> Block:
        """What the target's logits for this row are conditioned on."""
        sequence = self.sequence
        request = sequence.request
        return Block(
            request.params,
            request.seed,
            sequence.token_ids,
            sequence.num_prompt_tokens,
            proposal.token_ids,
        )

    def stats(self) -> RequestStats:
        """Its figures so far."""
        first = self.first_token_s
        return self.recorder.snapshot(
            queue_s=self.admitted_s - self.arrived_s,
            prefill_s=(first if first is not None else self.admitted_s) - self.admitted_s,
            decode_s=self.last_token_s - first if first is not None else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one row keeps of a step.

    Attributes:
        tokens: The tokens to commit.
        num_accepted: Draft tokens among them.
        num_judged: Draft tokens whose fate was decided.
        finish_reason: Why the sequence ends with them, or None.
    """

    tokens: tuple[EmittedToken, ...]
    num_accepted: int
    num_judged: int
    finish_reason: FinishReason | None


def settle(
    sequence: Sequence, proposal: Proposal, verification: Verification, stop: StopChecker
) -> Outcome:
    """Cut verified tokens at whatever ends the sequence first, token by token.

    An end token is kept, a stop string keeps the token that completes it, and where several ends
    fall on one token, `stop` wins over `length`.
    """
    token_ids = verification.token_ids[: sequence.num_remaining]
    ends = sequence.request.end_token_ids
    at_end = next((i for i, token_id in enumerate(token_ids) if token_id in ends), None)
    if at_end is not None:
        token_ids = token_ids[: at_end + 1]
    num_kept, completes_stop = stop.keep(sequence.request_id, token_ids)
    reason: FinishReason | None = None
    if completes_stop or (at_end is not None and num_kept == len(token_ids)):
        reason = "stop"
    elif num_kept == sequence.num_remaining:
        reason = "length"
    num_accepted = min(verification.num_accepted, num_kept)
    is_cut = num_kept < len(verification.token_ids)
    num_draft = len(proposal.token_ids)
    return Outcome(
        tokens=tuple(
            EmittedToken(token_id, proposal.source, i)
            if i < num_accepted
            else EmittedToken(token_id, "target", None)
            for i, token_id in enumerate(token_ids[:num_kept])
        ),
        num_accepted=num_accepted,
        num_judged=min(num_draft, num_kept) if is_cut else num_draft,
        finish_reason=reason,
    )


def row_outlook(active: ActiveRow, outlook: Outlook) -> RowOutlook:
    """What the policy is told of a row."""
    # One token always comes from the target itself, so a draft may fill all but one.
    limit = min(outlook.max_draft_tokens, active.sequence.num_remaining - 1)
    return RowOutlook(
        request_id=active.sequence.request_id,
        source=outlook.source,
        max_draft_tokens=max(0, limit),
        context_length=len(active.sequence),
        match_length=outlook.match_length,
        num_lag_tokens=outlook.num_lag_tokens,
        num_remaining_tokens=active.sequence.num_remaining,
    )


def row_step(sequence: Sequence, proposal: Proposal, outcome: Outcome) -> RowStep:
    """What the events say of a row's step, before its tokens are committed."""
    return RowStep(
        request_id=sequence.request_id,
        source=proposal.source,
        draft_token_ids=proposal.token_ids,
        num_accepted=outcome.num_accepted,
        num_emitted=len(outcome.tokens),
        num_judged=outcome.num_judged,
        context_length=len(sequence),
    )
