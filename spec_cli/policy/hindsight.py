"""What would have become of drafts that were never made, told from the tokens that came instead.

A draft model that was left alone reads the tokens it missed before it guesses again. On the way its
own choice for each of them costs no further pass, only its logits: where noise and position decide
(coupled verification, or none at temperature 0), that choice is the very token it would have
drafted there. A lag of twenty tokens then tells what twenty steps of drafting would have, and no
token is verified in vain.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Verdict(NamedTuple):
    """The fate of a draft.

    Attributes:
        num_judged: Draft tokens decided: up to and with the first wrong one.
        num_accepted: Those that were right.
    """

    num_judged: int
    num_accepted: int


def verdicts(hindsight: Iterable[bool | None], max_draft_tokens: int) -> list[Verdict]:
    """Cut hindsight into the drafts that would have followed each other.

    A draft ends with its first wrong token, at its longest, or before a token that nobody would
    have drafted. The token there came from the target, and the next draft follows it.

    Args:
        hindsight: See `Proposal.hindsight`.
        max_draft_tokens: Longest draft, at least 1.
    """
    result: list[Verdict] = []
    num_accepted = 0
    for is_right in hindsight:
        if is_right and num_accepted < max_draft_tokens:
            num_accepted += 1
            continue
        is_wrong = is_right is False and num_accepted < max_draft_tokens
        if is_wrong or num_accepted:
            result.append(Verdict(num_accepted + is_wrong, num_accepted))
        num_accepted = 0
    if num_accepted:
        result.append(Verdict(num_accepted, num_accepted))
    return result
