"""Lookup where it promises more than the draft model, the draft model elsewhere.

SuffixDecoding's hybrid (Oliaro et al. 2024, arXiv 2411.04975, section 4.3) takes the lookup's draft
when its score is above a threshold. Here both sides are expected tokens per unit of time, as in
SmartSpec's goodput (Liu et al. 2024, arXiv 2406.14066, section 4): a looked-up token costs its
verification alone, a drafted one a pass of the draft model as well.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from spec_cli.core.proposal import DraftSource, Proposal
from spec_cli.core.sequence import Sequence
from spec_cli.policy.acceptance import AcceptanceModel
from spec_cli.policy.hindsight import verdicts
from spec_cli.proposers.base import DraftRequest, Outlook, Proposer
from spec_cli.proposers.suffix import SuffixProposer


@dataclass(frozen=True, slots=True)
class Prices:
    """What a draft token costs, in steps of the target.

    Attributes:
        draft_pass: A pass of the draft model.
        verified_token: One more token in the target's step.
    """

    draft_pass: float
    verified_token: float


def best_goodput(survival: Iterable[float], price: float) -> float:
    """Most expected tokens per step's time that a prefix of a draft brings; 1 without a draft.

    Args:
        survival: S(1), S(2), ... of the draft's tokens.
        price: Of each of them, in steps.
    """
    best = tokens = time = 1.0
    for survived in survival:
        tokens += survived
        time += price
        best = max(best, tokens / time)
    return best


@dataclass(slots=True)
class _Row:
    """Who guesses for a row, and what the draft model last guessed.

    Attributes:
        acceptance: What its drafts taught.
        decided_at: Length of the sequence that `outlook` is for.
        draft_start: Length of the sequence before `draft`.
        draft: The draft model's tokens whose fate is open.
        turns: Whose turn it was to guess, and from which length on, since the draft model was last
            asked.
    """

    acceptance: AcceptanceModel
    decided_at: int = -1
    outlook: Outlook = field(default_factory=lambda: Outlook("suffix", 0))
    draft_start: int = 0
    draft: tuple[int, ...] = ()
    turns: list[tuple[int, DraftSource]] = field(default_factory=list)

    def decide(self, length: int, outlook: Outlook) -> None:
        """Note who guesses after so many tokens.

        It is kept until the row grows: what other rows teach meanwhile must not part the outlook
        that the policy saw from the guess.
        """
        self.outlook, self.decided_at = outlook, length
        if not self.turns or self.turns[-1][1] != outlook.source:
            self.turns.append((length, outlook.source))

    def take(self, length: int, proposal: Proposal) -> Proposal:
        """Keep what the draft model guessed after `length` tokens, and learn from its hindsight.

        Tokens that came while lookup promised more say nothing of those it is asked for.
        """
        self.draft_start, self.draft = length, proposal.token_ids
        start = length - len(proposal.hindsight)
        hindsight = tuple(
            is_right if self._was_asked(start + i) else None
            for i, is_right in enumerate(proposal.hindsight)
        )
        self.turns = self.turns[-1:]
        return replace(proposal, hindsight=hindsight)

    def _was_asked(self, position: int) -> bool:
        turn = next((source for start, source in reversed(self.turns) if start <= position), None)
        return turn == "draft"

    def settle(self, sequence: Sequence) -> None:
        """Compare the last draft with the tokens that came instead."""
        came = sequence.token_ids[self.draft_start : self.draft_start + len(self.draft)]
        if not self.draft or not came:
            return
        pairs = zip(self.draft, came, strict=False)
        num_right = next((i for i, (a, b) in enumerate(pairs) if a != b), len(came))
        num_judged = min(num_right + 1, len(came))
        self.acceptance.observe("draft", sequence.request_id, 0, num_judged, num_right)
        self.draft = ()


class HybridProposer:
    """Asks lookup for some rows and the draft model for others, in one call.

    The draft model catches up on what was looked up meanwhile when it is asked again.
    """

    def __init__(
        self,
        lookup: SuffixProposer,
        draft: Proposer,
        prices: Callable[[int], Prices],
        *,
        max_draft_tokens: int = 8,
        is_isolated: bool = False,
    ) -> None:
        """Join two proposers.

        Args:
            lookup: Followed for every row.
            draft: The draft model's proposer, likewise.
            prices: By number of rows. Under rejection verification it must not depend on time.
            max_draft_tokens: Longest draft that the policy will ask for.
            is_isolated: Let no row learn from another (see `SuffixProposer`).
        """
        self._lookup = lookup
        self._draft = draft
        self._prices = prices
        self._max_draft_tokens = max_draft_tokens
        self._is_isolated = is_isolated
        self._acceptance = AcceptanceModel(max_draft_tokens)
        self._rows: dict[str, _Row] = {}

    def forget_answers(self) -> None:
        """See `SuffixProposer.forget_answers`."""
        self._lookup.forget_answers()

    def bytes_for(self, max_length: int) -> int:
        """See `Proposer.bytes_for`."""
        return self._draft.bytes_for(max_length)

    def admit(self, sequence: Sequence, num_rows: int) -> bool:
        """See `Proposer.admit`."""
        if not self._draft.admit(sequence, num_rows):
            return False
        self._lookup.admit(sequence, num_rows)
        own = AcceptanceModel(self._max_draft_tokens) if self._is_isolated else self._acceptance
        self._rows[sequence.request_id] = _Row(own)
        return True

    def outlook(self, sequence: Sequence) -> Outlook:
        """See `Proposer.outlook`; that of whoever would guess."""
        row = self._rows[sequence.request_id]
        if row.decided_at != len(sequence):
            row.settle(sequence)
            row.decide(len(sequence), self._decide(sequence, row))
        return row.outlook

    def propose(self, requests: list[DraftRequest]) -> list[Proposal]:
        """See `Proposer.propose`."""
        sources: list[DraftSource] = [self.outlook(r.sequence).source for r in requests]
        split = {
            source: [r for r, own in zip(requests, sources, strict=True) if own == source]
            for source in ("suffix", "draft")
        }
        proposals = {
            "suffix": iter(self._lookup.propose(split["suffix"])),
            "draft": iter(self._draft.propose(split["draft"]) if split["draft"] else []),
        }
        result = []
        for request, source in zip(requests, sources, strict=True):
            proposal = next(proposals[source])
            if source == "draft":
                proposal = self._take(request.sequence, proposal)
            result.append(proposal)
        return result

    def release(self, sequence: Sequence) -> None:
        """See `Proposer.release`."""
        self._rows.pop(sequence.request_id, None)
        self._acceptance.forget(sequence.request_id)
        self._lookup.release(sequence)
        self._draft.release(sequence)

    def _take(self, sequence: Sequence, proposal: Proposal) -> Proposal:
        row = self._rows[sequence.request_id]
        proposal = row.take(len(sequence), proposal)
        for verdict in verdicts(proposal.hindsight, self._max_draft_tokens):
            row.acceptance.observe("draft", sequence.request_id, 0, *verdict)
        return proposal

    def _decide(self, sequence: Sequence, row: _Row) -> Outlook:
        """The outlook of the side whose best draft brings most per unit of time."""
        looked_up, drafted = self._lookup.outlook(sequence), self._draft.outlook(sequence)
        if not looked_up.max_draft_tokens:
            return drafted
        looked_up = replace(looked_up, ended=drafted.ended)
        count = min(drafted.max_draft_tokens, self._max_draft_tokens)
        survival = row.acceptance.survival("draft", sequence.request_id, 0, count)
        # An isolated row must not feel how many others there are.
        prices = self._prices(1 if self._is_isolated else len(self._rows))
        by_draft = best_goodput(survival, prices.draft_pass + prices.verified_token)
        guess = self._lookup.guess(sequence)
        by_lookup = best_goodput(guess.survival[: self._max_draft_tokens], prices.verified_token)
        return looked_up if by_lookup >= by_draft else drafted
