"""`--k-schedule`: what is read, what is refused and how rows are served."""

import pytest

from spec_cli.core.errors import UsageError
from spec_cli.core.events import SpeculationState
from spec_cli.policy.base import RowOutlook
from spec_cli.policy.schedule import Rung, SchedulePolicy, parse_schedule


def _rows(count: int, offered: int = 8) -> tuple[RowOutlook, ...]:
    return tuple(RowOutlook(f"r{i}", "ngram", offered, 10) for i in range(count))


def test_a_schedule_is_read() -> None:
    """Ranges, single sizes and an open end become rungs."""
    assert parse_schedule("1-4:5, 5-8:3,9:1,10-:0") == (
        Rung(1, 4, 5), Rung(5, 8, 3), Rung(9, 9, 1), Rung(10, None, 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1-4:5,6-:0", "gap: no length for 5 rows"),
        ("1-4:5,9-:0", "gap: no length for 5 to 8 rows"),
        ("2-:3", "gap: no length for 1 rows"),
        ("1-4:5,4-:0", "overlap"),
        ("5-:0,1-4:5", "gap"),
        ("1-:5,5-:0", "has no end"),
        ("1-4:5", "nothing for 5 rows and more"),
        ("0-4:5,5-:0", "below 1 row"),
        ("4-1:5", "ends before it starts"),
        ("1-:33", "at most 32"),
        ("1-:-1", "not of the form"),
        ("1-4=5", "not of the form"),
        ("a:b", "not of the form"),
        ("", "not of the form"),
        ("1-:5,", "not of the form"),
        ("1-:²", "not of the form"),
    ],
)
def test_a_faulty_schedule_is_refused_by_name(text: str, fault: str) -> None:
    """The message names what is wrong."""
    with pytest.raises(UsageError, match=fault):
        parse_schedule(text)


def test_lengths_follow_the_number_of_rows() -> None:
    """Each row gets its rung's length, at most its offer, and a pause says why."""
    policy = SchedulePolicy(parse_schedule("1-2:5,3-:0"))
    assert policy.choose(_rows(1), 0) == (5,)
    assert policy.choose(_rows(2, offered=3), 0) == (3, 3)
    assert policy.state == SpeculationState("on")
    assert policy.choose(_rows(3), 0) == (0, 0, 0)
    assert policy.state == SpeculationState("paused", "the schedule has no drafts at 3 rows")
    assert policy.choose((), 0) == ()


def test_a_schedule_without_drafts_is_off() -> None:
    """Off, not paused: it can never come back."""
    policy = SchedulePolicy(parse_schedule("1-:0"))
    assert policy.choose(_rows(1), 0) == (0,)
    assert policy.state.mode == "off"
