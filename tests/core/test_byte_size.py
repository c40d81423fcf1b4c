import pytest

from spec_cli.core.byte_size import format_bytes


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (12_345, "12.3 kB"),
        (190_000, "190 kB"),
        (310_400_000, "310 MB"),
        (999_900_000, "1,000 MB"),
        (9.8e9, "9.8 GB"),
        (24_060_000_000, "24.1 GB"),
        (1_234_000_000_000, "1,234 GB"),
    ],
)
def test_bytes_for_people(num_bytes: float, text: str) -> None:
    """An amount is told in the unit that keeps it short, with a decimal where that tells more."""
    assert format_bytes(num_bytes) == text
