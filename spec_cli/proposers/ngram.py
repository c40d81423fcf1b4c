"""Prompt lookup: guess that what followed these tokens before follows them again.

Source: Saxena 2023, prompt lookup decoding; the longest match wins, of equals the most recent.
"""

from spec_cli.core.config import MAX_DRAFT_TOKENS
from spec_cli.core.proposal import Proposal
from spec_cli.core.sequence import Sequence
from spec_cli.proposers.base import DraftRequest, Outlook


class NgramIndex:
    """Where each n-gram of a growing text was last continued.

    Example: with max_n = 2 and the text 7 8 9 7 8, the end (7, 8) was continued at position 2, so
    the guess is 9 7 8 and, running past the end, again 9 7 8 ...
    """

    def __init__(self, min_n: int, max_n: int) -> None:
        self._sizes = range(max_n, min_n - 1, -1)
        self._continued_at: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    def extend(self, token_ids: list[int]) -> None:
        """Index what was appended since the last call: at most max_n entries a token.

        The n-grams that end with the last token have no continuation yet and are left out.
        """
        for end in range(self._num_indexed + 1, len(token_ids)):
            for n in self._sizes:
                if n <= end:
                    self._continued_at[tuple(token_ids[end - n : end])] = end
        self._num_indexed = max(self._num_indexed, len(token_ids) - 1)

    def match(self, token_ids: list[int]) -> tuple[int, int] | None:
        """Find the end of the text earlier in it.

        Returns:
            The position of its continuation and the length of the match, or None.
        """
        for n in self._sizes:
            position = (
                self._continued_at.get(tuple(token_ids[-n:])) if n <= len(token_ids) else None
            )
            if position is not None:
                return position, n
        return None


class NgramProposer:
    """Guesses by looking up the end of a row in its own prompt and output."""

    def __init__(self, min_n: int = 1, max_n: int = 3) -> None:
        self._min_n = min_n
        self._max_n = max_n
        self._indices: dict[str, NgramIndex] = {}

    def bytes_for(self, max_length: int) -> int:
        """No cache is needed."""
        del max_length
        return 0

    def admit(self, sequence: Sequence, num_rows: int) -> bool:
        """See `Proposer.admit`."""
        del num_rows
        self._indices[sequence.request_id] = NgramIndex(self._min_n, self._max_n)
        return True

    def outlook(self, sequence: Sequence) -> Outlook:
        """See `Proposer.outlook`."""
        found = self._match(sequence)
        if found is None:
            return Outlook("ngram", 0)
        return Outlook("ngram", MAX_DRAFT_TOKENS, match_length=found[1])

    def propose(self, requests: list[DraftRequest]) -> list[Proposal]:
        """See `Proposer.propose`."""
        return [self._propose(request) for request in requests]

    def release(self, sequence: Sequence) -> None:
        """See `Proposer.release`."""
        self._indices.pop(sequence.request_id, None)

    def _propose(self, request: DraftRequest) -> Proposal:
        token_ids = request.sequence.token_ids
        found = self._match(request.sequence)
        if found is None:
            return Proposal((), "ngram")
        position, _ = found
        draft = token_ids[position : position + request.num_draft_tokens]
        while len(draft) < request.num_draft_tokens:  # past the end: the text repeats itself
            draft.append(draft[len(draft) - (len(token_ids) - position)])
        return Proposal(tuple(draft), "ngram")

    def _match(self, sequence: Sequence) -> tuple[int, int] | None:
        index = self._indices[sequence.request_id]
        index.extend(sequence.token_ids)
        return index.match(sequence.token_ids)
