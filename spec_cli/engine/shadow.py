"""Guesses that nobody asked for, compared with what came: how lookup earns its way back.

A lookup costs next to nothing to ask. While the policy drafts nothing for a row, what the lookup
would have proposed is kept and compared with the tokens that are committed, so the policy learns
its acceptance without a single wasted draft token. A draft model costs a pass to ask: it is asked
rarely, and then tells what it would have drafted meanwhile.
"""

from dataclasses import dataclass

from spec_cli.core.proposal import DraftSource, Proposal
from spec_cli.engine.active import ActiveRow
from spec_cli.policy.base import Policy, RowOutlook
from spec_cli.policy.hindsight import verdicts
from spec_cli.proposers.base import DraftRequest, Proposer

_LENGTH = 4
_LOOKUPS: frozenset[DraftSource] = frozenset({"ngram", "suffix"})


@dataclass(frozen=True, slots=True)
class _Guess:
    """What a lookup would have proposed after the first `start` tokens of a row."""

    source: DraftSource
    match_length: int
    start: int
    token_ids: tuple[int, ...]


class Shadow:
    """Follows at most one guess per row until its fate is known."""

    def __init__(self) -> None:
        self._guesses: dict[str, _Guess] = {}

    def watch(
        self,
        rows: list[ActiveRow],
        outlooks: list[RowOutlook],
        lengths: tuple[int, ...],
        proposer: Proposer,
    ) -> None:
        """Keep a guess for each row whose lookup has one and was not asked.

        Args:
            rows: The decoding rows.
            outlooks: What was known of them.
            lengths: Draft lengths that the policy chose.
            proposer: Whose guesses they are.
        """
        idle = [
            (row, outlook)
            for row, outlook, length in zip(rows, outlooks, lengths, strict=True)
            if not length
            and outlook.max_draft_tokens
            and outlook.source in _LOOKUPS
            and outlook.request_id not in self._guesses
        ]
        if not idle:
            return
        requests = [
            DraftRequest(row.sequence, min(_LENGTH, outlook.max_draft_tokens))
            for row, outlook in idle
        ]
        for (row, outlook), proposal in zip(idle, proposer.propose(requests), strict=True):
            if proposal.token_ids:
                self._guesses[outlook.request_id] = _Guess(
                    outlook.source,
                    outlook.match_length,
                    len(row.sequence),
                    proposal.token_ids,
                )

    def settle(self, rows: list[ActiveRow], policy: Policy) -> None:
        """Tell the policy of every guess whose fate the committed tokens decide."""
        for row in rows:
            guess = self._guesses.get(row.sequence.request_id)
            if guess is None:
                continue
            came = row.sequence.token_ids[guess.start : guess.start + len(guess.token_ids)]
            pairs = list(zip(guess.token_ids, came, strict=False))
            num_right = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
            is_wrong = num_right < len(pairs)
            if is_wrong or len(pairs) == len(guess.token_ids):
                del self._guesses[row.sequence.request_id]
                policy.observe_shadow(
                    guess.source,
                    row.sequence.request_id,
                    guess.match_length,
                    num_right + is_wrong,
                    num_right,
                )

    def forget(self, request_id: str) -> None:
        """Drop the guess of a row that ended."""
        self._guesses.pop(request_id, None)


def tell_hindsight(outlooks: list[RowOutlook], proposals: list[Proposal], policy: Policy) -> None:
    """Tell the policy what would have become of drafts that it did not ask for."""
    for outlook, proposal in zip(outlooks, proposals, strict=True):
        for verdict in verdicts(proposal.hindsight, max(1, outlook.max_draft_tokens)):
            policy.observe_shadow(proposal.source, outlook.request_id, 0, *verdict)
