"""Hindsight is cut into the drafts that would have followed each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_cli.policy.hindsight import verdicts

R, W = True, False


@pytest.mark.parametrize(
    ("hindsight", "expected"),
    [
        ([], []),
        ([W], [(1, 0)]),
        ([R, R], [(2, 2)]),
        ([R, W, R], [(2, 1), (1, 1)]),
        ([W, W], [(1, 0), (1, 0)]),
        # The fourth token comes free with a draft of three, right or not.
        ([R, R, R, W, R], [(3, 3), (1, 1)]),
        ([R, R, R, R, W], [(3, 3), (1, 0)]),
        # What would not have been drafted ends a draft, and is nobody's error.
        ([None, R, None, None, W], [(1, 1), (1, 0)]),
    ],
)
def test_cuts(hindsight: list[bool | None], expected: list[tuple[int, int]]) -> None:
    """A draft ends with its first wrong token, at three, or before a token nobody drafts."""
    assert verdicts(hindsight, 3) == expected


@given(st.lists(st.sampled_from([True, False, None]), max_size=60), st.integers(1, 8))
def test_it_is_what_drafting_would_have_found(hindsight: list[bool | None], length: int) -> None:
    """The same as drafting step by step: accepted tokens and one of the target's each time."""
    expected = []
    start = 0
    while start < len(hindsight):
        draft = hindsight[start : start + length]
        draft = draft[: draft.index(None)] if None in draft else draft
        accepted = draft.index(False) if False in draft else len(draft)
        if draft:
            expected.append((min(accepted + 1, len(draft)), accepted))
        start += accepted + 1
    assert verdicts(hindsight, length) == expected
